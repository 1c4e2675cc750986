/* One cuDNN, opened from one folder. */
#ifndef RNL_CUDNN_LOAD_H
#define RNL_CUDNN_LOAD_H

#include "forward/cudnn/driver.h"

typedef struct rnl_cudnn_library {
    rnl_cudnn_table call;
    char path[RNL_PATH_NBYTES];   /* of the main library */
    char cublas[RNL_PATH_NBYTES]; /* of cuBLASLt; "": not opened, for want of a driver */
    int version;                  /* 91900: 9.19.0; 8906: 8.9.6 */
    int cuda_version;             /* 13010: built for CUDA 13.1 */
} rnl_cudnn_library;

/* The main library's name: libcudnn.so.9 or .8. */
const char *rnl_cudnn_name(int major);

/* What parts a version number has. */
void rnl_cudnn_version_parts(int version, int parts[3]);

/*
 * Open the cuDNN of a folder, and make the calls that tell whether it can be used. Nothing is
 * opened unless all of its parts are there and whole, nothing is called unless all are open: a call
 * that does not find its part aborts the process.
 *
 * loaded  the process has this one already: its parts may be open from elsewhere. Otherwise a part
 *         of another cuDNN in the process is a reason to refuse: they find each other by name, and
 *         would be mixed
 * driver  NULL: there is none that can be used
 *
 * RNL_E_NO_CUDNN: why not, without the folder's name. What is open stays so.
 */
rnl_status rnl_cudnn_load(const char *folder, int major, bool loaded, const rnl_driver *driver,
                          rnl_cudnn_library *library, rnl_error *err);

/* Open what cuDNN will look for when it first multiplies, by the loader's means: cuBLASLt, for 8
 * cuBLAS too. So that it is an error here, with names, that it is not there. */
rnl_status rnl_cublas_load(const char *folder, int cudnn_major, int cuda_major,
                           char path[RNL_PATH_NBYTES], rnl_error *err);

#endif
