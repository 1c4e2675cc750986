/* One call on a GPU: with arrays of the device or of the host, plainly or captured. */
#define _DEFAULT_SOURCE /* nanosleep; NOLINT(bugprone-reserved-identifier,cert-*) */
#include <string.h>
#include <time.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"
#include "system/system.h"

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

/* Lay out arrays behind cuDNN's workspace; returns the size of all. */
static size_t lay_out(rnl_gpu_job *job, size_t work_nbytes)
{
    size_t used = rnl_gpu_aligned(work_nbytes ? work_nbytes : 1);
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        if (needs_place(job, k)) {
            job->arrays[k].offset = used;
            used += rnl_gpu_aligned(job->arrays[k].nbytes);
        }
    return used;
}

/* Set the addresses of the arrays, and copy to the call's memory what cuDNN reads there. */
static rnl_status bring_in(rnl_gpu_device *device, rnl_gpu_job *job, rnl_cu_address memory,
                           rnl_error *err)
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

static rnl_status forward(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_plan *plan,
                          const rnl_gpu_job *job, rnl_cu_address memory, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_gpu_array *const y = &job->arrays[RNL_Y];
    void *at[RNL_NUM_ARRAYS];
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        at[k] = rnl_gpu_pointer(job->arrays[k].at);
    rnl_status status = RNL_DNN(device, err, cudnnRNNForward, lane->handle, plan->rnn,
                                RNL_CUDNN_FWD_MODE_INFERENCE, NULL, plan->x, at[RNL_X], plan->y,
                                at[RNL_Y], plan->h, at[RNL_H0], at[RNL_HN], plan->c, at[RNL_C0],
                                at[RNL_CN], rnn->nbytes, rnl_gpu_pointer(rnn->weights),
                                plan->work_nbytes, rnl_gpu_pointer(memory), 0, NULL);
    if (status == RNL_OK && job->tail_nbytes)
        status = RNL_CU(device, err, cuMemsetD8Async, y->at + y->nbytes - job->tail_nbytes, 0,
                        job->tail_nbytes, job->stream);
    return status;
}

/* ---- memory for a call that brings none: one block of the RNN, in the order of its calls ---- */

static rnl_status grow_block(rnl_gpu_rnn *rnn, size_t nbytes, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    /* More than needed, so that lengths that grow step by step do not free each time. */
    const size_t more = nbytes / 4;
    rnl_status status = RNL_OK;
    if (rnn->block)
        status = RNL_CU(device, err, cuMemFree_v2, rnn->block); /* waits for its calls */
    rnn->block = 0;
    if (status == RNL_OK)
        status = rnl_gpu_memory(device, nbytes + more, "the workspace of this call", &rnn->block,
                                err);
    rnn->block_nbytes = status == RNL_OK ? nbytes + more : 0;
    return status;
}

/* Lock the block and order the stream after its last use. */
static rnl_status take_block(rnl_gpu_rnn *rnn, const rnl_gpu_job *job, size_t nbytes,
                             rnl_cu_address *memory, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = RNL_OK;
    if (job->capturing)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, and the RNN's own memory is not the graph's: a workspace "
            "is needed that lives as long as the graph; arrays of a library with memory "
            "for graphs bring one");
    pthread_mutex_lock(&rnn->block_lock);
    if (rnn->block_nbytes < nbytes)
        status = grow_block(rnn, nbytes, err);
    else if (rnn->block_used)
        status = RNL_CU(device, err, cuStreamWaitEvent, job->stream, rnn->block_used, 0);
    if (status == RNL_OK && !rnn->block_used)
        status = RNL_CU(device, err, cuEventCreate, &rnn->block_used, RNL_CU_EVENT_DISABLE_TIMING);
    if (status != RNL_OK)
        pthread_mutex_unlock(&rnn->block_lock);
    *memory = rnn->block;
    return status;
}

/* Note the use of the block, after a failure too, because some of the work may have begun. */
static void give_block(rnl_gpu_rnn *rnn, const rnl_gpu_job *job)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_error ignored;
    if (RNL_CU(device, &ignored, cuEventRecord, rnn->block_used, job->stream) != RNL_OK)
        (void)RNL_CU(device, &ignored, cuStreamSynchronize, job->stream);
    pthread_mutex_unlock(&rnn->block_lock);
}

/* ---- a call ---- */

static rnl_status run_with(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_plan *plan,
                           const rnl_gpu_call *call, rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const size_t nbytes = lay_out(job, plan->work_nbytes);
    const bool brings = call->workspace && nbytes <= (size_t)call->workspace_nbytes;
    rnl_cu_address memory = (rnl_cu_address)(uintptr_t)call->workspace;
    job->stream = lane->stream;
    rnl_status status = brings ? RNL_OK : take_block(rnn, job, nbytes, &memory, err);
    if (status != RNL_OK)
        return status;
    status = bring_in(device, job, memory, err);
    if (status == RNL_OK)
        status = forward(rnn, lane, plan, job, memory, err);
    if (status == RNL_OK && job->on_host)
        status = bring_back(device, job, call, err);
    if (!brings)
        give_block(rnn, job);
    return status;
}

/* Borrow what a call needs, and describe it; then either run it or, if work_nbytes is given, only
 * measure its workspace. */
static rnl_status describe_and_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                                   size_t *work_nbytes, rnl_error *err)
{
    rnl_lane *lane;
    rnl_gpu_plan *plan = NULL;
    rnl_status status = rnl_lane_borrow(rnn->device, job->on_host ? RNL_OWN_STREAM : job->stream,
                                        job->capturing, &lane, err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_plan_take(rnn, lane, job, &plan, err);
    if (status == RNL_OK && work_nbytes)
        *work_nbytes = plan->work_nbytes;
    else if (status == RNL_OK)
        status = run_with(rnn, lane, plan, call, job, err);
    if (plan)
        rnl_gpu_plan_give(rnn, plan, job->capturing && !work_nbytes);
    rnl_lane_return(rnn->device, lane);
    return status;
}

static rnl_status check_and_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                                size_t *work_nbytes, rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!job->on_host)
        status = rnl_gpu_is_captured(rnn->device, job->stream, &job->capturing, err);
    if (status != RNL_OK)
        return status;
    if (job->sizes.T == 0)
        return skip(rnn->device, job, err);
    status = describe_and_run(rnn, call, job, work_nbytes, err);
    if (rnl_algo_gives_way(rnn, job, status, err))
        status = describe_and_run(rnn, call, job, work_nbytes, err);
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
    return rnl_gpu_leave(&in, check_and_run(rnn, call, &job, NULL, err));
}

rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t *nbytes,
                                 rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_gpu_job job;
    size_t work_nbytes = 0;
    rnl_status status = rnl_gpu_job_new(rnn, call, &job, err);
    *nbytes = 0;
    if (status != RNL_OK || job.sizes.T == 0)
        return status;
    if (!rnl_gpu_plan_knows(rnn, &job, &work_nbytes)) {
        status = rnl_gpu_enter(rnn->options.device, &in, err);
        if (status == RNL_OK)
            status = rnl_gpu_leave(&in, check_and_run(rnn, call, &job, &work_nbytes, err));
    }
    if (status == RNL_OK)
        *nbytes = (int64_t)lay_out(&job, work_nbytes);
    return status;
}
