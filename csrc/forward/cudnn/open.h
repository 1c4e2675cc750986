/* The cuDNN, the driver and the GPUs of this process, once rnl_cudnn_open() has opened them. */
#ifndef RNL_CUDNN_OPEN_H
#define RNL_CUDNN_OPEN_H

#include "forward/cudnn/load.h"

/* Called as device->cu->cuInit(...). */
typedef struct rnl_driver_table {
#define DRIVER(returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_driver_table;

/* These never change again. */
typedef struct rnl_cudnn_in_use {
    const rnl_cudnn_library *library;
    const rnl_driver_table *driver;
    int capability; /* of the GPU: 10 * major + minor */
    int multiprocessors;
} rnl_cudnn_in_use;

/* RNL_E_NO_CUDNN: this GPU cannot be used. */
rnl_status rnl_cudnn_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err);

/* RNL_E_NO_CUDNN: this process was forked from the one that has initialized the driver. Call it
 * before you take a lock, which another thread may have held when the process was forked. */
rnl_status rnl_cudnn_check_fork(rnl_error *err);

#endif
