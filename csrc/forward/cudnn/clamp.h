/* Clamp c_n: cuDNN clamps a cell state where it reads it, but returns c_n unclamped. */
#ifndef RNL_CUDNN_CLAMP_H
#define RNL_CUDNN_CLAMP_H

#include "forward/cudnn/device.h"

/* Load the kernel for this dtype, and the module at the first time. Not during a capture. */
rnl_status rnl_clamp_prepare(rnl_gpu_device *device, rnl_dtype dtype, rnl_error *err);

/* Clamp in place, after the work in the stream; a NaN stays a NaN. */
rnl_status rnl_clamp_run(rnl_gpu_device *device, rnl_dtype dtype, rnl_cu_address at, size_t nelems,
                         double low, double high, rnl_cu_stream stream, rnl_error *err);

#endif
