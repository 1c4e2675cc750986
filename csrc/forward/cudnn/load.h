/* One cuDNN, opened from one folder. */
#ifndef RNL_CUDNN_LOAD_H
#define RNL_CUDNN_LOAD_H

#include "forward/cudnn/driver.h"

/* Called as device->dnn->cudnnRNNForward(...). NULL: only the other major version has it. */
typedef struct rnl_cudnn_table {
#define CUDNN(major, returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_cudnn_table;

typedef struct rnl_cudnn_library {
    rnl_cudnn_table call;
    char path[RNL_PATH_NBYTES];   /* of the main library */
    char cublas[RNL_PATH_NBYTES]; /* of cuBLASLt; "": not opened without a driver */
    int version;                  /* 91900: 9.19.0; 8906: 8.9.6 */
    int cuda_version;             /* 13010: built for CUDA 13.1 */
} rnl_cudnn_library;

/* The main library's name: libcudnn.so.9 or .8. */
const char *rnl_cudnn_name(int major);

/* Split a version number into major, minor and patch level. */
void rnl_cudnn_version_parts(int version, int parts[3]);

/*
 * Open the cuDNN of a folder and check by its own functions whether it can be used. Nothing is
 * opened unless all of its parts exist completely, and nothing is called unless all are open: a
 * call that does not find its part aborts the process.
 *
 * loaded  the process has already loaded this cuDNN, perhaps with parts from other folders. If not,
 *         it is refused when the process has a part of another cuDNN: parts find each other by name
 *         and would be mixed
 * driver  NULL: no driver can be used
 *
 * RNL_E_NO_CUDNN: the text says why, without the folder's name. Open libraries stay open.
 */
rnl_status rnl_cudnn_load(const char *folder, int major, bool loaded, const rnl_driver *driver,
                          rnl_cudnn_library *library, rnl_error *err);

/* Open the libraries that cuDNN opens by the loader when it first multiplies: cuBLASLt, and cuBLAS
 * for cuDNN 8. So a missing one is an error here, with its name. */
rnl_status rnl_cublas_load(const char *folder, int cudnn_major, int cuda_major,
                           char path[RNL_PATH_NBYTES], rnl_error *err);

#endif
