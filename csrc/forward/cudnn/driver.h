/* NVIDIA's driver in this process. */
#ifndef RNL_CUDNN_DRIVER_H
#define RNL_CUDNN_DRIVER_H

#include "forward/cudnn/library.h"
#include "forward/cudnn/table.h"

typedef struct rnl_driver {
    rnl_driver_table call;
    char path[RNL_PATH_NBYTES]; /* "": there is none */
    int cuda_version;           /* the newest CUDA that it runs: 13010 is 13.1; 0: it did not say */
    int num_devices;            /* at least 1 where loading it succeeded */
} rnl_driver;

/* Open it and initialize it, from the loader's own folders: it is part of the system. What is known
 * by then is in driver also where it cannot be used. RNL_E_NO_CUDNN: why not. */
rnl_status rnl_driver_load(rnl_driver *driver, rnl_error *err);

/* What a device is. */
rnl_status rnl_driver_describe(const rnl_driver *driver, int ordinal, rnl_gpu *gpu, rnl_error *err);

#endif
