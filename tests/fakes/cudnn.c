/*
 * The fake cuDNN: versions, errors, handles, descriptors, sizes and cudnnRNNForward.
 *
 * It does not check arguments as the real library does: test_replay.py sends the calls that our
 * code makes to real ones. It checks what the real library does not: addresses, sizes of memory,
 * contexts and threads.
 *
 * FAKE_CUDNN: the version to report, 92800 by default.
 * FAKE_CUDNN_NO_PERSIST: the call that refuses persistent algorithms: descriptor, sizes, forward.
 * FAKE_CUDNN_LINGER: microseconds that a call with a handle takes, so that two threads meet in it.
 */
#include "fake_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXECUTION_FAILED_CUDART = 5003 };

static const char *last_error = "";

static rnl_cudnn_status refuse(rnl_cudnn_status status, const char *text)
{
    last_error = text;
    return status;
}

static int has_no_persist(rnl_cudnn_algo algo, const char *where)
{
    const char *refuses = getenv("FAKE_CUDNN_NO_PERSIST");
    return algo != RNL_CUDNN_RNN_ALGO_STANDARD && refuses && !strcmp(refuses, where);
}

/* ---- the library ---- */

size_t cudnnGetVersion(void)
{
    return (size_t)fake_environment("FAKE_CUDNN", 92800);
}

size_t cudnnGetCudartVersion(void)
{
    return 13010;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    return 1210;
}

