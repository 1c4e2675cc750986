/* cuDNN's descriptors of an RNN and of the arrays of its calls, kept for later calls. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

enum { MAX_PLANS = 64 };

static const rnl_cudnn_cell CELLS[] = {
    [RNL_LSTM] = RNL_CUDNN_LSTM,
    [RNL_GRU] = RNL_CUDNN_GRU,
    [RNL_RNN_TANH] = RNL_CUDNN_RNN_TANH,
    [RNL_RNN_RELU] = RNL_CUDNN_RNN_RELU,
};
static const rnl_cudnn_bias BIASES[] = {
    [RNL_BIAS_DOUBLE] = RNL_CUDNN_RNN_DOUBLE_BIAS,
    [RNL_BIAS_INPUT] = RNL_CUDNN_RNN_SINGLE_INP_BIAS,
    [RNL_BIAS_RECURRENT] = RNL_CUDNN_RNN_SINGLE_REC_BIAS,
    [RNL_BIAS_NONE] = RNL_CUDNN_RNN_NO_BIAS,
};
static const rnl_cudnn_algo ALGOS[] = {
    [RNL_GPU_STANDARD] = RNL_CUDNN_RNN_ALGO_STANDARD,
    [RNL_GPU_PERSIST_STATIC] = RNL_CUDNN_RNN_ALGO_PERSIST_STATIC,
    [RNL_GPU_PERSIST_SMALL] = RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
};

/* Sums of the narrow types are in float32. FMA keeps the full precision of float32. */
static rnl_cudnn_math math_of(const rnl_gpu_rnn *rnn)
{
    if (rnn->spec.dtype == RNL_FLOAT16 || rnn->spec.dtype == RNL_BFLOAT16)
        return RNL_CUDNN_TENSOR_OP_MATH;
    return rnn->options.math == RNL_GPU_MATH_TF32 ? RNL_CUDNN_DEFAULT_MATH : RNL_CUDNN_FMA_MATH;
}

static rnl_status set_rnn(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_cudnn_rnn made, rnl_gpu_algo algo,
                          bool padded, rnl_error *err)
{
    const rnl_spec *s = &rnn->spec;
    const rnl_status status = RNL_DNN(
        rnn->device, err, cudnnSetRNNDescriptor_v8, made, ALGOS[algo], CELLS[s->cell],
        BIASES[s->bias], s->bidirectional ? RNL_CUDNN_BIDIRECTIONAL : RNL_CUDNN_UNIDIRECTIONAL,
        s->skip_input ? RNL_CUDNN_SKIP_INPUT : RNL_CUDNN_LINEAR_INPUT, rnn->type,
        rnn->type == RNL_CUDNN_DATA_DOUBLE ? RNL_CUDNN_DATA_DOUBLE : RNL_CUDNN_DATA_FLOAT,
        math_of(rnn), (int32_t)s->input_size, (int32_t)s->hidden_size, (int32_t)rnn->state_size,
        (int32_t)s->num_layers, lane->dropout,
        padded ? RNL_CUDNN_RNN_PADDED_IO_ENABLED : RNL_CUDNN_RNN_PADDED_IO_DISABLED);
    if (status != RNL_OK || !rnn->options.clips)
        return status;
    const double low = rnn->options.clip_low, high = rnn->options.clip_high;
    if (rnn->device->dnn->cudnnRNNSetClip_v9) /* last: setting the descriptor removes a clip */
        return RNL_DNN(rnn->device, err, cudnnRNNSetClip_v9, made, RNL_CUDNN_RNN_CLIP_MINMAX, low,
                       high);
    return RNL_DNN(rnn->device, err, cudnnRNNSetClip_v8, made, RNL_CUDNN_RNN_CLIP_MINMAX,
                   RNL_CUDNN_PROPAGATE_NAN, low, high);
}

rnl_status rnl_seat_describe(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_algo algo, bool padded,
                             rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_cudnn_rnn *const seat = &rnn->seats[lane->index].rnn[algo][padded], made = NULL;
    if (*seat)
        return RNL_OK;
    rnl_status status = RNL_DNN(device, err, cudnnCreateRNNDescriptor, &made);
    if (status != RNL_OK)
        return status;
    status = set_rnn(rnn, lane, made, algo, padded, err);
    if (status == RNL_OK)
        *seat = made;
    else
        device->dnn->cudnnDestroyRNNDescriptor(made);
    return status;
}

