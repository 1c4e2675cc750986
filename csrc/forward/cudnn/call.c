/* One call on a GPU: with arrays of the device or of the host, plainly or captured. */
#define _DEFAULT_SOURCE /* nanosleep; NOLINT(bugprone-reserved-identifier,cert-*) */
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/status.h"
#include "forward/cudnn/clamp.h"
#include "forward/cudnn/rnn.h"

enum { LENGTHS_ON_HOST_ALONE = 8907 }; /* from 8.9.7 on cuDNN reads lengths on the host only */

/* ---- no steps: y is zero, the states are copied ---- */

static rnl_status copy_or_zero(rnl_gpu_device *device, const rnl_gpu_job *job, const void *from,
                               const rnl_gpu_array *to, rnl_error *err)
{
    const rnl_cu_address at = (rnl_cu_address)(uintptr_t)to->given;
    if (!at || !to->nbytes || from == to->given)
        return RNL_OK;
    if (job->on_host && from)
        memcpy((void *)to->given, from, to->nbytes);
    else if (job->on_host)
        memset((void *)to->given, 0, to->nbytes);
    else if (from)
        return RNL_CU(device, err, cuMemcpyDtoDAsync_v2, at, (rnl_cu_address)(uintptr_t)from,
                      to->nbytes, job->stream);
    else
        return RNL_CU(device, err, cuMemsetD8Async, at, 0, to->nbytes, job->stream);
    return RNL_OK;
}

static rnl_status skip(rnl_gpu_device *device, const rnl_gpu_job *job, rnl_error *err)
{
    const rnl_gpu_array *const a = job->arrays;
    rnl_status status = copy_or_zero(device, job, NULL, &a[RNL_Y], err);
    if (status == RNL_OK)
        status = copy_or_zero(device, job, a[RNL_H0].given, &a[RNL_HN], err);
    if (status == RNL_OK)
        status = copy_or_zero(device, job, a[RNL_C0].given, &a[RNL_CN], err);
    return status;
}

/* ---- the memory of a call ---- */

/* An array of the host, y if the caller does not want it, or a state that is overwritten: cuDNN
 * does not document whether it may overwrite its own input. */
static bool needs_place(const rnl_gpu_job *job, int k)
{
    const rnl_gpu_array *const a = job->arrays;
    if (!a[k].given)
        return k == RNL_Y;
    return job->on_host || ((k == RNL_H0 || k == RNL_C0) && a[k].given == a[k + RNL_Y].given);
}

/* Lay out arrays and lengths behind cuDNN's workspace; returns the size of all. */
static size_t lay_out(const rnl_gpu_rnn *rnn, rnl_gpu_job *job, size_t work_nbytes)
{
    size_t used = rnl_gpu_aligned(work_nbytes ? work_nbytes : 1);
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        if (needs_place(job, k)) {
            job->arrays[k].offset = used;
            used += rnl_gpu_aligned(job->arrays[k].nbytes);
        }
    if (job->lengths && rnn->device->used.library->version < LENGTHS_ON_HOST_ALONE) {
        job->lengths_offset = used;
        used += rnl_gpu_aligned((size_t)job->sizes.N * sizeof(int32_t));
    }
    return used;
}

/* Set the addresses of the arrays, and copy to the call's memory what cuDNN reads there. */
static rnl_status bring_in(rnl_gpu_device *device, rnl_gpu_job *job, const rnl_gpu_plan *plan,
                           rnl_cu_address memory, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = 0; k < RNL_NUM_ARRAYS && status == RNL_OK; k++) {
        rnl_gpu_array *const a = &job->arrays[k];
        const rnl_cu_address given = (rnl_cu_address)(uintptr_t)a->given;
        a->at = a->offset ? memory + a->offset : given;
        if (!a->offset || k >= RNL_Y || !a->nbytes)
            continue;
        if (job->on_host)
            status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, a->at, a->given, a->nbytes,
                            job->stream);
        else
            status = RNL_CU(device, err, cuMemcpyDtoDAsync_v2, a->at, given, a->nbytes,
                            job->stream);
    }
    if (status == RNL_OK && job->lengths_offset)
        status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, memory + job->lengths_offset,
                        plan->lengths, (size_t)job->sizes.N * sizeof(int32_t), job->stream);
    return status;
}

enum {
    SPIN_NS = 200000, /* shorter calls do not sleep            */
    SLEEP_NS = 50000,
    POLL_NS = 50000000 /* Ctrl-C is answered within 0.2 s */
};

