/* c_n as it is promised: cuDNN clamps a cell state where it reads it, and returns it unclamped. */
#ifndef RNL_CUDNN_CLAMP_H
#define RNL_CUDNN_CLAMP_H

#include "forward/cudnn/device.h"

/* Have the kernel for this dtype: loads the module at the first time. Not in a capture. */
rnl_status rnl_clamp_prepare(rnl_gpu_device *device, rnl_dtype dtype, rnl_error *err);

/* Clamp in place, behind the work in the stream; a NaN stays one. */
rnl_status rnl_clamp_run(rnl_gpu_device *device, rnl_dtype dtype, rnl_cu_address at, size_t nelems,
                         double low, double high, rnl_cu_stream stream, rnl_error *err);

/* Unload it; under the device's lock. */
void rnl_clamp_forget(rnl_gpu_device *device);

#endif