/* ---- one shape ---- */

static void plan_free(rnl_gpu_device *device, rnl_gpu_plan *plan, bool works)
{
    const rnl_cudnn_table *const call = device->dnn;
    if (works && plan->x)
        call->cudnnDestroyRNNDataDescriptor(plan->x);
    if (works && plan->y)
        call->cudnnDestroyRNNDataDescriptor(plan->y);
    if (works && plan->h)
        call->cudnnDestroyTensorDescriptor(plan->h);
    if (works && plan->c)
        call->cudnnDestroyTensorDescriptor(plan->c);
    free(plan->lengths);
    free(plan);
}

void rnl_seat_clear(rnl_gpu_rnn *rnn, int index, bool works)
{
    rnl_seat *const seat = &rnn->seats[index];
    while (seat->plans) {
        rnl_gpu_plan *const first = seat->plans;
        seat->plans = first->next;
        plan_free(rnn->device, first, works);
    }
    for (int k = 0; works && k < 2 * RNL_NUM_GPU_ALGOS; k++)
        if (seat->rnn[k / 2][k % 2])
            rnn->device->dnn->cudnnDestroyRNNDescriptor(seat->rnn[k / 2][k % 2]);
    memset(seat, 0, sizeof *seat);
}

static int64_t length_of(const rnl_gpu_job *job, int64_t n)
{
    return job->lengths ? job->lengths[n] : job->T;
}

static bool has_lengths(const rnl_gpu_plan *plan, const rnl_gpu_job *job)
{
    if (!plan->described)
        return false;
    for (int64_t n = 0; n < plan->N; n++)
        if (plan->lengths[n] != length_of(job, n))
            return false;
    return true;
}

static bool has_sizes(const rnl_gpu_plan *plan, const rnl_gpu_job *job)
{
    return plan->T == job->T && plan->N == job->N && plan->batch_first == job->batch_first &&
           plan->padded == job->padded && plan->algo == job->algo;
}

/* Describe x and y. Always with a fill: without one, cuDNN does not write y past the end. */
static rnl_status describe_lengths(rnl_gpu_rnn *rnn, rnl_gpu_plan *plan, const rnl_gpu_job *job,
                                   rnl_error *err)
{
    char zero[8] = {0}; /* of any dtype */
    const int T = (int)plan->T, N = (int)plan->N;
    const rnl_cudnn_data_layout layout = plan->batch_first
                                             ? RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                             : RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    plan->described = false;
    for (int64_t n = 0; n < plan->N; n++)
        plan->lengths[n] = (int32_t)length_of(job, n);
    rnl_status status = RNL_DNN(rnn->device, err, cudnnSetRNNDataDescriptor, plan->x, rnn->type,
                                layout, T, N, (int)rnn->spec.input_size, plan->lengths, zero);
    if (status == RNL_OK)
        status = RNL_DNN(rnn->device, err, cudnnSetRNNDataDescriptor, plan->y, rnn->type, layout, T,
                         N, (int)(rnn->directions * rnn->state_size), plan->lengths, zero);
    plan->described = status == RNL_OK;
    return status;
}

static rnl_status describe_state(rnl_gpu_rnn *rnn, rnl_cudnn_tensor *made, int64_t N, int64_t width,
                                 rnl_error *err)
{
    const int shape[3] = {(int)(rnn->spec.num_layers * rnn->directions), (int)N, (int)width};
    const int strides[3] = {(int)(N * width), (int)width, 1};
    const rnl_status status = RNL_DNN(rnn->device, err, cudnnCreateTensorDescriptor, made);
    if (status != RNL_OK)
        return status;
    return RNL_DNN(rnn->device, err, cudnnSetTensorNdDescriptor, *made, rnn->type, 3, shape,
                   strides);
}

static rnl_status describe_all(rnl_gpu_rnn *rnn, rnl_gpu_plan *plan, const rnl_gpu_job *job,
                               rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &plan->x);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &plan->y);
    if (status == RNL_OK)
        status = describe_lengths(rnn, plan, job, err);
    if (status == RNL_OK)
        status = describe_state(rnn, &plan->h, plan->N, rnn->state_size, err);
    if (status == RNL_OK && rnn->spec.cell == RNL_LSTM)
        status = describe_state(rnn, &plan->c, plan->N, rnn->spec.hidden_size, err);
    return status;
}

