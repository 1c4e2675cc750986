/* cuDNN's descriptors of an RNN and of the arrays of a call. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

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

/* Sums of the narrow types are in float32. FMA keeps the full precision of float32. */
static rnl_cudnn_math math_of(const rnl_gpu_rnn *rnn)
{
    if (rnn->spec.dtype == RNL_FLOAT16 || rnn->spec.dtype == RNL_BFLOAT16)
        return RNL_CUDNN_TENSOR_OP_MATH;
    return rnn->options.math == RNL_GPU_MATH_TF32 ? RNL_CUDNN_DEFAULT_MATH : RNL_CUDNN_FMA_MATH;
}

/* The algorithms that keep the weights in registers, chosen as PyTorch does: get_algo() in
 * aten/src/ATen/native/cudnn/RNN.cpp. */
static bool is_small(const rnl_gpu_rnn *rnn)
{
    const int64_t most = rnl_cell_facts_of(rnn->spec.cell)->gates[1] ? 192 : 384;
    return rnn->device->used.capability >= 60 && rnn->spec.hidden_size <= most;
}

/* Several multiprocessors share the weights. On Volta PyTorch has another rule, which we leave. */
static bool is_shared(const rnl_gpu_rnn *rnn, int64_t N)
{
    const rnl_spec *const spec = &rnn->spec;
    const rnl_cudnn_in_use *const gpu = &rnn->device->used;
    const bool suits_gpu = gpu->capability >= 80 && gpu->capability % 10 != 6 &&
                           gpu->multiprocessors >= 98;
    const int64_t H = spec->hidden_size;
    return suits_gpu && spec->dtype == RNL_FLOAT16 && spec->num_layers == 1 &&
           !spec->bidirectional && H <= 1024 && H % 128 == 0 && spec->input_size % 128 == 0 &&
           N % 8 == 0 && N <= 128 && spec->cell != RNL_GRU &&
           (spec->cell == RNL_LSTM || N < 96 || H < 896);
}

void rnl_gpu_choose_algo(const rnl_gpu_rnn *rnn, rnl_gpu_job *job)
{
    const rnl_spec *const spec = &rnn->spec;
    const bool may_persist = spec->bias == RNL_BIAS_DOUBLE && !spec->proj_size &&
                             spec->dtype != RNL_FLOAT64 && !job->lengths && !rnn->refuses_persist &&
                             rnn->options.algo == RNL_GPU_AUTO;
    job->sizes.algo = !may_persist                   ? RNL_CUDNN_RNN_ALGO_STANDARD
                      : is_small(rnn)                ? RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H
                      : is_shared(rnn, job->sizes.N) ? RNL_CUDNN_RNN_ALGO_PERSIST_STATIC
                                                     : RNL_CUDNN_RNN_ALGO_STANDARD;
}

static rnl_status describe_rnn(rnl_gpu_rnn *rnn, rnl_gpu_plan *plan, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_spec *s = &rnn->spec;
    rnl_status status = RNL_DNN(device, err, cudnnCreateRNNDescriptor, &plan->rnn);
    if (status == RNL_OK)
        status = RNL_DNN(
            device, err, cudnnSetRNNDescriptor_v8, plan->rnn, plan->sizes.algo, CELLS[s->cell],
            BIASES[s->bias], s->bidirectional ? RNL_CUDNN_BIDIRECTIONAL : RNL_CUDNN_UNIDIRECTIONAL,
            s->skip_input ? RNL_CUDNN_SKIP_INPUT : RNL_CUDNN_LINEAR_INPUT, rnn->type,
            rnn->type == RNL_CUDNN_DATA_DOUBLE ? RNL_CUDNN_DATA_DOUBLE : RNL_CUDNN_DATA_FLOAT,
            math_of(rnn), (int32_t)s->input_size, (int32_t)s->hidden_size, (int32_t)rnn->state_size,
            (int32_t)s->num_layers, device->dropout,
            plan->sizes.padded ? RNL_CUDNN_RNN_PADDED_IO_ENABLED
                               : RNL_CUDNN_RNN_PADDED_IO_DISABLED);
    return status;
}

static int64_t length_of(const rnl_gpu_job *job, int64_t n)
{
    return job->lengths ? job->lengths[n] : job->sizes.T;
}

static bool has_sizes(const rnl_gpu_plan *plan, const rnl_gpu_sizes *b)
{
    const rnl_gpu_sizes *const a = &plan->sizes;
    return a->T == b->T && a->N == b->N && a->algo == b->algo && a->batch_first == b->batch_first &&
           a->padded == b->padded;
}

