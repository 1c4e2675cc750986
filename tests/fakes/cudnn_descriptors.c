/* Descriptors of the RNN and its clip, x and y, states, and dropout. */
#include "cudnn_fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cudnnStatus_t create(const char *call, void *made, enum fake_kind kind, size_t nbytes)
{
    CUDNN_CALL(call, 1, "%s", "");
    if (!made)
        return fake_refuse(WRONG, "the pointer to the descriptor is NULL");
    void *desc = fake_new(kind, nbytes);
    memcpy(made, &desc, sizeof desc);
    return fake_refuse(TAKEN, "");
}

static cudnnStatus_t destroy(const char *call, void *desc, enum fake_kind kind)
{
    CUDNN_LOG(call, 1, "desc=%p", desc);
    if (desc)
        fake_end(fake_object(desc, kind, call));
    return failed;
}

#define DESCRIPTOR(Name, kind, type)                                                               \
    cudnnStatus_t cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t *made)                   \
    {                                                                                              \
        return create(__func__, made, kind, sizeof(struct type));                                  \
    }                                                                                              \
    cudnnStatus_t cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t desc)                   \
    {                                                                                              \
        return destroy(__func__, desc, kind);                                                      \
    }

DESCRIPTOR(RNN, FAKE_RNN, rnn)
DESCRIPTOR(RNNData, FAKE_RNN_DATA, data)
DESCRIPTOR(Tensor, FAKE_TENSOR, tensor)
DESCRIPTOR(Dropout, FAKE_DROPOUT, dropout)

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t desc, cudnnHandle_t handle,
                                        float dropout, void *states, size_t nbytes,
                                        unsigned long long seed)
{
    USES_HANDLE(handle, "cudnnSetDropoutDescriptor");
    CUDNN_CALL("cudnnSetDropoutDescriptor", 1, "dropout=%g nbytes=%zu seed=%llu", (double)dropout,
               nbytes, seed);
    if (!handle || !desc)
        return fake_refuse(WRONG, "the handle or the descriptor is NULL");
    fake_handle(handle, "cudnnSetDropoutDescriptor");
    fake_object(desc, FAKE_DROPOUT, "cudnnSetDropoutDescriptor");
    if (dropout != 0 || states)
        fake_die("cudnnSetDropoutDescriptor: dropout is not modelled");
    return fake_refuse(TAKEN, "");
}

/* ---- the RNN ---- */

size_t fake_dtype_bytes(int dtype)
{
    switch (dtype) {
    case FLOAT: return 4;
    case DOUBLE: return 8;
    case HALF: return 2;
    case BFLOAT16: return 2;
    default: return 0;
    }
}

int64_t fake_gates(const struct rnn *rnn)
{
    return rnn->cell == CELL_LSTM ? 4 : rnn->cell == CELL_GRU ? 3 : 1;
}

int64_t fake_directions(const struct rnn *rnn)
{
    return 1 + rnn->bidirectional;
}

/* 9.12 lacks it. */
static int has_bfloat16(void)
{
    return fake_version() >= 91300;
}

/* 9.1.0 supports no empty sequence, 9.2.1 and 9.3.0 not only such. The others between 9.0.0
 * and 9.5.1 were not tested. */
static int has_empty(int least, int most)
{
    int version = fake_version();
    return least > 0 || version < 90100 || version >= (most > 0 ? 90200 : 90400);
}

static enum fake_class rnn_class(const struct rnn *r)
{
    int one_of_4 = (r->algo | r->cell | r->bias | r->math) >> 2;
    if (one_of_4 || r->bidirectional >> 1 || r->skip >> 1 || r->flags >> 1)
        return WRONG;
    if (r->input_size < 1 || r->hidden_size < 1 || r->proj_size < 1 || r->layers < 1)
        return WRONG;
    int pair_ok = (r->dtype == FLOAT && r->precision == FLOAT) ||
                  (r->dtype == DOUBLE && r->precision == DOUBLE) ||
                  (r->dtype == HALF && (r->precision == FLOAT || r->precision == HALF)) ||
                  (r->dtype == BFLOAT16 && r->precision == FLOAT && has_bfloat16());
    if (!pair_ok || r->proj_size > r->hidden_size)
        return UNSUPPORTED;
    int projected = r->proj_size < r->hidden_size;
    if (projected && (r->cell != CELL_LSTM || r->algo != ALGO_STANDARD))
        return UNSUPPORTED;
    if (r->algo != ALGO_STANDARD &&
        (r->bias != BIAS_DOUBLE || r->precision == HALF || r->dtype == DOUBLE))
        return UNSUPPORTED;
    return TAKEN;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t desc, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t dtype, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t input_size,
                                       int32_t hidden_size, int32_t proj_size, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags)
{
    CUDNN_CALL("cudnnSetRNNDescriptor_v8", 1,
               "desc=%p algo=%d cell=%d bias=%d direction=%d input=%d dtype=%d precision=%d "
               "math=%d input_size=%d hidden_size=%d proj_size=%d layers=%d dropout=%p flags=%u",
               (void *)desc, (int)algo, (int)cell, (int)bias, (int)direction, (int)input,
               (int)dtype, (int)precision, (int)math, (int)input_size, (int)hidden_size,
               (int)proj_size, (int)layers, (void *)dropout, flags);
    if (!desc)
        return fake_refuse(WRONG, "the RNN's descriptor is NULL");
    struct rnn *rnn = fake_object(desc, FAKE_RNN, "cudnnSetRNNDescriptor_v8");
    struct rnn given = {
        .object = rnn->object,
        .is_set = 1,
        .algo = (int)algo,
        .cell = (int)cell,
        .bias = (int)bias,
        .bidirectional = (int)direction,
        .skip = (int)input,
        .dtype = (int)dtype,
        .precision = (int)precision,
        .math = (int)math,
        .input_size = input_size,
        .hidden_size = hidden_size,
        .proj_size = proj_size,
        .layers = layers,
        .dropout = (struct dropout *)dropout,
        .flags = flags,
        /* this removes the clip */
    };
    enum fake_class found = rnn_class(&given);
    if (fake_has_no_persist((int)algo, "descriptor"))
        found = UNSUPPORTED;
    if (found == TAKEN)
        *rnn = given;
    return fake_refuse(found, "an argument of cudnnSetRNNDescriptor_v8");
}

