/* Describe a call to cuDNN: the algorithm, and descriptors of the RNN and of the arrays. */
#include <stdlib.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

/* ---- the algorithm. Algorithms that keep the weights in registers are chosen as in PyTorch:
 * get_algo() in aten/src/ATen/native/cudnn/RNN.cpp ---- */

static bool has_small_h(const rnl_spec *spec)
{
    return spec->hidden_size <= (rnl_cell_facts_of(spec->cell)->gates[1] ? 192 : 384);
}

/* The algorithm for small H, in float32 only. PyTorch uses this algorithm in float16 too, where
 * cuDNN 9.19 computes wrong LSTMs and GRUs if N and H are multiples of 8, H > 32, and H is not a
 * multiple of 32: measured on an H200 and an H100. */
static bool is_small(const rnl_gpu_rnn *rnn)
{
    return rnn->device->capability >= 60 && rnn->spec.dtype == RNL_FLOAT32 &&
           has_small_h(&rnn->spec);
}

/* The algorithm in which multiprocessors share the weights. PyTorch's different rule for Volta is
 * left out. */
static bool is_shared(const rnl_gpu_rnn *rnn, int64_t N)
{
    const rnl_spec *const spec = &rnn->spec;
    const rnl_gpu_device *const gpu = rnn->device;
    const bool suits_gpu = gpu->capability >= 80 && gpu->capability % 10 != 6 &&
                           gpu->multiprocessors >= 98;
    const int64_t H = spec->hidden_size;
    return suits_gpu && spec->dtype == RNL_FLOAT16 && spec->num_layers == 1 &&
           !spec->bidirectional && !has_small_h(spec) && H <= 1024 && H % 128 == 0 &&
           spec->input_size % 128 == 0 && N % 8 == 0 && N <= 128 && spec->cell != RNL_GRU &&
           (spec->cell == RNL_LSTM || N < 96 || H < 896);
}

static rnl_cudnn_algo algo_of(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job)
{
    if (rnn->spec.bias != RNL_BIAS_DOUBLE || rnn->spec.proj_size || job->lengths ||
        rnn->refuses_persist || job->saves_memory || rnn->options.algo != RNL_GPU_AUTO)
        return RNL_CUDNN_RNN_ALGO_STANDARD;
    return is_small(rnn)                  ? RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H
           : is_shared(rnn, job->sizes.N) ? RNL_CUDNN_RNN_ALGO_PERSIST_STATIC
                                          : RNL_CUDNN_RNN_ALGO_STANDARD;
}

static int64_t length_of(const rnl_gpu_job *job, int64_t n)
{
    return job->lengths ? job->lengths[n] : job->sizes.T;
}

bool rnl_gpu_descriptors_fit_locked(const rnl_gpu_rnn *rnn, rnl_gpu_job *job)
{
    const rnl_gpu_descriptors *const descriptors = rnn->descriptors;
    job->sizes.algo = algo_of(rnn, job);
    if (!descriptors || descriptors->sizes.T != job->sizes.T ||
        descriptors->sizes.N != job->sizes.N || descriptors->sizes.algo != job->sizes.algo ||
        descriptors->sizes.batch_first != job->sizes.batch_first ||
        descriptors->sizes.padded != job->sizes.padded)
        return false;
    for (int64_t n = 0; n < job->sizes.N; n++)
        if (descriptors->lengths[n] != length_of(job, n))
            return false;
    return true;
}

/* ---- descriptors ---- */

static const rnl_cudnn_data_type TYPES[] = {
    [RNL_FLOAT16] = RNL_CUDNN_DATA_HALF,
    [RNL_BFLOAT16] = RNL_CUDNN_DATA_BFLOAT16,
    [RNL_FLOAT32] = RNL_CUDNN_DATA_FLOAT,
    [RNL_FLOAT64] = RNL_CUDNN_DATA_DOUBLE,
};
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

static rnl_status set_rnn(rnl_gpu_rnn *rnn, const rnl_gpu_descriptors *descriptors, rnl_error *err)
{
    const rnl_spec *s = &rnn->spec;
    const rnl_cudnn_data_type type = TYPES[s->dtype];
    return RNL_DNN(rnn->device, err, cudnnSetRNNDescriptor_v8, descriptors->rnn,
                   descriptors->sizes.algo, CELLS[s->cell], BIASES[s->bias],
                   s->bidirectional ? RNL_CUDNN_BIDIRECTIONAL : RNL_CUDNN_UNIDIRECTIONAL,
                   s->skip_input ? RNL_CUDNN_SKIP_INPUT : RNL_CUDNN_LINEAR_INPUT, type,
                   type == RNL_CUDNN_DATA_DOUBLE ? RNL_CUDNN_DATA_DOUBLE : RNL_CUDNN_DATA_FLOAT,
                   math_of(rnn), (int32_t)s->input_size, (int32_t)s->hidden_size,
                   (int32_t)rnn->state_size, (int32_t)s->num_layers, rnn->device->dropout,
                   descriptors->sizes.padded ? RNL_CUDNN_RNN_PADDED_IO_ENABLED
                                             : RNL_CUDNN_RNN_PADDED_IO_DISABLED);
}

