/* A call on a GPU: with arrays of the device or of the host, plainly or captured. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

/* ---- no steps: y is zero, the states are copied ---- */

static rnl_status skip(rnl_gpu_device *device, const rnl_gpu_job *job, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = RNL_Y; k < RNL_NUM_ARRAYS && status == RNL_OK; k++) {
        const rnl_gpu_array *const a = &job->arrays[k];
        const void *const from = k == RNL_Y ? NULL : job->arrays[k - RNL_Y].argument;
        if (!a->argument || !a->nbytes || from == a->argument)
            continue;
        if (job->on_host && from)
            memcpy((void *)a->argument, from, a->nbytes);
        else if (job->on_host)
            memset((void *)a->argument, 0, a->nbytes);
        else if (from)
            status = RNL_CU(device, err, cuMemcpyDtoDAsync_v2, rnl_gpu_address(a->argument),
                            rnl_gpu_address(from), a->nbytes, job->stream);
        else
            status = RNL_CU(device, err, cuMemsetD8Async, rnl_gpu_address(a->argument), 0,
                            a->nbytes, job->stream);
    }
    return status;
}

/* ---- the memory of a call ---- */

/* Does array k need memory of the call? Yes: an array of the host, y if the caller passes no y, and
 * a state that the call overwrites, because cuDNN does not document that an output may be an input.
 */
static bool needs_memory(const rnl_gpu_job *job, int k)
{
    const rnl_gpu_array *const a = job->arrays;
    if (!a[k].argument)
        return k == RNL_Y;
    return job->on_host || ((k == RNL_H0 || k == RNL_C0) && a[k].argument == a[k + RNL_Y].argument);
}

/* Set the addresses of the arrays. Arrays that need memory are in `memory` after cuDNN's workspace.
 * Return the size of the workspace and these arrays. */
static size_t lay_out(rnl_gpu_job *job, size_t work_nbytes, rnl_cu_address memory)
{
    size_t used = rnl_gpu_aligned(work_nbytes ? work_nbytes : 1);
    for (int k = 0; k < RNL_NUM_ARRAYS; k++) {
        rnl_gpu_array *const a = &job->arrays[k];
        a->at = rnl_gpu_address(a->argument);
        if (needs_memory(job, k)) {
            a->at = memory + used;
            used += rnl_gpu_aligned(a->nbytes);
        }
    }
    return used;
}

/* Copy the inputs that need memory to the memory of the call. */
static rnl_status copy_inputs(rnl_gpu_device *device, const rnl_gpu_job *job, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = 0; k < RNL_Y && status == RNL_OK; k++) {
        const rnl_gpu_array *const a = &job->arrays[k];
        if (!needs_memory(job, k) || !a->nbytes)
            continue;
        if (job->on_host)
            status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, a->at, a->argument, a->nbytes,
                            job->stream);
        else
            status = RNL_CU(device, err, cuMemcpyDtoDAsync_v2, a->at, rnl_gpu_address(a->argument),
                            a->nbytes, job->stream);
    }
    return status;
}

/* Copy the results to the host. */
static rnl_status copy_results(rnl_gpu_device *device, const rnl_gpu_job *job, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = RNL_Y; k < RNL_NUM_ARRAYS && status == RNL_OK; k++) {
        const rnl_gpu_array *const a = &job->arrays[k];
        if (a->argument && a->nbytes)
            status = RNL_CU(device, err, cuMemcpyDtoHAsync_v2, (void *)a->argument, a->at,
                            a->nbytes, job->stream);
    }
    if (status == RNL_OK) /* copies to pinned memory may still run */
        status = RNL_CU(device, err, cuStreamSynchronize, job->stream);
    return status;
}

