/* Shared libraries of the system: opened, but never closed. */
#ifndef RNL_CUDNN_LIBRARY_H
#define RNL_CUDNN_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "rnnlayout.h"

enum { RNL_PATH_NBYTES = 4096 };

/* Open a path, or a name that the loader looks for. NULL: the reason is in err. */
void *rnl_library_open(const char *path, rnl_error *err);

/* The library of this name that the process has already loaded; NULL: none. */
void *rnl_library_loaded(const char *name);

/* The path of an open library. False: the loader does not report it. */
bool rnl_library_path(void *library, char path[RNL_PATH_NBYTES]);

/* Store the address of a function in a pointer to a function; NULL, and the first such name in
 * *missing, if the library lacks it. */
void rnl_library_find(void *library, const char *name, void *pointer, const char **missing);

/* RNL_E_NO_CUDNN unless the file is a complete library for this machine. A truncated one opens, but
 * the process ends as soon as it reads a missing part. */
rnl_status rnl_library_check(const char *path, rnl_error *err);

#endif