/* Ask for the workspace's size. Shorter lengths never need more. */
static rnl_status ask_workspace(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_plan *plan,
                                rnl_error *err)
{
    size_t reserve = 0; /* none for inference */
    return RNL_DNN(rnn->device, err, cudnnGetRNNTempSpaceSizes, lane->handle,
                   rnn->seats[lane->index].rnn[plan->algo][plan->padded],
                   RNL_CUDNN_FWD_MODE_INFERENCE, plan->x, &plan->work_nbytes, &reserve);
}

/* like: a plan of the same sizes; NULL: none */
static rnl_status plan_new(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                           const rnl_gpu_plan *like, rnl_gpu_plan **plan, rnl_error *err)
{
    rnl_gpu_plan *const made = calloc(1, sizeof *made);
    if (made)
        made->lengths = malloc((size_t)job->N * sizeof *made->lengths);
    if (!made || !made->lengths) {
        free(made);
        rnl_fail(err, RNL_E_NOMEM, "no host memory for the description of a call");
        return RNL_E_NOMEM;
    }
    made->T = job->T;
    made->N = job->N;
    made->algo = job->algo;
    made->batch_first = job->batch_first;
    made->padded = job->padded;
    rnl_status status = describe_all(rnn, made, job, err);
    if (status == RNL_OK && like) {
        made->work_nbytes = like->work_nbytes;
        made->ran = like->ran;
    } else if (status == RNL_OK) {
        status = ask_workspace(rnn, lane, made, err);
    }
    if (status == RNL_OK)
        *plan = made;
    else
        plan_free(rnn->device, made, true);
    return status;
}

/* ---- the plans of a seat ---- */

/* Free the plan that was used longest ago and is not used by a graph. */
static void forget_one(rnl_gpu_rnn *rnn, rnl_seat *seat)
{
    rnl_gpu_plan **oldest = NULL;
    for (rnl_gpu_plan **at = &seat->plans; *at; at = &(*at)->next)
        if (!(*at)->captured)
            oldest = at;
    if (!oldest)
        return;
    rnl_gpu_plan *const plan = *oldest;
    *oldest = plan->next;
    seat->num_plans--;
    plan_free(rnn->device, plan, true);
}

static void put_first(rnl_seat *seat, rnl_gpu_plan *plan)
{
    plan->next = seat->plans;
    seat->plans = plan;
}

/* Take out a plan of these sizes; one that a graph uses needs these lengths too. */
static rnl_gpu_plan *take(rnl_seat *seat, const rnl_gpu_job *job, const rnl_gpu_plan **like)
{
    *like = NULL;
    for (rnl_gpu_plan **at = &seat->plans; *at; at = &(*at)->next) {
        rnl_gpu_plan *const plan = *at;
        if (!has_sizes(plan, job))
            continue;
        if (!plan->captured || has_lengths(plan, job)) {
            *at = plan->next;
            return plan;
        }
        *like = plan;
    }
    return NULL;
}

rnl_status rnl_gpu_plan_get(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                            rnl_gpu_plan **plan, rnl_error *err)
{
    rnl_seat *const seat = &rnn->seats[lane->index];
    const rnl_gpu_plan *like;
    rnl_status status = rnl_seat_describe(rnn, lane, job->algo, job->padded, err);
    if (status != RNL_OK)
        return status;
    *plan = take(seat, job, &like);
    if (*plan) {
        put_first(seat, *plan);
        return has_lengths(*plan, job) ? RNL_OK : describe_lengths(rnn, *plan, job, err);
    }
    if ((status = plan_new(rnn, lane, job, like, plan, err)) != RNL_OK)
        return status;
    if (seat->num_plans >= MAX_PLANS)
        forget_one(rnn, seat);
    seat->num_plans++;
    put_first(seat, *plan);
    return RNL_OK;
}

bool rnl_gpu_plan_ran(const rnl_gpu_rnn *rnn, const rnl_lane *lane, const rnl_gpu_job *job)
{
    const rnl_gpu_plan *plan = rnn->seats[lane->index].plans;
    while (plan && !(has_sizes(plan, job) && plan->ran))
        plan = plan->next;
    return plan && lane->workspace &&
           lane->workspace->nbytes >= rnl_gpu_aligned(plan->work_nbytes) + job->scratch_nbytes;
}
