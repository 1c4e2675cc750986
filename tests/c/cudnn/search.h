/* A search, in a process of its own: what is open stays open. */
#ifndef CUDNN_SEARCH_H
#define CUDNN_SEARCH_H

#include "rnnlayout.h"

/* Run a function in a process of its own, which must end by itself, and count its checks. */
void apart(void (*function)(const void *), const void *argument);

const rnl_cudnn_report *search(const char *const *packages, const char *const *environments);

#endif
