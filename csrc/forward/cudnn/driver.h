/* NVIDIA's driver in this process. */
#ifndef RNL_CUDNN_DRIVER_H
#define RNL_CUDNN_DRIVER_H

#include "forward/cudnn/abi.h"
#include "forward/cudnn/library.h"

/* Called as device->cu->cuInit(...). */
typedef struct rnl_driver_table {
#define DRIVER(returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_driver_table;

typedef struct rnl_driver {
    rnl_driver_table call;
    char path[RNL_PATH_NBYTES]; /* "": none */
    int cuda_version;           /* the newest CUDA that it supports: 13010 is 13.1; 0: unknown */
    int num_devices;            /* at least 1 if loading succeeded */
} rnl_driver;

/* Open the driver by the system's loader, and initialize it. RNL_E_NO_CUDNN: the text says why it
 * cannot be used; driver has what was found until then. */
rnl_status rnl_driver_load(rnl_driver *driver, rnl_error *err);

/* Fill in a device's name and compute capability. */
rnl_status rnl_driver_describe(const rnl_driver *driver, int ordinal, rnl_gpu *gpu, rnl_error *err);

#endif