/* Describe x or y. The fill is zero: without a fill, cuDNN does not write y past the end. */
static rnl_status set_data(rnl_gpu_rnn *rnn, const rnl_gpu_descriptors *descriptors,
                           rnl_cudnn_rnn_data data, int64_t width, rnl_error *err)
{
    char zero[8] = {0}; /* of any dtype */
    return RNL_DNN(rnn->device, err, cudnnSetRNNDataDescriptor, data, TYPES[rnn->spec.dtype],
                   descriptors->sizes.batch_first ? RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                                  : RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                   (int)descriptors->sizes.T, (int)descriptors->sizes.N, (int)width,
                   descriptors->lengths, zero);
}

static rnl_status set_state(rnl_gpu_rnn *rnn, const rnl_gpu_descriptors *descriptors,
                            rnl_cudnn_tensor state, int64_t width, rnl_error *err)
{
    const int64_t N = descriptors->sizes.N;
    const int shape[3] = {(int)(rnn->spec.num_layers * rnn->directions), (int)N, (int)width};
    const int strides[3] = {(int)(N * width), (int)width, 1};
    return RNL_DNN(rnn->device, err, cudnnSetTensorNdDescriptor, state, TYPES[rnn->spec.dtype], 3,
                   shape, strides);
}

/* Create and set all descriptors, and get the size of the workspace: it grows with the lengths. */
static rnl_status describe(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle,
                           rnl_gpu_descriptors *descriptors, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    size_t reserve = 0; /* none for inference */
    rnl_status status;
    if ((status = RNL_DNN(device, err, cudnnCreateRNNDescriptor, &descriptors->rnn)) ||
        (status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &descriptors->x)) ||
        (status = RNL_DNN(device, err, cudnnCreateRNNDataDescriptor, &descriptors->y)) ||
        (status = RNL_DNN(device, err, cudnnCreateTensorDescriptor, &descriptors->h)) ||
        (status = set_rnn(rnn, descriptors, err)) ||
        (status = set_data(rnn, descriptors, descriptors->x, rnn->spec.input_size, err)) ||
        (status = set_data(rnn, descriptors, descriptors->y, rnn->directions * rnn->state_size,
                           err)) ||
        (status = set_state(rnn, descriptors, descriptors->h, rnn->state_size, err)) ||
        (status = RNL_DNN(device, err, cudnnGetRNNTempSpaceSizes, handle->cudnn, descriptors->rnn,
                          RNL_CUDNN_FWD_MODE_INFERENCE, descriptors->x, &descriptors->work_nbytes,
                          &reserve)))
        return status;
    if (!rnl_cell_facts_of(rnn->spec.cell)->has_c ||
        (status = RNL_DNN(device, err, cudnnCreateTensorDescriptor, &descriptors->c)))
        return status;
    return set_state(rnn, descriptors, descriptors->c, rnn->spec.hidden_size, err);
}

/* Describing a call takes up to 16 us (cuDNN 9.19 on an H200), so the descriptors of the last call
 * are kept; not per shape, nor for graphs: a captured call does not refer to the descriptors
 * (9.19). */
rnl_status rnl_gpu_descriptors_make_locked(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle,
                                           const rnl_gpu_job *job, rnl_error *err)
{
    const int64_t N = job->sizes.N;
    rnl_gpu_descriptors_free(rnn);
    rnn->descriptors = calloc(1, sizeof *rnn->descriptors +
                                     (size_t)N * sizeof *rnn->descriptors->lengths);
    if (!rnn->descriptors)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for the description of a call");
    rnn->descriptors->sizes = job->sizes;
    for (int64_t n = 0; n < N; n++)
        rnn->descriptors->lengths[n] = (int32_t)length_of(job, n);
    const rnl_status status = describe(rnn, handle, rnn->descriptors, err);
    if (status != RNL_OK)
        rnl_gpu_descriptors_free(rnn);
    return status;
}

void rnl_gpu_descriptors_free(rnl_gpu_rnn *rnn)
{
    const rnl_cudnn_table *const call = rnn->device->dnn;
    rnl_gpu_descriptors *const descriptors = rnn->descriptors;
    if (!descriptors)
        return;
    if (descriptors->rnn)
        call->cudnnDestroyRNNDescriptor(descriptors->rnn);
    if (descriptors->x)
        call->cudnnDestroyRNNDataDescriptor(descriptors->x);
    if (descriptors->y)
        call->cudnnDestroyRNNDataDescriptor(descriptors->y);
    if (descriptors->h)
        call->cudnnDestroyTensorDescriptor(descriptors->h);
    if (descriptors->c)
        call->cudnnDestroyTensorDescriptor(descriptors->c);
    free(descriptors);
    rnn->descriptors = NULL;
}
