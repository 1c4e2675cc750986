/*
 * The fake cuDNN: versions, errors, handles, descriptors, sizes and cudnnRNNForward.
 *
 * It does not check arguments as the real library does: test_replay.py sends the calls that our
 * code makes to real ones. It checks what the real library does not: addresses, sizes of memory,
 * contexts and threads. README.md lists its environment variables.
 */
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the library ---- */

#define ANSWER(returns, name, arguments, answer)                                                   \
    returns name arguments                                                                         \
    {                                                                                              \
        return answer;                                                                             \
    }

ANSWER(size_t, cudnnGetVersion, (void), (size_t)fake_environment("FAKE_CUDNN", 92800))
ANSWER(size_t, cudnnGetCudartVersion, (void), 13010)
ANSWER(size_t, cudnnGetMaxDeviceVersion, (void), 1210)
ANSWER(rnl_cudnn_status, cudnnAdvVersionCheck, (void), RNL_CUDNN_STATUS_SUCCESS)
ANSWER(const char *, cudnnGetErrorString, (rnl_cudnn_status status),
       status ? "CUDNN_STATUS_OF_THE_FAKE" : "CUDNN_STATUS_SUCCESS")

void cudnnGetLastErrorString(char *text, size_t nbytes)
{
    snprintf(text, nbytes, "the fake's text");
}

