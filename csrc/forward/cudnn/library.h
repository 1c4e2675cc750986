/* Shared libraries of the system: opened, never closed. */
#ifndef RNL_CUDNN_LIBRARY_H
#define RNL_CUDNN_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "rnnlayout.h"

enum { RNL_PATH_NBYTES = 4096 };

/* Can libraries be looked for here at all? */
bool rnl_library_supported(void);

/* Open a path, or a name that the loader looks for. NULL: why not is in err. */
void *rnl_library_open(const char *path, rnl_error *err);

/* The library of this name that the process has already; NULL: none. */
void *rnl_library_loaded(const char *name);

/* Where an open library lies. False: the loader does not say. */
bool rnl_library_path(void *library, char path[RNL_PATH_NBYTES]);

/* A function of an open library, or NULL. */
typedef void rnl_library_function(void);
rnl_library_function *rnl_library_find(void *library, const char *name);

/* Is this file a library for this machine, down to its last byte? One that was cut short opens, and
 * ends the process where what is missing is touched. RNL_E_NO_CUDNN: it is not. */
rnl_status rnl_library_check(const char *path, rnl_error *err);

#endif