static rnl_status forward(const rnl_gpu_rnn *rnn, const rnl_gpu_handle *handle,
                          const rnl_gpu_job *job, rnl_cu_address memory, rnl_error *err)
{
    const rnl_gpu_descriptors *const descriptors = rnn->descriptors;
    void *at[RNL_NUM_ARRAYS];
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        at[k] = rnl_gpu_pointer(job->arrays[k].at);
    return RNL_DNN(rnn->device, err, cudnnRNNForward, handle->cudnn, descriptors->rnn,
                   RNL_CUDNN_FWD_MODE_INFERENCE, NULL, descriptors->x, at[RNL_X], descriptors->y,
                   at[RNL_Y], descriptors->h, at[RNL_H0], at[RNL_HN], descriptors->c, at[RNL_C0],
                   at[RNL_CN], rnn->nbytes, rnl_gpu_pointer(rnn->weights), descriptors->work_nbytes,
                   rnl_gpu_pointer(memory), 0, NULL);
}

/* Copy the initial state of each sequence of length 0 to the final state: cuDNN 9.19 writes zeros.
 * Arrays are (L * D, N, width); the states of neighbouring sequences are copied together. */
static rnl_status keep_states(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job, int from, int to,
                              rnl_error *err)
{
    const rnl_gpu_array *const a = job->arrays;
    const int64_t N = job->sizes.N, rows = rnn->spec.num_layers * rnn->directions;
    const size_t nbytes = a[from].nbytes / (size_t)(rows * N);
    rnl_status status = RNL_OK;
    if (!job->lengths || !a[from].at || !a[to].at)
        return RNL_OK;
    for (int64_t n = 0, end; n < N; n = end + 1) {
        for (end = n; end < N && job->lengths[end] == 0; end++)
            ;
        for (int64_t row = 0; row < rows && end > n && status == RNL_OK; row++) {
            const size_t at = (size_t)(row * N + n) * nbytes;
            status = RNL_CU(rnn->device, err, cuMemcpyDtoDAsync_v2, a[to].at + at, a[from].at + at,
                            (size_t)(end - n) * nbytes, job->stream);
        }
    }
    return status;
}

/* ---- the block: memory of the RNN for a call without a workspace ---- */

/* Make the block large enough. Earlier calls are done with the block. */
static rnl_status take_block(rnl_gpu_rnn *rnn, const rnl_gpu_job *job, size_t nbytes,
                             rnl_error *err)
{
    static const char purpose[] = "the workspace of this call";
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = RNL_OK;
    /* A quarter on top, so that lengths that grow step by step do not free the block each time. */
    size_t reserve = nbytes / 4;
    if (job->capture.active)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, and the RNN's own memory is not the graph's: a workspace "
            "is needed that lives as long as the graph; arrays of a library with memory "
            "for graphs bring one");
    if (rnn->block_nbytes >= nbytes)
        return RNL_OK;
    if (rnn->block)
        status = RNL_CU(device, err, cuMemFree_v2,
                        rnn->block); /* waits for the calls that use the block */
    rnn->block = 0;
    if (status == RNL_OK)
        status = rnl_gpu_memory(device, nbytes + reserve, purpose, &rnn->block, err);
    if (status == RNL_E_NOMEM) {
        reserve = 0;
        status = rnl_gpu_memory(device, nbytes, purpose, &rnn->block, err);
    }
    rnn->block_nbytes = status == RNL_OK ? nbytes + reserve : 0;
    return status;
}

/* ---- a call ---- */

static rnl_status submit(rnl_gpu_rnn *rnn, const rnl_gpu_handle *handle, const rnl_gpu_call *call,
                         rnl_gpu_job *job, rnl_error *err)
{
    const size_t nbytes = lay_out(job, rnn->descriptors->work_nbytes, 0);
    rnl_status status;
    job->waits = !call->workspace || (size_t)call->workspace_nbytes < nbytes;
    if (job->waits && (status = take_block(rnn, job, nbytes, err)))
        return status;
    const rnl_cu_address memory = job->waits ? rnn->block : rnl_gpu_address(call->workspace);
    lay_out(job, rnn->descriptors->work_nbytes, memory);
    /* what a captured call and a later update need is ordered where the graph is launched */
    const bool orders = rnn->updates && !job->capture.active;
    if ((orders &&
         (status = RNL_CU(rnn->device, err, cuStreamWaitEvent, job->stream, rnn->written, 0))) ||
        (status = copy_inputs(rnn->device, job, err)) ||
        (status = forward(rnn, handle, job, memory, err)) ||
        (status = keep_states(rnn, job, RNL_H0, RNL_HN, err)) ||
        (status = keep_states(rnn, job, RNL_C0, RNL_CN, err)))
        return status;
    return orders ? rnl_gpu_order(rnn->device, job->stream, rnn->updates, err) : RNL_OK;
}

