/* One call on a GPU: with arrays of the device or of the host, plainly or captured. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/clamp.h"
#include "forward/cudnn/rnn.h"
#include "forward/cudnn/stage.h"

enum { LENGTHS_ON_HOST_ALONE = 8907 }; /* from 8.9.7 on cuDNN reads lengths on the host only */

/* ---- no steps: y is zero, the states are copied ---- */

static rnl_status copy_or_zero(rnl_gpu_device *device, rnl_cu_address from, rnl_cu_address to,
                               size_t nbytes, rnl_cu_stream stream, rnl_error *err)
{
    if (!to || !nbytes || from == to)
        return RNL_OK;
    if (from)
        return RNL_CU(device, err, cuMemcpyDtoDAsync_v2, to, from, nbytes, stream);
    return RNL_CU(device, err, cuMemsetD8Async, to, 0, nbytes, stream);
}

static rnl_status skip_on_device(rnl_gpu_device *device, const rnl_gpu_job *job, rnl_error *err)
{
    rnl_status status = copy_or_zero(device, 0, job->y, job->y_nbytes, job->stream, err);
    if (status == RNL_OK)
        status = copy_or_zero(device, job->h0, job->hn, job->h_nbytes, job->stream, err);
    if (status == RNL_OK)
        status = copy_or_zero(device, job->c0, job->cn, job->c_nbytes, job->stream, err);
    return status;
}

static void copy_or_zero_on_host(const void *from, void *to, size_t nbytes)
{
    if (to && from)
        memmove(to, from, nbytes);
    else if (to)
        memset(to, 0, nbytes);
}

static void skip_on_host(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, const rnl_gpu_job *job)
{
    copy_or_zero_on_host(NULL, call->y, job->y_nbytes);
    copy_or_zero_on_host(call->h0, call->hn, job->h_nbytes);
    if (rnn->spec.cell == RNL_LSTM)
        copy_or_zero_on_host(call->c0, call->cn, job->c_nbytes);
}

/* ---- one call in a lane ---- */

/* Place in the workspace, after cuDNN's part, what the job still needs: copies of states, y,
 * lengths. */
static rnl_status place_scratch(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_plan *plan,
                                rnl_gpu_job *job, rnl_cu_address *lengths, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_cu_address at = lane->workspace->memory + rnl_gpu_aligned(plan->work_nbytes);
    rnl_status status = RNL_OK;
    *lengths = 0;
    if (job->copies_h0) {
        status = copy_or_zero(device, job->h0, at, job->h_nbytes, job->stream, err);
        job->h0 = at;
        at += rnl_gpu_aligned(job->h_nbytes);
    }
    if (status == RNL_OK && job->copies_c0) {
        status = copy_or_zero(device, job->c0, at, job->c_nbytes, job->stream, err);
        job->c0 = at;
        at += rnl_gpu_aligned(job->c_nbytes);
    }
    if (!job->y) {
        job->y = at;
        at += rnl_gpu_aligned(job->y_nbytes);
    }
    if (status == RNL_OK && job->lengths && device->used.library->version < LENGTHS_ON_HOST_ALONE) {
        const rnl_piece piece = {(char *)plan->lengths, (size_t)job->N * sizeof(int32_t), 0};
        status = rnl_stage_in(device, job->stream, at, &piece, 1, err);
        *lengths = at;
    }
    return status;
}

static rnl_status submit(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_plan *plan,
                         const rnl_gpu_job *given, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_gpu_job job = *given;
    rnl_cu_address lengths;
    rnl_status status = place_scratch(rnn, lane, plan, &job, &lengths, err);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnRNNForward, lane->handle,
                         rnn->seats[lane->index].rnn[job.algo][job.padded],
                         RNL_CUDNN_FWD_MODE_INFERENCE, rnl_gpu_pointer(lengths), plan->x,
                         rnl_gpu_pointer(job.x), plan->y, rnl_gpu_pointer(job.y), plan->h,
                         rnl_gpu_pointer(job.h0), rnl_gpu_pointer(job.hn), plan->c,
                         rnl_gpu_pointer(job.c0), rnl_gpu_pointer(job.cn), rnn->nbytes,
                         rnl_gpu_pointer(rnn->weights), plan->work_nbytes,
                         rnl_gpu_pointer(lane->workspace->memory), 0, NULL);
    if (status == RNL_OK && job.tail_nbytes)
        status = RNL_CU(device, err, cuMemsetD8Async, job.y + job.y_nbytes - job.tail_nbytes, 0,
                        job.tail_nbytes, job.stream);
    if (status == RNL_OK && rnn->options.clips && job.cn)
        status = rnl_clamp_run(device, rnn->spec.dtype, job.cn, job.c_nbytes / rnn->unit,
                               rnn->options.clip_low, rnn->options.clip_high, job.stream, err);
    plan->ran |= status == RNL_OK;
    return status;
}