cudnnStatus_t cudnnRNNSetClip_v9(cudnnRNNDescriptor_t desc, cudnnRNNClipMode_t mode, double low,
                                 double high)
{
    CUDNN_CALL("cudnnRNNSetClip_v9", 1, "desc=%p mode=%d low=%g high=%g", (void *)desc, (int)mode,
               low, high);
    if (!desc)
        return fake_refuse(WRONG, "the RNN's descriptor is NULL");
    if (!(low <= high))
        return fake_refuse(WRONG, "the bounds of the clip");
    struct rnn *rnn = fake_object(desc, FAKE_RNN, "cudnnRNNSetClip_v9");
    rnn->clip_mode = (int)mode;
    rnn->clip_low = low;
    rnn->clip_high = high;
    return fake_refuse(TAKEN, "");
}

/* ---- x and y ---- */

int64_t fake_data_rows(const struct data *data)
{
    return (int64_t)data->T * data->N;
}

static enum fake_class data_class(const struct data *d, const int *lengths)
{
    if ((d->layout != LAYOUT_SEQ && d->layout != LAYOUT_BATCH) || d->T < 1 || d->N < 1 ||
        d->width < 1)
        return WRONG;
    if (!lengths || d->dtype < 0 || d->dtype >= DTYPES)
        return WRONG;
    int most = 0, least = d->T;
    for (int n = 0; n < d->N; n++) {
        if (lengths[n] < 0 || lengths[n] > d->T)
            return WRONG;
        most = lengths[n] > most ? lengths[n] : most;
        least = lengths[n] < least ? lengths[n] : least;
    }
    int known = fake_dtype_bytes(d->dtype) && (d->dtype != BFLOAT16 || has_bfloat16());
    return known && has_empty(least, most) ? TAKEN : UNSUPPORTED;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t desc, cudnnDataType_t dtype,
                                        cudnnRNNDataLayout_t layout, int T, int N, int width,
                                        const int lengths[], void *fill)
{
    CUDNN_CALL("cudnnSetRNNDataDescriptor", 1,
               "desc=%p dtype=%d layout=%d T=%d N=%d width=%d fill=%d", (void *)desc, (int)dtype,
               (int)layout, T, N, width, fill != NULL);
    if (!desc)
        return fake_refuse(WRONG, "the descriptor is NULL");
    struct data *data = fake_object(desc, FAKE_RNN_DATA, "cudnnSetRNNDataDescriptor");
    struct data given = {.object = data->object,
                         .is_set = 1,
                         .dtype = (int)dtype,
                         .layout = (int)layout,
                         .T = T,
                         .N = N,
                         .width = width};
    enum fake_class found = data_class(&given, lengths);
    if (found == TAKEN) {
        given.lengths = malloc((size_t)N * sizeof *lengths);
        memcpy(given.lengths, lengths, (size_t)N * sizeof *lengths);
        given.has_fill = fill != NULL;
        if (fill)
            memcpy(given.fill, fill, fake_dtype_bytes(given.dtype));
        free(data->lengths);
        *data = given;
    }
    return fake_refuse(found, "an argument of cudnnSetRNNDataDescriptor");
}

/* ---- states ---- */

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t desc, cudnnDataType_t dtype,
                                         int dims, const int dim[], const int stride[])
{
    CUDNN_CALL("cudnnSetTensorNdDescriptor", 1, "desc=%p dtype=%d dims=%d", (void *)desc,
               (int)dtype, dims);
    int fewest = fake_version() >= 90100 ? 2 : 3; /* 9.1.0 has 2, 9.0.0 has 3 */
    if (!desc || !dim || !stride || dims < fewest || dims > MAX_DIMS || (int)dtype >= DTYPES)
        return fake_refuse(WRONG, "an argument of cudnnSetTensorNdDescriptor");
    for (int i = 0; i < dims; i++)
        if (dim[i] < 1)
            return fake_refuse(WRONG, "a size of cudnnSetTensorNdDescriptor");
    struct tensor *tensor = fake_object(desc, FAKE_TENSOR, "cudnnSetTensorNdDescriptor");
    tensor->dtype = (int)dtype;
    tensor->dims = dims;
    memcpy(tensor->dim, dim, (size_t)dims * sizeof *dim);
    memcpy(tensor->stride, stride, (size_t)dims * sizeof *stride);
    return fake_refuse(TAKEN, "");
}