static rnl_status take_handle(rnl_gpu_device *device, const rnl_gpu_job *job,
                              rnl_gpu_handle **handle, rnl_error *err)
{
    *handle = job->handle;
    if (job->handle)
        return rnl_gpu_move_handle(device, job->handle, job->stream, &job->capture, err);
    return rnl_gpu_take_handle(device, job->stream, &job->capture, handle, err);
}

/* Describe a job to cuDNN, and submit the job unless call is NULL. */
static rnl_status describe(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_gpu_handle *handle;
    for (;;) {
        const bool fits = rnl_gpu_descriptors_fit_locked(rnn, job);
        rnl_status status = take_handle(device, job, &handle, err);
        if (status != RNL_OK)
            return status;
        if (!fits)
            status = rnl_gpu_descriptors_make_locked(rnn, handle, job, err);
        if (status == RNL_OK && call)
            status = submit(rnn, handle, call, job, err);
        if (!job->handle)
            rnl_gpu_return_handle(device, handle);
        if (status == RNL_E_NOMEM && job->sizes.algo != RNL_CUDNN_RNN_ALGO_STANDARD) {
            job->saves_memory = true; /* of this call alone */
            continue;
        }
        if (status != RNL_E_CUDNN || job->sizes.algo == RNL_CUDNN_RNN_ALGO_STANDARD ||
            err->number / 1000 * 1000 != RNL_CUDNN_STATUS_NOT_SUPPORTED)
            return status;
        rnn->refuses_persist = true; /* use the standard algorithm from this call on */
    }
}

static rnl_status check_captures(rnl_gpu_device *device, rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_capture follower;
    if (job->on_host)
        return RNL_OK;
    rnl_status status = rnl_gpu_get_capture(device, job->stream, &job->capture, err);
    if (status != RNL_OK || !job->has_follower)
        return status;
    status = rnl_gpu_get_capture(device, job->follower, &follower, err);
    if (status == RNL_OK && follower.active != job->capture.active)
        return rnl_fail(err, RNL_E_SPEC,
                        "one of the call's stream and the stream of its arrays is capturing, the "
                        "other is not: make the call in the stream of its arrays");
    return status;
}

static rnl_status run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = check_captures(device, job, err);
    if (status != RNL_OK)
        return status;
    job->waits = true;
    status = job->sizes.T ? describe(rnn, call, job, err) : skip(device, job, err);
    if (status == RNL_OK && job->has_follower && (!job->waits || job->capture.active))
        status = rnl_gpu_order(device, job->stream, job->follower, err);
    if (job->capture.active)
        return status;
    const bool copies = job->on_host && job->sizes.T;
    if (status == RNL_OK && copies)
        status = copy_results(device, job, err);
    if (status != RNL_OK) {
        device->cu->cuStreamSynchronize(job->stream); /* end all use of the caller's arrays */
        return status;
    }
    return job->waits && !copies ? RNL_CU(device, err, cuStreamSynchronize, job->stream) : RNL_OK;
}

/* Add the size of the memory of a call to the maximum *nbytes. */
static rnl_status measure(rnl_gpu_rnn *rnn, rnl_gpu_job *job, size_t *nbytes, rnl_error *err)
{
    if (!job->sizes.T)
        return RNL_OK;
    rnl_status status = check_captures(rnn->device, job, err);
    if (status != RNL_OK || (status = describe(rnn, NULL, job, err)))
        return status;
    const size_t part_nbytes = lay_out(job, rnn->descriptors->work_nbytes, 0);
    *nbytes = part_nbytes > *nbytes ? part_nbytes : *nbytes;
    return RNL_OK;
}

