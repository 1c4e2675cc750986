/* Memory of a GPU for others, and the order of their streams. */
#include "core/status.h"
#include "forward/cudnn/device.h"

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err)
{
    rnl_gpu_device *gpu;
    rnl_cu_address made = 0;
    if (nbytes < 0)
        return rnl_fail(err, RNL_E_SPEC, "a number of bytes below zero");
    rnl_status status = rnl_gpu_enter(device, &gpu, err);
    if (status != RNL_OK)
        return status;
    /* the driver has no memory of no bytes */
    status = rnl_gpu_memory(gpu, nbytes ? (size_t)nbytes : 1, "results", &made, err);
    const rnl_status left = rnl_gpu_leave(gpu, status, err);
    if (left == RNL_OK)
        *address = (void *)(uintptr_t)made;
    else if (status == RNL_OK)
        rnl_gpu_free(device, (void *)(uintptr_t)made);
    return left;
}

void rnl_gpu_free(int device, void *address)
{
    rnl_gpu_device *gpu;
    rnl_error ignored;
    if (!address || !rnl_gpu_enter_to_free(device, &gpu))
        return;
    const rnl_cu_result result = gpu->cu->cuMemFree_v2((rnl_cu_address)(uintptr_t)address);
    rnl_gpu_leave(gpu, rnl_gpu_cu(gpu, "cuMemFree_v2", result, &ignored), &ignored);
}

static rnl_status copy_out(rnl_gpu_device *gpu, const void *address, void *host, size_t nbytes,
                           rnl_cu_stream stream, rnl_error *err)
{
    rnl_cu_capture_status found = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    rnl_status status = RNL_CU(gpu, err, cuStreamIsCapturing, stream, &found);
    if (status == RNL_OK && found != RNL_CU_STREAM_CAPTURE_STATUS_NONE)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream is capturing: numbers can be read after the graph has run");
    if (status == RNL_OK)
        status = RNL_CU(gpu, err, cuMemcpyDtoHAsync_v2, host, (rnl_cu_address)(uintptr_t)address,
                        nbytes, stream);
    if (status == RNL_OK)
        status = RNL_CU(gpu, err, cuStreamSynchronize, stream);
    return status;
}

rnl_status rnl_gpu_copy_out(int device, const void *address, void *host, int64_t nbytes,
                            void *stream, rnl_error *err)
{
    rnl_gpu_device *gpu;
    if (nbytes <= 0)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &gpu, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(
        gpu, copy_out(gpu, address, host, (size_t)nbytes, (rnl_cu_stream)stream, err), err);
}

static rnl_status order(rnl_gpu_device *gpu, rnl_cu_stream before, rnl_cu_stream after,
                        rnl_error *err)
{
    rnl_cu_event event = NULL;
    rnl_status status = RNL_CU(gpu, err, cuEventCreate, &event, RNL_CU_EVENT_DISABLE_TIMING);
    if (status != RNL_OK)
        return status;
    status = RNL_CU(gpu, err, cuEventRecord, event, before);
    if (status == RNL_OK)
        status = RNL_CU(gpu, err, cuStreamWaitEvent, after, event, 0);
    const rnl_cu_result result = gpu->cu->cuEventDestroy_v2(event); /* the wait goes on */
    return status != RNL_OK ? status : rnl_gpu_cu(gpu, "cuEventDestroy_v2", result, err);
}

rnl_status rnl_gpu_order(int device, void *before, void *after, rnl_error *err)
{
    rnl_gpu_device *gpu;
    if (before == after)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &gpu, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(gpu, order(gpu, (rnl_cu_stream)before, (rnl_cu_stream)after, err), err);
}