static bool holds(rnl_gpu_rnn *rnn, const rnl_workspace *workspace)
{
    pthread_mutex_lock(&rnn->device->lock);
    const rnl_held *held = rnn->held;
    while (held && held->workspace != workspace)
        held = held->next;
    pthread_mutex_unlock(&rnn->device->lock);
    return held != NULL;
}

/* Note that a graph uses the plan and the lane's workspace from now on. */
static rnl_status give_to_graph(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_plan *plan,
                                rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    plan->captured = lane->workspace->captured = true;
    if (holds(rnn, lane->workspace)) /* no other thread adds it: this one has the lane */
        return RNL_OK;
    rnl_held *const held = malloc(sizeof *held);
    if (!held)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for a capture");
    held->workspace = lane->workspace;
    rnl_workspace_hold(device, lane->workspace);
    pthread_mutex_lock(&device->lock);
    held->next = rnn->held;
    rnn->held = held;
    pthread_mutex_unlock(&device->lock);
    return RNL_OK;
}

static rnl_status run_captured(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                               rnl_error *err)
{
    rnl_gpu_plan *plan;
    rnl_status status = rnl_gpu_plan_get(rnn, lane, job, &plan, err);
    if (status == RNL_OK)
        status = rnl_lane_begin(rnn->device, lane, job->stream, true, err);
    if (status == RNL_OK)
        status = give_to_graph(rnn, lane, plan, err);
    if (status == RNL_OK)
        status = submit(rnn, lane, plan, job, err);
    return status;
}

static rnl_status prepare(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                          rnl_gpu_plan **plan, rnl_error *err)
{
    rnl_status status = rnl_gpu_plan_get(rnn, lane, job, plan, err);
    if (status == RNL_OK)
        status = rnl_lane_workspace(
            rnn->device, lane, rnl_gpu_aligned((*plan)->work_nbytes) + job->scratch_nbytes, err);
    if (status == RNL_OK)
        status = rnl_lane_begin(rnn->device, lane, job->stream, false, err);
    return status;
}

static rnl_status run_plainly(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                              rnl_error *err)
{
    rnl_gpu_plan *plan;
    rnl_status status = prepare(rnn, lane, job, &plan, err);
    if (status != RNL_OK)
        return status;
    status = submit(rnn, lane, plan, job, err);
    return rnl_lane_end(rnn->device, lane, status, err);
}

/* ---- arrays of the device ---- */

static rnl_status check_arrays(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                               rnl_error *err)
{
    const bool has_c = rnn->spec.cell == RNL_LSTM;
    const struct {
        const char *name;
        const void *array;
        size_t nbytes;
        rnl_cu_address *at;
    } arrays[] = {
        {"x", call->x, job->x_nbytes, &job->x},
        {"h_0", call->h0, job->h_nbytes, &job->h0},
        {"c_0", has_c ? call->c0 : NULL, job->c_nbytes, &job->c0},
        {"y", call->y, job->y_nbytes, &job->y},
        {"h_n", call->hn, job->h_nbytes, &job->hn},
        {"c_n", has_c ? call->cn : NULL, job->c_nbytes, &job->cn},
    };
    rnl_status status = RNL_OK;
    for (size_t k = 0; status == RNL_OK && k < sizeof arrays / sizeof arrays[0]; k++)
        if (arrays[k].nbytes) {
            status = rnl_gpu_check_array(rnn->device, arrays[k].name, arrays[k].array, err);
            *arrays[k].at = (rnl_cu_address)(uintptr_t)arrays[k].array;
        }
    return status;
}

static rnl_status check_capture(rnl_gpu_rnn *rnn, rnl_gpu_job *job, rnl_error *err)
{
    const rnl_status status = rnl_gpu_is_captured(rnn->device, job->stream, &job->capturing, err);
    if (status != RNL_OK)
        return status;
    if (job->capturing && job->lengths &&
        rnn->device->used.library->version < LENGTHS_ON_HOST_ALONE)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, and lengths in a graph need cuDNN 8.9.7 or newer: "
            "omit lengths, or install a newer cuDNN");
    return RNL_OK;
}

typedef struct wanted {
    const rnl_gpu_rnn *rnn;
    const rnl_gpu_job *job;
} wanted;

static bool has_run(const rnl_lane *lane, void *arg)
{
    const wanted *const want = arg;
    return rnl_gpu_plan_ran(want->rnn, lane, want->job);
}

static rnl_status run_on_device(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                                rnl_error *err)
{
    wanted want = {rnn, job};
    rnl_lane *lane;
    job->stream = (rnl_cu_stream)call->stream;
    rnl_status status = check_arrays(rnn, call, job, err);
    if (status == RNL_OK)
        status = check_capture(rnn, job, err);
    if (status != RNL_OK)
        return status;
    if (job->T == 0)
        return skip_on_device(rnn->device, job, err);
    status = rnl_lane_borrow(rnn->device, job->stream, job->capturing ? has_run : NULL, &want,
                             &lane, err);
    if (status != RNL_OK)
        return status;
    status = job->capturing ? run_captured(rnn, lane, job, err) : run_plainly(rnn, lane, job, err);
    rnl_lane_return(rnn->device, lane);
    return status;
}