rnl_cudnn_status cudnnAdvVersionCheck(void)
{
    return RNL_CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(rnl_cudnn_status status)
{
    return status ? "CUDNN_STATUS_OF_THE_FAKE" : "CUDNN_STATUS_SUCCESS";
}

/* Reading clears the text; a success or a failure without a text does not. */
void cudnnGetLastErrorString(char *text, size_t nbytes)
{
    LOCKED;
    snprintf(text, nbytes, "%s", last_error);
    last_error = "";
}

/* ---- handles ---- */

struct handle {
    struct fake_object object;
    int device, busy;
    rnl_cu_stream stream;
};

/* Only one thread may be in a call with a handle, and with its context. Outside the lock: inside, a
 * second thread would only wait. */
static struct handle *enter_handle(rnl_cudnn_handle given, const char *call)
{
    struct handle *const handle = fake_object(given, FAKE_HANDLE, call);
    const int linger = fake_environment("FAKE_CUDNN_LINGER", 0);
    if (__atomic_exchange_n(&handle->busy, 1, __ATOMIC_SEQ_CST))
        fake_die("%s: another thread is in a call with the handle %p", call, (void *)given);
    if (linger)
        usleep((useconds_t)linger);
    if (fake_current_device() != handle->device)
        fake_die("%s: the handle belongs to device %d, whose context is not current", call,
                 handle->device);
    return handle;
}

static void leave_handle(struct handle *const *handle)
{
    __atomic_store_n(&(*handle)->busy, 0, __ATOMIC_SEQ_CST);
}

#define USES_HANDLE(given)                                                                         \
    __attribute__((cleanup(leave_handle))) struct handle *const handle = enter_handle(given,       \
                                                                                      __func__)

rnl_cudnn_status cudnnCreate(rnl_cudnn_handle *made)
{
    CUDNN_CALL("%s", "");
    fake_refuse_in_capture(__func__);
    struct handle *handle = fake_new(FAKE_HANDLE, sizeof *handle);
    handle->device = fake_current_device();
    if (handle->device < 0)
        fake_die("cudnnCreate: no context is current");
    *made = (rnl_cudnn_handle)handle;
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnDestroy(rnl_cudnn_handle handle);
rnl_cudnn_status cudnnDestroy(rnl_cudnn_handle handle)
{
    CUDNN_CALL("handle=%p", (void *)handle);
    fake_wait_for_all();
    fake_end(handle, FAKE_HANDLE, __func__);
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetStream(rnl_cudnn_handle given, rnl_cu_stream stream)
{
    USES_HANDLE(given);
    CUDNN_CALL("handle=%p stream=%p", (void *)given, (void *)stream);
    if (fake_stream_device(stream) != handle->device)
        return refuse(RNL_CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another device");
    handle->stream = stream;
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

struct plain {
    struct fake_object object;
};

struct tensor {
    struct fake_object object;
    int shape[3];
};

#define DESCRIPTOR(Name, type, kind, contents)                                                     \
    rnl_cudnn_status cudnnCreate##Name##Descriptor(type *made)                                     \
    {                                                                                              \
        CUDNN_CALL("%s", "");                                                                      \
        *made = fake_new(kind, sizeof(struct contents));                                           \
        return RNL_CUDNN_STATUS_SUCCESS;                                                           \
    }                                                                                              \
    rnl_cudnn_status cudnnDestroy##Name##Descriptor(type desc);                                    \
    rnl_cudnn_status cudnnDestroy##Name##Descriptor(type desc)                                     \
    {                                                                                              \
        LOCKED;                                                                                    \
        const int status = fake_cudnn_call(__func__, "desc=%p", (void *)desc);                     \
        fake_end(desc, kind, __func__);                                                            \
        return (rnl_cudnn_status)status;                                                           \
    }

DESCRIPTOR(RNN, rnl_cudnn_rnn, FAKE_RNN, rnn)
DESCRIPTOR(RNNData, rnl_cudnn_rnn_data, FAKE_RNN_DATA, data)
DESCRIPTOR(Tensor, rnl_cudnn_tensor, FAKE_TENSOR, tensor)
DESCRIPTOR(Dropout, rnl_cudnn_dropout, FAKE_DROPOUT, plain)

rnl_cudnn_status cudnnSetDropoutDescriptor(rnl_cudnn_dropout desc, rnl_cudnn_handle given,
                                           float rate, void *states, size_t nbytes,
                                           unsigned long long seed)
{
    USES_HANDLE(given);
    CUDNN_CALL("desc=%p rate=%g states=%p nbytes=%zu seed=%llu", (void *)desc, (double)rate, states,
               nbytes, seed);
    (void)handle;
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetRNNDescriptor_v8(rnl_cudnn_rnn desc, rnl_cudnn_algo algo,
                                          rnl_cudnn_cell cell, rnl_cudnn_bias bias,
                                          rnl_cudnn_directions directions, rnl_cudnn_input input,
                                          rnl_cudnn_data_type type, rnl_cudnn_data_type precision,
                                          rnl_cudnn_math math, int32_t I, int32_t H, int32_t P,
                                          int32_t L, rnl_cudnn_dropout dropout, uint32_t flags)
{
    CUDNN_CALL("desc=%p algo=%d cell=%d bias=%d directions=%d input=%d type=%d precision=%d "
               "math=%d I=%d H=%d P=%d L=%d dropout=%p flags=%u",
               (void *)desc, (int)algo, (int)cell, (int)bias, (int)directions, (int)input,
               (int)type, (int)precision, (int)math, I, H, P, L, (void *)dropout, flags);
    struct rnn *rnn = fake_object(desc, FAKE_RNN, __func__);
    fake_object(dropout, FAKE_DROPOUT, __func__);
    if (I < 1 || H < 1 || L < 1 || P < 1 || P > H)
        return refuse(RNL_CUDNN_STATUS_BAD_PARAM, "a size of the RNN");
    if (has_no_persist(algo, "descriptor"))
        return refuse(RNL_CUDNN_STATUS_NOT_SUPPORTED, "FAKE_CUDNN_NO_PERSIST");
    *rnn = (struct rnn){.object = rnn->object,
                        .algo = algo,
                        .cell = cell,
                        .bias = bias,
                        .directions = directions == RNL_CUDNN_BIDIRECTIONAL ? 2 : 1,
                        .skip = input == RNL_CUDNN_SKIP_INPUT,
                        .padded = flags & RNL_CUDNN_RNN_PADDED_IO_ENABLED,
                        .type = type,
                        .input_size = I,
                        .hidden_size = H,
                        .proj_size = P,
                        .layers = L};
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetRNNDataDescriptor(rnl_cudnn_rnn_data desc, rnl_cudnn_data_type type,
                                           rnl_cudnn_data_layout layout, int T, int N, int width,
                                           const int *lengths, void *fill)
{
    char text[2000] = "";
    for (int n = 0, used = 0; n < N && used < 1900; n++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d", n ? "," : "", lengths[n]);
    CUDNN_CALL("desc=%p type=%d layout=%d T=%d N=%d width=%d lengths=%s fill=%d", (void *)desc,
               (int)type, (int)layout, T, N, width, text, fill != NULL);
    struct data *data = fake_object(desc, FAKE_RNN_DATA, __func__);
    if (data->is_captured)
        fake_die("%s: a graph has the old lengths", __func__);
    *data = (struct data){.object = data->object,
                          .type = type,
                          .T = T,
                          .N = N,
                          .width = width,
                          .batch_first = layout == RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                          .has_fill = fill != NULL};
    data->lengths = malloc((size_t)N * sizeof *lengths);
    memcpy(data->lengths, lengths, (size_t)N * sizeof *lengths);
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetTensorNdDescriptor(rnl_cudnn_tensor desc, rnl_cudnn_data_type type,
                                            int ndim, const int *shape, const int *strides)
{
    CUDNN_CALL("desc=%p type=%d shape=%d,%d,%d strides=%d,%d,%d", (void *)desc, (int)type, shape[0],
               shape[1], shape[2], strides[0], strides[1], strides[2]);
    struct tensor *tensor = fake_object(desc, FAKE_TENSOR, __func__);
    if (ndim != 3)
        fake_die("%s: %d axes", __func__, ndim);
    memcpy(tensor->shape, shape, sizeof tensor->shape);
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- sizes ---- */

rnl_cudnn_status cudnnGetRNNWeightSpaceSize(rnl_cudnn_handle given, rnl_cudnn_rnn desc,
                                            size_t *nbytes)
{
    USES_HANDLE(given);
    CUDNN_CALL("rnn=%p", (void *)desc);
    (void)handle;
    const struct rnn *rnn = fake_object(desc, FAKE_RNN, __func__);
    *nbytes = (size_t)fake_num_weights(rnn) * fake_unit(rnn->type);
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* Smaller than the real size; like that it grows with the lengths. */
static size_t work_nbytes(const struct rnn *rnn, const struct data *x)
{
    size_t all = (size_t)(rnn->layers * rnn->directions), rows = 0;
    for (int n = 0; n < x->N; n++)
        rows += (size_t)x->lengths[n];
    return 4096 * (1 + all) + 8 * (size_t)fake_num_weights(rnn) +
           8 * all * rows * (size_t)(4 * rnn->hidden_size + x->width);
}

rnl_cudnn_status cudnnGetRNNTempSpaceSizes(rnl_cudnn_handle given, rnl_cudnn_rnn rnn_desc,
                                           rnl_cudnn_forward_mode mode, rnl_cudnn_rnn_data x_desc,
                                           size_t *work, size_t *reserve)
{
    USES_HANDLE(given);
    CUDNN_CALL("rnn=%p mode=%d x_desc=%p", (void *)rnn_desc, (int)mode, (void *)x_desc);
    (void)handle;
    const struct rnn *rnn = fake_object(rnn_desc, FAKE_RNN, __func__);
    if (has_no_persist(rnn->algo, "sizes"))
        return refuse(RNL_CUDNN_STATUS_NOT_SUPPORTED, "FAKE_CUDNN_NO_PERSIST");
    *work = work_nbytes(rnn, fake_object(x_desc, FAKE_RNN_DATA, __func__));
    if (reserve)
        *reserve = 0; /* only for training */
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- the call ---- */

static void run(const struct fake_work *work)
{
    fake_compute(work->argument);
}

static void use(struct fake_work *work, const void *at, size_t nelems, size_t unit, int write,
                const char *what)
{
    const rnl_cu_address address = (rnl_cu_address)(uintptr_t)at;
    if (address % unit)
        fake_die("%s: %p is not a multiple of %zu", what, at, unit);
    fake_bytes(address, nelems * unit, what);
    fake_access(work, address, nelems * unit, write, what);
}

static int has_lengths(const struct data *x)
{
    for (int n = 0; n < x->N; n++)
        if (x->lengths[n] != x->T)
            return 1;
    return 0;
}

/* What real libraries refuse too, but would compute wrongly here. */
static void check(const struct forward *f, size_t weight_nbytes)
{
    const struct data *x = &f->x_data, *y = &f->y_data;
    const int shorter = has_lengths(x);
    if (x->T != y->T || x->N != y->N || x->batch_first != y->batch_first ||
        memcmp(x->lengths, y->lengths, (size_t)x->N * sizeof *x->lengths))
        fake_die("cudnnRNNForward: x and y are described differently");
    if ((shorter || x->batch_first) && !f->rnn.padded)
        fake_die("cudnnRNNForward: lengths or a batch-major layout without padded I/O");
    if (shorter && f->rnn.algo != RNL_CUDNN_RNN_ALGO_STANDARD)
        fake_die("cudnnRNNForward: lengths with a persistent algorithm");
    if (weight_nbytes != (size_t)fake_num_weights(&f->rnn) * fake_unit(f->rnn.type) ||
        f->work_nbytes < work_nbytes(&f->rnn, x))
        fake_die("cudnnRNNForward: %zu bytes of weights, %zu of workspace", weight_nbytes,
                 f->work_nbytes);
}

static void check_state(const struct forward *f, rnl_cudnn_tensor desc, int64_t width)
{
    const struct tensor *tensor = fake_object(desc, FAKE_TENSOR, "cudnnRNNForward");
    if (tensor->shape[0] != f->rnn.layers * f->rnn.directions || tensor->shape[1] != f->x_data.N ||
        tensor->shape[2] != width)
        fake_die("cudnnRNNForward: a state is described as %d, %d, %d", tensor->shape[0],
                 tensor->shape[1], tensor->shape[2]);
}

static rnl_cu_address address(const void *at)
{
    return (rnl_cu_address)(uintptr_t)at;
}

rnl_cudnn_status cudnnRNNForward(rnl_cudnn_handle given, rnl_cudnn_rnn rnn_desc,
                                 rnl_cudnn_forward_mode mode, const int32_t *device_lengths,
                                 rnl_cudnn_rnn_data x_desc, const void *x,
                                 rnl_cudnn_rnn_data y_desc, void *y, rnl_cudnn_tensor h_desc,
                                 const void *hx, void *hy, rnl_cudnn_tensor c_desc, const void *cx,
                                 void *cy, size_t weight_nbytes, const void *weights, size_t nbytes,
                                 void *workspace, size_t reserve_nbytes, void *reserve)
{
    USES_HANDLE(given);
    CUDNN_CALL("handle=%p rnn=%p mode=%d lengths=%p x_desc=%p x=%p y_desc=%p y=%p h_desc=%p hx=%p "
               "hy=%p c_desc=%p cx=%p cy=%p weight_nbytes=%zu weights=%p work_nbytes=%zu work=%p "
               "reserve_nbytes=%zu reserve=%p",
               (void *)given, (void *)rnn_desc, (int)mode, (const void *)device_lengths,
               (void *)x_desc, x, (void *)y_desc, y, (void *)h_desc, hx, hy, (void *)c_desc, cx, cy,
               weight_nbytes, weights, nbytes, workspace, reserve_nbytes, reserve);
    const struct rnn *rnn = fake_object(rnn_desc, FAKE_RNN, __func__);
    struct data *const data[] = {fake_object(x_desc, FAKE_RNN_DATA, __func__),
                                 fake_object(y_desc, FAKE_RNN_DATA, __func__)};
    struct forward *f = malloc(sizeof *f); /* never freed: a graph may use it */
    *f = (struct forward){*rnn,        *data[0],         *data[1],           address(x),
                          address(y),  address(hx),      address(hy),        address(cx),
                          address(cy), address(weights), address(workspace), nbytes};
    if (has_no_persist(rnn->algo, "forward"))
        return refuse(RNL_CUDNN_STATUS_NOT_SUPPORTED, "FAKE_CUDNN_NO_PERSIST");
    if (fake_sticky())
        return refuse((rnl_cudnn_status)EXECUTION_FAILED_CUDART, "the device is dead");
    check(f, weight_nbytes);
    if (hx || hy)
        check_state(f, h_desc, rnn->proj_size);
    if (cx || cy)
        check_state(f, c_desc, rnn->hidden_size);
    struct fake_work work = {.name = __func__, .run = run, .argument = f};
    const size_t unit = fake_unit(rnn->type), rows = (size_t)f->x_data.T * (size_t)f->x_data.N;
    const size_t states = (size_t)(rnn->layers * rnn->directions) * (size_t)f->x_data.N;
    const size_t h = states * (size_t)rnn->proj_size, c = states * (size_t)rnn->hidden_size;
    use(&work, weights, weight_nbytes / unit, unit, 0, "weightSpace");
    use(&work, workspace, nbytes, 1, 1, "workSpace");
    use(&work, x, rows * (size_t)f->x_data.width, unit, 0, "x");
    use(&work, y, rows * (size_t)f->y_data.width, unit, 1, "y");
    if (hx)
        use(&work, hx, h, unit, 0, "hx");
    if (hy)
        use(&work, hy, h, unit, 1, "hy");
    if (cx)
        use(&work, cx, c, unit, 0, "cx");
    if (cy)
        use(&work, cy, c, unit, 1, "cy");
    if (fake_is_capturing(handle->stream))
        data[0]->is_captured = data[1]->is_captured = 1;
    fake_submit(handle->stream, &work);
    return RNL_CUDNN_STATUS_SUCCESS;
}
