/* GPU memory and the order of streams, for the caller. */
#include <inttypes.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err)
{
    rnl_gpu_device *gpu;
    rnl_cu_address made = 0;
    if (nbytes < 0)
        return rnl_fail(err, RNL_E_SPEC, "nbytes is %" PRId64 ": need 0 or more", nbytes);
    rnl_status status = rnl_gpu_enter(device, &gpu, err);
    if (status != RNL_OK)
        return status;
    /* the driver refuses to allocate 0 bytes */
    status = rnl_gpu_memory(gpu, nbytes ? (size_t)nbytes : 1, "results", &made, err);
    const rnl_status left = rnl_gpu_leave(gpu, status, err);
    if (left == RNL_OK)
        *address = rnl_gpu_pointer(made);
    else if (status == RNL_OK)
        rnl_gpu_free(device, rnl_gpu_pointer(made));
    return left;
}

void rnl_gpu_free(int device, void *address)
{
    rnl_gpu_device *gpu;
    rnl_cu_capture_mode mode;
    rnl_error ignored;
    if (!address || !rnl_gpu_enter_to_free(device, &gpu, &mode))
        return;
    (void)RNL_CU(gpu, &ignored, cuMemFree_v2, (rnl_cu_address)(uintptr_t)address);
    rnl_gpu_leave_freed(gpu, mode);
}

static rnl_status copy_out(rnl_gpu_device *gpu, const void *address, void *host, size_t nbytes,
                           rnl_cu_stream stream, rnl_error *err)
{
    rnl_cu_capture_status found = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    rnl_status status = RNL_CU(gpu, err, cuStreamIsCapturing, stream, &found);
    if (status == RNL_OK && found != RNL_CU_STREAM_CAPTURE_STATUS_NONE)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream is capturing: read the results after the graph has run");
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

/* Is the stream capturing? The legacy default stream never is. */
static rnl_status is_captured(rnl_gpu_device *gpu, rnl_cu_stream stream, bool *captured,
                              rnl_error *err)
{
    rnl_cu_capture_status found = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    const rnl_status status = stream ? RNL_CU(gpu, err, cuStreamIsCapturing, stream, &found)
                                     : RNL_OK;
    *captured = found != RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    return status;
}

static rnl_status order_by_event(rnl_gpu_device *gpu, rnl_cu_stream before, rnl_cu_stream after,
                                 rnl_error *err)
{
    rnl_cu_event event = NULL;
    rnl_status status = RNL_CU(gpu, err, cuEventCreate, &event, RNL_CU_EVENT_DISABLE_TIMING);
    if (status != RNL_OK)
        return status;
    status = RNL_CU(gpu, err, cuEventRecord, event, before);
    if (status == RNL_OK)
        status = RNL_CU(gpu, err, cuStreamWaitEvent, after, event, 0);
    const rnl_cu_result result = gpu->cu->cuEventDestroy_v2(event); /* the wait is not affected */
    return status != RNL_OK ? status : rnl_gpu_cu(gpu, "cuEventDestroy_v2", result, err);
}

/* A wait between a capturing stream and another would break the capture: only the launch of the
 * graph decides when its work runs. */
static rnl_status order(rnl_gpu_device *gpu, rnl_cu_stream before, rnl_cu_stream after,
                        rnl_error *err)
{
    bool first, then;
    rnl_status status = is_captured(gpu, before, &first, err);
    if (status == RNL_OK)
        status = is_captured(gpu, after, &then, err);
    return status != RNL_OK || first != then ? status : order_by_event(gpu, before, after, err);
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