/* ---- arrays of the host ---- */

/* The arrays to copy in and out, each kind in one block of the device. */
typedef struct traffic {
    rnl_piece in[3], out[3];
    int num_in, num_out;
    size_t in_nbytes, out_nbytes;
} traffic;

static void plan_traffic(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, const rnl_gpu_job *job,
                         traffic *t)
{
    const bool has_c = rnn->spec.cell == RNL_LSTM;
    memset(t, 0, sizeof *t);
    rnl_piece_add(t->in, &t->num_in, &t->in_nbytes, call->x, job->x_nbytes);
    if (call->h0)
        rnl_piece_add(t->in, &t->num_in, &t->in_nbytes, call->h0, job->h_nbytes);
    if (call->c0 && has_c)
        rnl_piece_add(t->in, &t->num_in, &t->in_nbytes, call->c0, job->c_nbytes);
    if (call->y)
        rnl_piece_add(t->out, &t->num_out, &t->out_nbytes, call->y, job->y_nbytes);
    if (call->hn)
        rnl_piece_add(t->out, &t->num_out, &t->out_nbytes, call->hn, job->h_nbytes);
    if (call->cn && has_c)
        rnl_piece_add(t->out, &t->num_out, &t->out_nbytes, call->cn, job->c_nbytes);
}

static rnl_cu_address address_of(const rnl_piece *pieces, int n, const void *host,
                                 rnl_cu_address base)
{
    for (int k = 0; host && k < n; k++)
        if (pieces[k].host == host)
            return base + pieces[k].at;
    return 0;
}

/* The addresses of the call's arrays in the lane's room. */
static void place(const rnl_gpu_call *call, const traffic *t, rnl_cu_address in, rnl_cu_address out,
                  rnl_gpu_job *job)
{
    job->x = in;
    job->h0 = address_of(t->in, t->num_in, call->h0, in);
    job->c0 = address_of(t->in, t->num_in, call->c0, in);
    job->y = address_of(t->out, t->num_out, call->y, out);
    job->hn = address_of(t->out, t->num_out, call->hn, out);
    job->cn = address_of(t->out, t->num_out, call->cn, out);
}

static rnl_status run_staged(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_call *call,
                             rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_asked asked = {call->poll, call->poll_arg};
    rnl_gpu_plan *plan;
    traffic t;
    plan_traffic(rnn, call, job, &t);
    job->stream = lane->own;
    rnl_status status = rnl_room_grow(device, &lane->room,
                                      rnl_gpu_aligned(t.in_nbytes) + t.out_nbytes, "arrays", err);
    if (status == RNL_OK)
        status = prepare(rnn, lane, job, &plan, err);
    if (status != RNL_OK)
        return status;
    const rnl_cu_address in = lane->room.memory, out = in + rnl_gpu_aligned(t.in_nbytes);
    place(call, &t, in, out, job);
    status = rnl_stage_in(device, job->stream, in, t.in, t.num_in, err);
    if (status == RNL_OK)
        status = submit(rnn, lane, plan, job, err);
    if (status == RNL_OK)
        status = rnl_stage_out(device, lane, job->stream, out, t.out, t.num_out, asked, err);
    status = rnl_lane_end(device, lane, status, err);
    if (status == RNL_OK)
        rnl_lane_finished(lane);
    return status;
}

static rnl_status run_on_host(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                              rnl_error *err)
{
    rnl_lane *lane;
    if (job->T == 0) {
        skip_on_host(rnn, call, job);
        return RNL_OK;
    }
    rnl_status status = rnl_lane_borrow(rnn->device, RNL_OWN_STREAM, NULL, NULL, &lane, err);
    if (status != RNL_OK)
        return status;
    status = run_staged(rnn, lane, call, job, err);
    rnl_lane_return(rnn->device, lane);
    return status;
}

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err)
{
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode;
    rnl_gpu_job job;
    rnl_status status = rnl_gpu_job_new(rnn, call, &job, err);
    if (status == RNL_OK)
        status = rnl_gpu_enter(rnn->options.device, &device, &mode, err);
    if (status != RNL_OK)
        return status;
    rnl_status (*const run)(rnl_gpu_rnn *, const rnl_gpu_call *, rnl_gpu_job *,
                            rnl_error *) = call->on_host ? run_on_host : run_on_device;
    status = run(rnn, call, &job, err);
    if (rnl_algo_gives_way(rnn, &job, status, err))
        status = run(rnn, call, &job, err);
    return rnl_gpu_leave(device, mode, status, err);
}
