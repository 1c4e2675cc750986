/* A GPU: streams and memory. */
#include "forward/cudnn/device.h"

#include <inttypes.h>

#include "core/status.h"

/* ---- streams ---- */

rnl_status rnl_gpu_get_capture(rnl_gpu_device *device, rnl_cu_stream stream,
                               rnl_gpu_capture *capture, rnl_error *err)
{
    rnl_cu_capture_status status = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    *capture = (rnl_gpu_capture){.active = false};
    const rnl_cu_result result = device->cu->cuStreamGetCaptureInfo(stream, &status, &capture->id);
    if (result == RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return rnl_fail(err, RNL_E_SPEC,
                        "the legacy default stream cannot be used while a stream that waits for it "
                        "is capturing: use another stream, or capture a stream that was created "
                        "as non-blocking");
    capture->active = status != RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    return rnl_gpu_cu(device, "cuStreamGetCaptureInfo", result, err);
}

rnl_status rnl_gpu_order(rnl_gpu_device *device, rnl_cu_stream before, rnl_cu_stream after,
                         rnl_error *err)
{
    rnl_cu_event event = NULL;
    rnl_status status = RNL_CU(device, err, cuEventCreate, &event, RNL_CU_EVENT_DISABLE_TIMING);
    if (status != RNL_OK)
        return status;
    status = RNL_CU(device, err, cuEventRecord, event, before);
    if (status == RNL_OK)
        status = RNL_CU(device, err, cuStreamWaitEvent, after, event, 0);
    device->cu->cuEventDestroy_v2(event); /* does not affect the wait */
    return status;
}

/* ---- memory ---- */

rnl_status rnl_gpu_memory(rnl_gpu_device *device, size_t nbytes, const char *purpose,
                          rnl_cu_address *memory, rnl_error *err)
{
    const rnl_cu_result result = device->cu->cuMemAlloc_v2(memory, nbytes);
    if (result != RNL_CUDA_ERROR_OUT_OF_MEMORY)
        return rnl_gpu_cu(device, "cuMemAlloc_v2", result, err);
    return rnl_fail(err, RNL_E_NOMEM,
                    "GPU %d is out of memory: cannot allocate %zu bytes (%.1f MiB) for %s; free "
                    "some of its memory, or make the batch smaller",
                    device->ordinal, nbytes, (double)nbytes / (1 << 20), purpose);
}

static rnl_status check_nbytes(int64_t nbytes, rnl_error *err)
{
    if (nbytes >= 0)
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC, "nbytes is %" PRId64 ": need 0 or more", nbytes);
}

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_cu_address memory = 0;
    rnl_status status;
    if ((status = check_nbytes(nbytes, err)) || (status = rnl_gpu_enter(device, &in, err)))
        return status;
    /* the driver refuses to allocate 0 bytes */
    status = rnl_gpu_memory(in.device, nbytes ? (size_t)nbytes : 1, "results", &memory, err);
    if (status == RNL_OK)
        *address = rnl_gpu_pointer(memory);
    return rnl_gpu_leave(&in, status);
}

void rnl_gpu_free(int device, void *address)
{
    rnl_gpu_entry in;
    rnl_error ignored;
    if (!address || rnl_gpu_enter(device, &in, &ignored) != RNL_OK)
        return;
    in.device->cu->cuMemFree_v2(rnl_gpu_address(address));
    rnl_gpu_leave(&in, RNL_OK);
}

rnl_status rnl_gpu_read(int device, const void *from, int64_t nbytes, void *to, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_status status = check_nbytes(nbytes, err);
    if (!nbytes || status != RNL_OK || (status = rnl_gpu_enter(device, &in, err)))
        return status;
    status = RNL_CU(in.device, err, cuMemcpyDtoHAsync_v2, to, rnl_gpu_address(from), (size_t)nbytes,
                    in.device->host_stream);
    if (status == RNL_OK)
        status = RNL_CU(in.device, err, cuStreamSynchronize, in.device->host_stream);
    return rnl_gpu_leave(&in, status);
}
