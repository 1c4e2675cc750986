/* GPU memory and the order of streams, for the caller. */
#include <inttypes.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

rnl_status rnl_gpu_memory(rnl_gpu_device *gpu, size_t nbytes, const char *what,
                          rnl_cu_address *memory, rnl_error *err)
{
    const rnl_cu_result result = gpu->cu->cuMemAlloc_v2(memory, nbytes);
    if (result != RNL_CUDA_ERROR_OUT_OF_MEMORY)
        return rnl_gpu_cu(gpu, "cuMemAlloc_v2", result, err);
    return rnl_fail(err, RNL_E_NOMEM,
                    "GPU %d is out of memory: cannot allocate %zu bytes (%.1f MiB) for %s; free "
                    "some of its memory, or make the batch smaller",
                    gpu->ordinal, nbytes, (double)nbytes / (1 << 20), what);
}

static rnl_status alloc(rnl_gpu_device *gpu, size_t nbytes, rnl_cu_stream stream,
                        rnl_cu_address *made, rnl_error *err)
{
    bool captured = false;
    const rnl_status status = rnl_gpu_is_captured(gpu, stream, &captured, err);
    if (captured)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream is capturing, and new results would not live as long as the "
                        "graph: pass all outputs: out=, h_out= and, of an LSTM, c_out=");
    return status == RNL_OK ? rnl_gpu_memory(gpu, nbytes, "results", made, err) : status;
}

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void *stream, void **address, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_cu_address made = 0;
    if (nbytes < 0)
        return rnl_fail(err, RNL_E_SPEC, "nbytes is %" PRId64 ": need 0 or more", nbytes);
    rnl_status status = rnl_gpu_enter(device, &in, err);
    if (status != RNL_OK)
        return status;
    /* the driver refuses to allocate 0 bytes */
    status = alloc(in.device, nbytes ? (size_t)nbytes : 1, stream, &made, err);
    if (status == RNL_OK)
        *address = rnl_gpu_pointer(made);
    return rnl_gpu_leave(&in, status);
}

void rnl_gpu_free(int device, void *address)
{
    rnl_gpu_entry in;
    rnl_error ignored;
    if (!address || rnl_gpu_enter(device, &in, &ignored) != RNL_OK)
        return;
    (void)RNL_CU(in.device, &ignored, cuMemFree_v2, (rnl_cu_address)(uintptr_t)address);
    rnl_gpu_leave(&in, RNL_OK);
}

static rnl_status copy_out(rnl_gpu_device *gpu, const void *address, void *host, size_t nbytes,
                           rnl_cu_stream stream, rnl_error *err)
{
    bool captured = false;
    rnl_status status = rnl_gpu_is_captured(gpu, stream, &captured, err);
    if (captured)
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
    rnl_gpu_entry in;
    if (nbytes <= 0)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &in, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(&in, copy_out(in.device, address, host, (size_t)nbytes, stream, err));
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
    gpu->cu->cuEventDestroy_v2(event); /* the wait is not affected */
    return status;
}

/* A wait between a capturing stream and another would break the capture: only the launch of the
 * graph decides when its work runs. The legacy default stream (NULL) is never captured. */
static rnl_status order(rnl_gpu_device *gpu, rnl_cu_stream before, rnl_cu_stream after,
                        rnl_error *err)
{
    bool first = false, then = false;
    rnl_status status = RNL_OK;
    if (before)
        status = rnl_gpu_is_captured(gpu, before, &first, err);
    if (status == RNL_OK && after)
        status = rnl_gpu_is_captured(gpu, after, &then, err);
    if (status != RNL_OK || first != then)
        return status;
    if (!before || !after)
        status = rnl_gpu_is_captured(gpu, NULL, &first, err);
    return status == RNL_OK ? order_by_event(gpu, before, after, err) : status;
}

rnl_status rnl_gpu_order(int device, void *before, void *after, rnl_error *err)
{
    rnl_gpu_entry in;
    if (before == after)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &in, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(&in, order(in.device, before, after, err));
}