/* ---- a call with more steps than cuDNN describes is made in parts ---- */

/* Return the part of a call that begins with a step; parts after the first continue from hn and cn.
 * lengths: N numbers for the lengths of the part. */
static rnl_gpu_call part_of(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t from,
                            int64_t *lengths)
{
    rnl_gpu_call part = *call;
    const int64_t rows = from * call->N; /* N is 1 if the batch is first */
    const size_t x_nbytes = (size_t)(rows * rnn->spec.input_size) * rnn->unit;
    const size_t y_nbytes = (size_t)(rows * rnn->state_size) * rnn->unit;
    part.T = call->T - from < RNL_CUDNN_MAX_STEPS ? call->T - from : RNL_CUDNN_MAX_STEPS;
    part.x = call->x ? (const char *)call->x + x_nbytes : NULL;
    part.y = call->y ? (char *)call->y + y_nbytes : NULL;
    part.h0 = from ? call->hn : call->h0;
    part.c0 = from ? call->cn : call->c0;
    part.lengths = call->lengths ? lengths : NULL;
    for (int64_t n = 0; call->lengths && n < call->N; n++) {
        const int64_t left = call->lengths[n] - from;
        lengths[n] = left < 0 ? 0 : left < part.T ? left : part.T;
    }
    return part;
}

/* Make a call, or, unless nbytes is NULL, only measure the memory that the call needs. */
static rnl_status run_parts(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                            size_t *nbytes, rnl_error *err)
{
    if (call->T <= RNL_CUDNN_MAX_STEPS)
        return nbytes ? measure(rnn, job, nbytes, err) : run(rnn, call, job, err);
    rnl_status status = RNL_OK;
    int64_t *const lengths = calloc((size_t)call->N + 1, sizeof *lengths);
    if (!lengths)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for the lengths of a call");
    for (int64_t from = 0; from < call->T && status == RNL_OK; from += RNL_CUDNN_MAX_STEPS) {
        const rnl_gpu_call part = part_of(rnn, call, from, lengths);
        if (!(status = rnl_gpu_job_new(rnn, &part, job, err)))
            status = nbytes ? measure(rnn, job, nbytes, err) : run(rnn, &part, job, err);
    }
    free(lengths);
    return status;
}

rnl_status rnl_gpu_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_handle *handle,
                       rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_gpu_job job;
    rnl_status status;
    if ((status = rnl_gpu_job_new(rnn, call, &job, err)) || (status = rnl_gpu_rnn_lock(rnn, err)))
        return status;
    job.handle = handle;
    status = rnl_gpu_enter(rnn->options.device, &in, err);
    if (status == RNL_OK)
        status = rnl_gpu_leave(&in, run_parts(rnn, call, &job, NULL, err));
    pthread_mutex_unlock(&rnn->lock);
    return status;
}

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err)
{
    return rnl_gpu_run(rnn, call, NULL, err);
}

rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t *nbytes,
                                 rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_gpu_job job;
    size_t most = 0;
    rnl_status status = rnl_gpu_job_new(rnn, call, &job, err);
    *nbytes = 0;
    if (status != RNL_OK || job.sizes.T == 0 || (status = rnl_gpu_rnn_lock(rnn, err)))
        return status;
    /* cuDNN is called only if the sizes or lengths of the last call differ */
    if (rnl_gpu_descriptors_fit_locked(rnn, &job))
        most = lay_out(&job, rnn->descriptors->work_nbytes, 0);
    else if ((status = rnl_gpu_enter(rnn->options.device, &in, err)) == RNL_OK)
        status = rnl_gpu_leave(&in, run_parts(rnn, call, &job, &most, err));
    *nbytes = (int64_t)most;
    pthread_mutex_unlock(&rnn->lock);
    return status;
}
