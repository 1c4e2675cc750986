/* Shared libraries, and one cuDNN, which is opened from one folder. */
#ifndef RNL_CUDNN_LOAD_H
#define RNL_CUDNN_LOAD_H

#include <stdbool.h>

#include "forward/cudnn/abi.h"
#include "rnnlayout.h"

/* ---- library.c: shared libraries of the system: opened, but never closed ---- */

/* Open a path, or a name that the loader looks for. NULL: the reason is in err. */
void *rnl_library_open(const char *path, rnl_error *err);

/* The library of this name that the process has already loaded; NULL: none. */
void *rnl_library_loaded(const char *name);

/* The path from which the loader has opened a library. */
const char *rnl_library_path(void *library);

/* Store the address of a function in a pointer to a function; NULL, and the first such name in
 * *missing, if the library lacks it. */
void rnl_library_find(void *library, const char *name, void *pointer, const char **missing);

/* RNL_E_NO_CUDNN unless the file is a complete library for this machine. A truncated one opens, but
 * the process ends as soon as it reads a missing part. */
rnl_status rnl_library_check(const char *path, rnl_error *err);

/* ---- load.c ---- */

/* Called as device->dnn->cudnnRNNForward(...). */
typedef struct rnl_cudnn_table {
#define CUDNN(returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_cudnn_table;

typedef struct rnl_cudnn_library {
    rnl_cudnn_table call;
    const char *path;   /* of the main library */
    const char *cublas; /* of cuBLASLt; NULL: not opened without a driver */
    int version;        /* 91900: 9.19.0 */
    int cuda_version;   /* 13010: built for CUDA 13.1 */
} rnl_cudnn_library;

/*
 * Open the cuDNN at a path and check by its own functions whether it can be used. Nothing is opened
 * unless all of its parts exist completely, and nothing is called unless all are open: a call that
 * does not find its part aborts the process. It is refused if the process has a part of another
 * cuDNN: parts find each other by name and would be mixed.
 *
 * path         of the main library; NULL: the one that the process has loaded, perhaps with parts
 *              from other folders, else the one that the loader finds
 * driver_cuda  the newest CUDA that the driver supports: 13010 is 13.1; 0: no driver can be used
 *
 * RNL_E_NO_CUDNN: the text says why, without the folder's name. Open libraries stay open.
 */
rnl_status rnl_cudnn_load(const char *path, int driver_cuda, rnl_cudnn_library *library,
                          rnl_error *err);

#endif
