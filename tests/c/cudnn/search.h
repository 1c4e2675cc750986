/* A search in a separate process, because open libraries stay open. */
#ifndef CUDNN_SEARCH_H
#define CUDNN_SEARCH_H

#include "rnnlayout.h"

/* Run a function in a separate process, which must exit normally, and add up its checks. */
void apart(void (*function)(const void *), const void *argument);

const rnl_cudnn_report *search(const char *const *packages, const char *const *environments);

#endif
