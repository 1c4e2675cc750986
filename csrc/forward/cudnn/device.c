/* A GPU: cuDNN's handles, streams and memory. */
#include "forward/cudnn/device.h"

#include <inttypes.h>

#include "core/status.h"

/* ---- handles ---- */

/* Create the missing objects: after a failure the next call continues. */
static rnl_status make(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!device->dropout)
        status = RNL_DNN(device, err, cudnnCreateDropoutDescriptor, &device->dropout);
    if (status == RNL_OK && !handle->cudnn)
        status = RNL_DNN(device, err, cudnnCreate, &handle->cudnn);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnSetDropoutDescriptor, device->dropout, handle->cudnn, 0,
                         NULL, 0, 0);
    handle->ready = status == RNL_OK;
    return status;
}

static rnl_status set_stream(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                             rnl_error *err)
{
    if (handle->stream == stream)
        return RNL_OK;
    const rnl_cudnn_status result = device->dnn->cudnnSetStream(handle->cudnn, stream);
    if (result == RNL_CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream belongs to another GPU or context: the RNN is on GPU %d, use a "
                        "stream of that GPU",
                        device->ordinal);
    const rnl_status status = rnl_gpu_dnn(device, "cudnnSetStream", result, err);
    if (status == RNL_OK)
        handle->stream = stream;
    return status;
}

/* May a call in this stream use the handle? A destroyed stream is no longer being captured. */
static bool is_usable(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                      bool capturing)
{
    rnl_cu_capture_status status = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    if (capturing && !handle->ready)
        return false;
    if (!handle->captured_in || handle->captured_in == stream)
        return true;
    if (device->cu->cuStreamIsCapturing(handle->captured_in, &status) == RNL_CUDA_SUCCESS &&
        status != RNL_CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    handle->captured_in = NULL;
    return true;
}

rnl_status rnl_gpu_get_handle_locked(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                                     rnl_gpu_handle **handle, rnl_error *err)
{
    rnl_gpu_handle *const end = device->handles + RNL_NUM_HANDLES;
    rnl_gpu_handle *candidate = device->handles;
    rnl_status status;
    while (candidate < end && !is_usable(device, candidate, stream, capturing))
        candidate++;
    if (candidate == end)
        return rnl_fail(err, RNL_E_SPEC,
                        "open captures use all of cuDNN's handles on GPU %d: end one of them, or "
                        "make a call outside of captures first, which makes a handle",
                        device->ordinal);
    if ((status = candidate->ready ? RNL_OK : make(device, candidate, err)) ||
        (status = set_stream(device, candidate, stream, err)))
        return status;
    if (capturing)
        candidate->captured_in = stream;
    *handle = candidate;
    return RNL_OK;
}

/* ---- streams ---- */

rnl_status rnl_gpu_is_captured(rnl_gpu_device *device, rnl_cu_stream stream, bool *captured,
                               rnl_error *err)
{
    rnl_cu_capture_status status = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    const rnl_cu_result result = device->cu->cuStreamIsCapturing(stream, &status);
    if (result == RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return rnl_fail(err, RNL_E_SPEC,
                        "the legacy default stream cannot be used while a stream that waits for it "
                        "is capturing: use another stream, or capture a stream that was created "
                        "as non-blocking");
    *captured = status != RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    return rnl_gpu_cu(device, "cuStreamIsCapturing", result, err);
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