/* Wait for the work in the stream, and call the poll meanwhile. */
static rnl_status wait_for(rnl_gpu_device *device, rnl_cu_stream stream, const rnl_gpu_call *call,
                           rnl_error *err)
{
    const int64_t since = rnl_now_ns();
    int64_t polled = since;
    for (;;) {
        const rnl_cu_result result = device->cu->cuStreamQuery(stream);
        if (result != (rnl_cu_result)RNL_CUDA_ERROR_NOT_READY)
            return rnl_gpu_cu(device, "cuStreamQuery", result, err);
        const int64_t now = rnl_now_ns();
        if (now - polled >= POLL_NS) {
            if (call->poll(call->poll_arg))
                return rnl_fail(err, RNL_E_INTERRUPTED, "interrupted");
            polled = now;
        }
        if (now - since >= SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* Copy the results to the host. */
static rnl_status bring_back(rnl_gpu_device *device, const rnl_gpu_job *job,
                             const rnl_gpu_call *call, rnl_error *err)
{
    rnl_status status = call->poll ? wait_for(device, job->stream, call, err) : RNL_OK;
    for (int k = RNL_Y; k < RNL_NUM_ARRAYS && status == RNL_OK; k++) {
        const rnl_gpu_array *const a = &job->arrays[k];
        if (a->given && a->nbytes)
            status = RNL_CU(device, err, cuMemcpyDtoHAsync_v2, (void *)a->given, a->at, a->nbytes,
                            job->stream);
    }
    if (status == RNL_OK) /* the caller's memory may be pinned: then the copies only begin above */
        status = RNL_CU(device, err, cuStreamSynchronize, job->stream);
    return status;
}

/* ---- a call ---- */

static rnl_status forward(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_plan *plan,
                          const rnl_gpu_job *job, rnl_cu_address memory, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_cu_address lengths = job->lengths_offset ? memory + job->lengths_offset : 0;
    const rnl_gpu_array *const y = &job->arrays[RNL_Y], *const cn = &job->arrays[RNL_CN];
    void *at[RNL_NUM_ARRAYS];
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        at[k] = rnl_gpu_pointer(job->arrays[k].at);
    rnl_status status = RNL_DNN(
        device, err, cudnnRNNForward, lane->handle, plan->rnn, RNL_CUDNN_FWD_MODE_INFERENCE,
        rnl_gpu_pointer(lengths), plan->x, at[RNL_X], plan->y, at[RNL_Y], plan->h, at[RNL_H0],
        at[RNL_HN], plan->c, at[RNL_C0], at[RNL_CN], rnn->nbytes, rnl_gpu_pointer(rnn->weights),
        plan->work_nbytes, rnl_gpu_pointer(memory), 0, NULL);
    if (status == RNL_OK && job->tail_nbytes)
        status = RNL_CU(device, err, cuMemsetD8Async, y->at + y->nbytes - job->tail_nbytes, 0,
                        job->tail_nbytes, job->stream);
    if (status == RNL_OK && rnn->options.clips && cn->at)
        status = rnl_clamp_run(device, rnn->spec.dtype, cn->at, cn->nbytes / rnn->unit,
                               rnn->options.clip_low, rnn->options.clip_high, job->stream, err);
    return status;
}

static rnl_status run_with(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_plan *plan,
                           const rnl_gpu_call *call, rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_cu_address memory = 0;
    job->stream = lane->stream;
    rnl_status status = rnl_gpu_take_memory(device, lay_out(rnn, job, plan->work_nbytes),
                                            job->stream, &memory, err);
    if (status != RNL_OK)
        return status;
    status = bring_in(device, job, plan, memory, err);
    if (status == RNL_OK)
        status = forward(rnn, lane, plan, job, memory, err);
    if (status == RNL_OK)
        rnl_gpu_sizes_note(rnn, &job->sizes);
    if (status == RNL_OK && job->on_host)
        status = bring_back(device, job, call, err);
    rnl_gpu_give_memory(device, memory, job->stream);
    return status;
}

static rnl_status run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job, rnl_error *err)
{
    rnl_lane *lane;
    rnl_gpu_plan *plan;
    if (job->sizes.T == 0)
        return skip(rnn->device, job, err);
    rnl_status status = rnl_lane_borrow(rnn->device, job->on_host ? RNL_OWN_STREAM : job->stream,
                                        job->capturing, &lane, err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_plan_take(rnn, lane, job, &plan, err);
    if (status == RNL_OK) {
        status = run_with(rnn, lane, plan, call, job, err);
        rnl_gpu_plan_give(rnn, plan, job->capturing);
    }
    rnl_lane_return(rnn->device, lane);
    return status;
}

/* What a capture needs: the first call of its sizes makes cuDNN load kernels, and a copy of lengths
 * from the host would be made again at each launch. */
static rnl_status check_capture(rnl_gpu_rnn *rnn, rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_status status = rnl_gpu_is_captured(device, job->stream, &job->capturing, err);
    if (status != RNL_OK || !job->capturing || job->sizes.T == 0)
        return status;
    if (job->lengths && device->used.library->version < LENGTHS_ON_HOST_ALONE)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, and lengths in a graph need cuDNN 8.9.7 or newer: "
            "omit lengths, or install a newer cuDNN");
    if (!device->pool)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream is capturing, but GPU %d has no memory pools, which a graph "
                        "takes its workspace from: call the RNN outside of captures",
                        device->ordinal);
    if (!rnl_gpu_sizes_ran(rnn, &job->sizes))
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, but no call of these sizes has run on this RNN: make "
            "such a call and wait for it before the capture");
    return RNL_OK;
}

static rnl_status check_and_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                                rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!job->on_host) {
        status = call->located ? RNL_OK : rnl_gpu_check_places(rnn->device, job, err);
        if (status == RNL_OK)
            status = check_capture(rnn, job, err);
    }
    if (status == RNL_OK)
        status = run(rnn, call, job, err);
    if (rnl_algo_gives_way(rnn, job, status, err))
        status = run(rnn, call, job, err);
    return status;
}

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_gpu_job job;
    rnl_status status = rnl_gpu_job_new(rnn, call, &job, err);
    if (status == RNL_OK)
        status = rnl_gpu_enter(rnn->options.device, &in, err);
    if (status != RNL_OK)
        return status;
    return rnl_gpu_leave(&in, check_and_run(rnn, call, &job, err));
}
