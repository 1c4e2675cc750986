/* GPU memory and the order of streams, for the caller. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

/* ---- in the order of a stream ---- */

/* Free memory of the pool. False: the stream is captured, or cannot be used beside a capture. */
static bool end(rnl_gpu_device *gpu, rnl_cu_address memory, rnl_cu_stream stream)
{
    bool captured = true;
    rnl_error ignored;
    if (rnl_gpu_is_captured(gpu, stream, &captured, &ignored) != RNL_OK || captured)
        return false;
    (void)RNL_CU(gpu, &ignored, cuMemFreeAsync, memory, stream);
    return true;
}

static void end_later(rnl_gpu_device *gpu, rnl_ending *ending)
{
    pthread_mutex_lock(&gpu->lock);
    ending->next = gpu->endings;
    gpu->endings = ending;
    pthread_mutex_unlock(&gpu->lock);
}

/* Free what could not be freed during a capture. */
static void end_all(rnl_gpu_device *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    rnl_ending *next, *all = gpu->endings;
    gpu->endings = NULL;
    pthread_mutex_unlock(&gpu->lock);
    for (; all; all = next) {
        next = all->next;
        if (end(gpu, all->memory, all->stream))
            free(all);
        else
            end_later(gpu, all);
    }
}

/* ---- memory of a call ---- */

rnl_status rnl_gpu_take_memory(rnl_gpu_device *gpu, size_t nbytes, rnl_cu_stream stream,
                               rnl_cu_address *memory, rnl_error *err)
{
    static const char what[] = "the workspace of this call";
    if (!gpu->work)
        return rnl_gpu_memory(gpu, nbytes, what, memory, err);
    return rnl_gpu_allocated(gpu, "cuMemAllocFromPoolAsync",
                             gpu->cu->cuMemAllocFromPoolAsync(memory, nbytes, gpu->work, stream),
                             nbytes, what, err);
}

/* Without pools this waits for the work. */
void rnl_gpu_give_memory(rnl_gpu_device *gpu, rnl_cu_address memory, rnl_cu_stream stream)
{
    rnl_error ignored;
    if (gpu->work)
        (void)RNL_CU(gpu, &ignored, cuMemFreeAsync, memory, stream);
    else
        (void)RNL_CU(gpu, &ignored, cuMemFree_v2, memory);
}

/* ---- memory for results ---- */

static rnl_status alloc(rnl_gpu_device *gpu, size_t nbytes, rnl_cu_stream stream, bool in_order,
                        rnl_cu_address *made, rnl_error *err)
{
    bool captured = false;
    const rnl_status status = rnl_gpu_is_captured(gpu, stream, &captured, err);
    if (captured)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream is capturing, and new results would not live as long as the "
                        "graph: pass all outputs: out=, h_out= and, of an LSTM, c_out=");
    if (status != RNL_OK)
        return status;
    if (!in_order || !gpu->results)
        return rnl_gpu_memory(gpu, nbytes, "results", made, err);
    end_all(gpu);
    return rnl_gpu_allocated(gpu, "cuMemAllocFromPoolAsync",
                             gpu->cu->cuMemAllocFromPoolAsync(made, nbytes, gpu->results, stream),
                             nbytes, "results", err);
}

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void *stream, int in_order, void **address,
                         rnl_error *err)
{
    rnl_gpu_device *gpu;
    rnl_cu_capture_mode mode;
    rnl_cu_address made = 0;
    if (nbytes < 0)
        return rnl_fail(err, RNL_E_SPEC, "nbytes is %" PRId64 ": need 0 or more", nbytes);
    rnl_status status = rnl_gpu_enter(device, &gpu, &mode, err);
    if (status != RNL_OK)
        return status;
    /* the driver refuses to allocate 0 bytes */
    status = alloc(gpu, nbytes ? (size_t)nbytes : 1, stream, in_order, &made, err);
    const rnl_status left = rnl_gpu_leave(gpu, mode, status, err);
    if (left == RNL_OK)
        *address = rnl_gpu_pointer(made);
    else if (status == RNL_OK && in_order)
        rnl_gpu_free_in_order(device, rnl_gpu_pointer(made), stream);
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
    rnl_gpu_leave(gpu, mode, RNL_OK, &ignored);
}

/* The per-thread default stream is another one in each thread; the legacy one waits for all of
 * them. */
void rnl_gpu_free_in_order(int device, void *address, void *stream)
{
    rnl_gpu_device *gpu;
    rnl_cu_capture_mode mode;
    rnl_error ignored;
    if (!address || !rnl_gpu_enter_to_free(device, &gpu, &mode))
        return;
    const rnl_cu_address memory = (rnl_cu_address)(uintptr_t)address;
    rnl_cu_stream after = stream == RNL_PER_THREAD_STREAM ? NULL : (rnl_cu_stream)stream;
    rnl_ending *ending = NULL;
    end_all(gpu);
    if (!gpu->results)
        (void)RNL_CU(gpu, &ignored, cuMemFree_v2, memory);
    else if (!end(gpu, memory, after) && (ending = malloc(sizeof *ending))) {
        *ending = (rnl_ending){NULL, memory, after};
        end_later(gpu, ending);
    }
    rnl_gpu_leave(gpu, mode, RNL_OK, &ignored);
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
    rnl_gpu_device *gpu;
    rnl_cu_capture_mode mode;
    if (nbytes <= 0)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &gpu, &mode, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(
        gpu, mode, copy_out(gpu, address, host, (size_t)nbytes, (rnl_cu_stream)stream, err), err);
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
    rnl_gpu_device *gpu;
    rnl_cu_capture_mode mode;
    if (before == after)
        return RNL_OK;
    const rnl_status status = rnl_gpu_enter(device, &gpu, &mode, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(gpu, mode, order(gpu, (rnl_cu_stream)before, (rnl_cu_stream)after, err),
                         err);
}