bool rnl_gpu_plan_fits(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job)
{
    if (!rnn->plan || !has_sizes(rnn->plan, &job->sizes))
        return false;
    for (int64_t n = 0; n < job->sizes.N; n++)
        if (rnn->plan->lengths[n] != length_of(job, n))
            return false;
    return true;
}

/* Describe x and y, and ask for the workspace's size, which grows with the lengths. Always with a
 * fill: without one, cuDNN does not write y past the end. */
static rnl_status describe_lengths(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle, rnl_gpu_plan *plan,
                                   const rnl_gpu_job *job, rnl_error *err)
{
    char zero[8] = {0}; /* of any dtype */
    size_t reserve = 0; /* none for inference */
    const int T = (int)plan->sizes.T, N = (int)plan->sizes.N;
    const rnl_cudnn_data_layout layout = plan->sizes.batch_first
                                             ? RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                             : RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    for (int64_t n = 0; n < N; n++)
        plan->lengths[n] = (int32_t)length_of(job, n);
    rnl_status status = RNL_DNN(rnn->device, err, cudnnSetRNNDataDescriptor, plan->x, rnn->type,
                                layout, T, N, (int)rnn->spec.input_size, plan->lengths, zero);
    if (status == RNL_OK)
        status = RNL_DNN(rnn->device, err, cudnnSetRNNDataDescriptor, plan->y, rnn->type, layout, T,
                         N, (int)(rnn->directions * rnn->state_size), plan->lengths, zero);
    if (status == RNL_OK)
        status = RNL_DNN(rnn->device, err, cudnnGetRNNTempSpaceSizes, handle->cudnn, plan->rnn,
                         RNL_CUDNN_FWD_MODE_INFERENCE, plan->x, &plan->work_nbytes, &reserve);
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

static rnl_status describe(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle, rnl_gpu_plan *plan,
                           const rnl_gpu_job *job, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = describe_rnn(rnn, plan, err);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &plan->x);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &plan->y);
    if (status == RNL_OK)
        status = describe_lengths(rnn, handle, plan, job, err);
    if (status == RNL_OK)
        status = describe_state(rnn, &plan->h, plan->sizes.N, rnn->state_size, err);
    if (status == RNL_OK && rnl_cell_facts_of(rnn->spec.cell)->has_c)
        status = describe_state(rnn, &plan->c, plan->sizes.N, rnn->spec.hidden_size, err);
    return status;
}

/* ---- their lives ---- */

static void plan_free(rnl_gpu_device *device, rnl_gpu_plan *plan, bool works)
{
    const rnl_cudnn_table *const call = device->dnn;
    if (!plan)
        return;
    if (works && plan->rnn)
        call->cudnnDestroyRNNDescriptor(plan->rnn);
    if (works && plan->x)
        call->cudnnDestroyRNNDataDescriptor(plan->x);
    if (works && plan->y)
        call->cudnnDestroyRNNDataDescriptor(plan->y);
    if (works && plan->h)
        call->cudnnDestroyTensorDescriptor(plan->h);
    if (works && plan->c)
        call->cudnnDestroyTensorDescriptor(plan->c);
    free(plan);
}

/* To describe a call costs a few microseconds, so one plan is kept, not one for each shape. */
rnl_status rnl_gpu_plan_make(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle, const rnl_gpu_job *job,
                             rnl_error *err)
{
    rnl_gpu_plan *plan = rnn->plan;
    rnl_status status = RNL_OK;
    if (rnl_gpu_plan_fits(rnn, job))
        return RNL_OK;
    rnn->plan = NULL;
    if (plan && has_sizes(plan, &job->sizes)) {
        status = describe_lengths(rnn, handle, plan, job, err);
    } else {
        plan_free(rnn->device, plan, true);
        plan = calloc(1, sizeof *plan + (size_t)job->sizes.N * sizeof *plan->lengths);
        if (!plan)
            return rnl_fail(err, RNL_E_NOMEM, "no host memory for the description of a call");
        plan->sizes = job->sizes;
        status = describe(rnn, handle, plan, job, err);
    }
    if (status == RNL_OK)
        rnn->plan = plan;
    else
        plan_free(rnn->device, plan, true);
    return status;
}

void rnl_gpu_plan_keep(rnl_gpu_rnn *rnn)
{
    rnn->plan->next = rnn->captured;
    rnn->captured = rnn->plan;
    rnn->plan = NULL;
}

void rnl_gpu_plans_free(rnl_gpu_rnn *rnn, bool works)
{
    plan_free(rnn->device, rnn->plan, works);
    while (rnn->captured) {
        rnl_gpu_plan *const first = rnn->captured;
        rnn->captured = first->next;
        plan_free(rnn->device, first, works);
    }
}