static int refuses(rnl_cudnn_algo algo, const char *where)
{
    const char *found = getenv("FAKE_CUDNN_NO_PERSIST");
    return algo != RNL_CUDNN_RNN_ALGO_STANDARD && found && !strcmp(found, where);
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
    struct handle *const handle = fake_object(given, "handle", call);
    if (__atomic_exchange_n(&handle->busy, 1, __ATOMIC_SEQ_CST))
        fake_die("%s: another thread is in a call with the handle %p", call, (void *)given);
    usleep((useconds_t)fake_environment("FAKE_CUDNN_LINGER", 0));
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
    __attribute__((cleanup(leave_handle), unused)) struct handle *const used = enter_handle(       \
        given, __func__)

/* Wait until FAKE_CUDNN_MEET threads are here. */
static void meet(void)
{
    static pthread_barrier_t barrier;
    static int count;
    {
        LOCKED;
        const int threads = fake_environment("FAKE_CUDNN_MEET", 0);
        if (!count && threads)
            pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        count = threads;
    }
    if (count)
        pthread_barrier_wait(&barrier);
}

rnl_cudnn_status cudnnCreate(rnl_cudnn_handle *made)
{
    CALL();
    fake_refuse_in_capture(__func__);
    struct handle *handle = fake_new("handle", sizeof *handle);
    handle->device = fake_current_device();
    if (handle->device < 0)
        fake_die("cudnnCreate: no context is current");
    *made = (rnl_cudnn_handle)handle;
    return RNL_CUDNN_STATUS_SUCCESS;
}

FAKE_END(rnl_cudnn_status, cudnnDestroy, rnl_cudnn_handle, "handle")

rnl_cudnn_status cudnnSetStream(rnl_cudnn_handle handle, rnl_cu_stream stream)
{
    USES_HANDLE(handle);
    CALL("stream=%p", (void *)stream);
    used->stream = stream;
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

enum { MAX_STEPS = 65535 }; /* asked of 9.1.0 and 9.28.0 */

struct plain {
    struct fake_object object;
};

struct tensor {
    struct fake_object object;
    int shape[3];
};

#define DESCRIPTOR(Name, type, kind, contents)                                                     \
    FAKE(rnl_cudnn_status, cudnnCreate##Name##Descriptor, (type * made),                           \
         *made = fake_new(kind, sizeof(struct contents)))                                          \
    FAKE_END(rnl_cudnn_status, cudnnDestroy##Name##Descriptor, type, kind)

DESCRIPTOR(RNN, rnl_cudnn_rnn, "rnn", fake_rnn)
DESCRIPTOR(RNNData, rnl_cudnn_rnn_data, "rnn_data", fake_data)
DESCRIPTOR(Tensor, rnl_cudnn_tensor, "tensor", tensor)
DESCRIPTOR(Dropout, rnl_cudnn_dropout, "dropout", plain)

rnl_cudnn_status cudnnSetDropoutDescriptor(rnl_cudnn_dropout desc, rnl_cudnn_handle handle,
                                           float rate, void *states, size_t nbytes,
                                           unsigned long long seed)
{
    USES_HANDLE(handle);
    CALL("desc=%p rate=%g states=%p nbytes=%zu seed=%llu", (void *)desc, (double)rate, states,
         nbytes, seed);
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetRNNDescriptor_v8(rnl_cudnn_rnn desc, rnl_cudnn_algo algo,
                                          rnl_cudnn_cell cell, rnl_cudnn_bias bias,
                                          rnl_cudnn_directions directions, rnl_cudnn_input input,
                                          rnl_cudnn_data_type type, rnl_cudnn_data_type precision,
                                          rnl_cudnn_math math, int32_t I, int32_t H, int32_t P,
                                          int32_t L, rnl_cudnn_dropout dropout, uint32_t flags)
{
    CALL("desc=%p algo=%d cell=%d bias=%d directions=%d input=%d type=%d precision=%d math=%d I=%d "
         "H=%d P=%d L=%d dropout=%p flags=%u",
         (void *)desc, (int)algo, (int)cell, (int)bias, (int)directions, (int)input, (int)type,
         (int)precision, (int)math, I, H, P, L, (void *)dropout, flags);
    struct fake_rnn *rnn = fake_object(desc, "rnn", __func__);
    fake_object(dropout, "dropout", __func__);
    if (I < 1 || H < 1 || L < 1 || P < 1 || P > H)
        return RNL_CUDNN_STATUS_BAD_PARAM;
    if (refuses(algo, "descriptor"))
        return RNL_CUDNN_STATUS_NOT_SUPPORTED;
    const int D = directions == RNL_CUDNN_BIDIRECTIONAL ? 2 : 1;
    const int padded = flags & RNL_CUDNN_RNN_PADDED_IO_ENABLED;
    *rnn = (struct fake_rnn){rnn->object, algo, cell, bias, D, input == RNL_CUDNN_SKIP_INPUT,
                             padded,      type, I,    H,    P, L};
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetRNNDataDescriptor(rnl_cudnn_rnn_data desc, rnl_cudnn_data_type type,
                                           rnl_cudnn_data_layout layout, int T, int N, int width,
                                           const int *lengths, void *fill)
{
    char text[2000] = "";
    for (int n = 0, used = 0; n < N && used < 1900; n++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d", n ? "," : "", lengths[n]);
    CALL("desc=%p type=%d layout=%d T=%d N=%d width=%d lengths=%s fill=%d", (void *)desc, (int)type,
         (int)layout, T, N, width, text, fill != NULL);
    struct fake_data *data = fake_object(desc, "rnn_data", __func__);
    if (T > MAX_STEPS)
        return RNL_CUDNN_STATUS_NOT_SUPPORTED;
    const int batch_first = layout == RNL_CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
    int *const kept = malloc((size_t)N * sizeof *kept);
    memcpy(kept, lengths, (size_t)N * sizeof *kept);
    *data = (struct fake_data){data->object, batch_first, T, N, width, fill != NULL, kept};
    return RNL_CUDNN_STATUS_SUCCESS;
}

rnl_cudnn_status cudnnSetTensorNdDescriptor(rnl_cudnn_tensor desc, rnl_cudnn_data_type type,
                                            int ndim, const int *shape, const int *strides)
{
    CALL("desc=%p type=%d shape=%d,%d,%d strides=%d,%d,%d", (void *)desc, (int)type, shape[0],
         shape[1], shape[2], strides[0], strides[1], strides[2]);
    struct tensor *tensor = fake_object(desc, "tensor", __func__);
    if (ndim != 3)
        fake_die("%s: %d axes", __func__, ndim);
    memcpy(tensor->shape, shape, sizeof tensor->shape);
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- sizes ---- */

rnl_cudnn_status cudnnGetRNNWeightSpaceSize(rnl_cudnn_handle handle, rnl_cudnn_rnn desc,
                                            size_t *nbytes)
{
    USES_HANDLE(handle);
    CALL("rnn=%p", (void *)desc);
    *nbytes = fake_weight_nbytes(fake_object(desc, "rnn", __func__));
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* Smaller than the real size; like that it grows with the lengths, and persistent algorithms need
 * more: 985 instead of 33 MiB for H = 64, T = 10,000 and N = 100. */
static size_t work_nbytes(const struct fake_rnn *rnn, const struct fake_data *x)
{
    const size_t all = (size_t)(rnn->L * rnn->directions);
    size_t rows = 0;
    for (int n = 0; n < x->N; n++)
        rows += (size_t)x->lengths[n];
    return 4096 * (1 + all) + fake_weight_nbytes(rnn) +
           8 * all * rows * (size_t)(4 * rnn->H + x->width) *
               (rnn->algo == RNL_CUDNN_RNN_ALGO_STANDARD ? 1 : 4);
}

rnl_cudnn_status cudnnGetRNNTempSpaceSizes(rnl_cudnn_handle handle, rnl_cudnn_rnn rnn_desc,
                                           rnl_cudnn_forward_mode mode, rnl_cudnn_rnn_data x_desc,
                                           size_t *work, size_t *reserve)
{
    USES_HANDLE(handle);
    CALL("rnn=%p mode=%d x_desc=%p", (void *)rnn_desc, (int)mode, (void *)x_desc);
    const struct fake_rnn *rnn = fake_object(rnn_desc, "rnn", __func__);
    if (refuses(rnn->algo, "sizes"))
        return RNL_CUDNN_STATUS_NOT_SUPPORTED;
    *work = work_nbytes(rnn, fake_object(x_desc, "rnn_data", __func__));
    if (reserve)
        *reserve = 0; /* only for training */
    return RNL_CUDNN_STATUS_SUCCESS;
}

/* ---- the call ---- */

/* What real libraries refuse too, but would compute wrongly here. */
static void check(const struct fake_forward *f, size_t weight_nbytes)
{
    const struct fake_data *x = &f->x_data, *y = &f->y_data;
    int shorter = 0;
    for (int n = 0; n < x->N; n++)
        shorter |= x->lengths[n] != x->T;
    if (x->T != y->T || x->N != y->N || x->batch_first != y->batch_first || x->width != f->rnn.I ||
        y->width != f->rnn.directions * f->rnn.P ||
        memcmp(x->lengths, y->lengths, (size_t)x->N * sizeof *x->lengths))
        fake_die("cudnnRNNForward: x or y is described wrongly");
    if ((shorter || x->batch_first) && !f->rnn.padded)
        fake_die("cudnnRNNForward: lengths or a batch-major layout without padded I/O");
    if (shorter && f->rnn.algo != RNL_CUDNN_RNN_ALGO_STANDARD)
        fake_die("cudnnRNNForward: lengths with a persistent algorithm");
    if (weight_nbytes != fake_weight_nbytes(&f->rnn) || f->work_nbytes < work_nbytes(&f->rnn, x))
        fake_die("cudnnRNNForward: %zu bytes of weights, %zu of workspace", weight_nbytes,
                 f->work_nbytes);
}

static void check_state(const struct fake_forward *f, rnl_cudnn_tensor desc, int64_t width)
{
    const int *shape = ((struct tensor *)fake_object(desc, "tensor", "cudnnRNNForward"))->shape;
    if (shape[0] != f->rnn.L * f->rnn.directions || shape[1] != f->x_data.N || shape[2] != width)
        fake_die("cudnnRNNForward: a state is described as %d, %d, %d", shape[0], shape[1],
                 shape[2]);
}

static rnl_cu_address at(const void *pointer)
{
    return (rnl_cu_address)(uintptr_t)pointer;
}

rnl_cudnn_status cudnnRNNForward(rnl_cudnn_handle handle, rnl_cudnn_rnn rnn_desc,
                                 rnl_cudnn_forward_mode mode, const int32_t *device_lengths,
                                 rnl_cudnn_rnn_data x_desc, const void *x,
                                 rnl_cudnn_rnn_data y_desc, void *y, rnl_cudnn_tensor h_desc,
                                 const void *hx, void *hy, rnl_cudnn_tensor c_desc, const void *cx,
                                 void *cy, size_t weight_nbytes, const void *weights, size_t nbytes,
                                 void *workspace, size_t reserve_nbytes, void *reserve)
{
    USES_HANDLE(handle);
    meet();
    CALL("handle=%p rnn=%p mode=%d lengths=%p x_desc=%p x=%p y_desc=%p y=%p h_desc=%p hx=%p hy=%p "
         "c_desc=%p cx=%p cy=%p weight_nbytes=%zu weights=%p work=%p reserve_nbytes=%zu reserve=%p",
         (void *)handle, (void *)rnn_desc, (int)mode, (const void *)device_lengths, (void *)x_desc,
         x, (void *)y_desc, y, (void *)h_desc, hx, hy, (void *)c_desc, cx, cy, weight_nbytes,
         weights, workspace, reserve_nbytes, reserve);
    const struct fake_rnn *rnn = fake_object(rnn_desc, "rnn", __func__);
    const struct fake_data *x_data = fake_object(x_desc, "rnn_data", __func__);
    const struct fake_data *y_data = fake_object(y_desc, "rnn_data", __func__);
    if (refuses(rnn->algo, "forward"))
        return RNL_CUDNN_STATUS_NOT_SUPPORTED;
    struct fake_forward *f = malloc(sizeof *f); /* never freed: a graph may use it */
    *f = (struct fake_forward){*rnn,   *x_data, *y_data, at(x),       at(y),         at(hx),
                               at(hy), at(cx),  at(cy),  at(weights), at(workspace), nbytes};
    check(f, weight_nbytes);
    if (hx || hy)
        check_state(f, h_desc, rnn->P);
    if (cx || cy)
        check_state(f, c_desc, rnn->H);
    fake_submit(used->stream, &(struct fake_work){__func__, fake_compute, .argument = f});
    return RNL_CUDNN_STATUS_SUCCESS;
}
