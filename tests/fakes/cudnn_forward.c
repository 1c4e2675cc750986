/*
 * The sizes of the workspace, and cudnnRNNForward. Its arguments are checked first as in the real
 * library, which returns a status, then more strictly, which ends the test.
 */
#include "cudnn_fake.h"

#include <stdlib.h>
#include <string.h>

/* ---- checks of the real library ---- */

static int all_full(const struct data *data)
{
    for (int n = 0; n < data->N; n++)
        if (data->lengths[n] != data->T)
            return 0;
    return 1;
}

/* Limits that depend on the device, or are checked this late. */
static enum fake_class algo_class(const struct rnn *rnn, int capability)
{
    int is_plain = rnn->cell == CELL_RELU || rnn->cell == CELL_TANH;
    if (rnn->dtype == BFLOAT16 && capability < 800)
        return UNSUPPORTED;
    if (rnn->algo != ALGO_STANDARD && capability < 600)
        return UNSUPPORTED;
    if (rnn->algo == ALGO_SMALL_H && rnn->hidden_size > (is_plain ? 384 : 192))
        return UNSUPPORTED;
    return TAKEN;
}

/* Smaller than the real sizes; like these it grows with the sum of the lengths. */
static size_t workspace_bytes(const struct rnn *rnn, const struct data *x)
{
    size_t all = (size_t)(rnn->layers * fake_directions(rnn)), rows = 0;
    for (int n = 0; n < x->N; n++)
        rows += (size_t)x->lengths[n];
    size_t bytes = 4096 * (1 + all) + 8 * (size_t)fake_weight_elements(rnn);
    bytes += 8 * all * rows * (size_t)(fake_gates(rnn) * rnn->hidden_size);
    if (rnn->flags & PADDED_IO)
        bytes += 8 * rows * (size_t)(x->width + fake_directions(rnn) * rnn->proj_size);
    return bytes;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t given, cudnnRNNDescriptor_t rnn_desc,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x_desc,
                                        size_t *workspace, size_t *reserve)
{
    const char *call = "cudnnGetRNNTempSpaceSizes";
    USES_HANDLE(given, call);
    CUDNN_CALL("cudnnGetRNNTempSpaceSizes", 1, "handle=%p rnn=%p mode=%d x_desc=%p", (void *)given,
               (void *)rnn_desc, (int)mode, (void *)x_desc);
    if (!given || !rnn_desc || !x_desc || mode)
        return fake_refuse(WRONG, "handle, rnnDesc or xDesc is NULL, or fwdMode");
    const struct handle *handle = fake_handle(given, call);
    const struct rnn *rnn = fake_object(rnn_desc, FAKE_RNN, call);
    const struct data *x = fake_object(x_desc, FAKE_RNN_DATA, call);
    if (!x->is_set)
        return fake_refuse(WRONG, "xDesc is not set");
    if (!rnn->is_set && handle)
        fake_die("%s: the RNN's descriptor is not set", call);
    if (rnn->is_set && (x->dtype != rnn->dtype || x->width != rnn->input_size))
        return fake_refuse(WRONG, "xDesc: dtype or vector size");
    enum fake_class found = fake_has_no_persist(rnn->algo, "sizes")
                                ? UNSUPPORTED
                                : algo_class(rnn, fake_handle_capability(given));
    if (found != TAKEN)
        return fake_refuse(found, "the algorithm or the dtype on this device");
    *workspace = workspace_bytes(rnn, x);
    if (reserve)
        *reserve = 0; /* only for training */
    if (!handle)      /* after the sizes, it needs more of the device */
        return fake_refuse(NO_DEVICE, "no device");
    return fake_refuse(TAKEN, "");
}

/* The arguments of cudnnRNNForward. */
struct call {
    cudnnHandle_t given;
    struct handle *handle; /* NULL: the block of zeros */
    const struct rnn *rnn;
    const struct data *x_desc, *y_desc;
    const struct tensor *h_desc, *c_desc;
    int mode;
    const void *x, *hx, *cx, *weights;
    void *y, *hy, *cy, *workspace, *reserve;
    size_t weight_bytes, workspace_bytes, reserve_bytes;
};

static const char *wrong_data(const struct call *c)
{
    const struct data *x = c->x_desc, *y = c->y_desc;
    if (x->dtype != c->rnn->dtype || x->width != c->rnn->input_size)
        return "xDesc: dtype or vector size";
    if (y->width != fake_directions(c->rnn) * c->rnn->proj_size)
        return "yDesc: vector size";
    if (y->dtype != x->dtype || y->T != x->T || y->N != x->N || y->layout != x->layout ||
        memcmp(y->lengths, x->lengths, (size_t)x->N * sizeof *x->lengths))
        return "xDesc and yDesc differ";
    return NULL;
}

static int needs_padded(const struct data *x)
{
    return x->layout == LAYOUT_BATCH || !all_full(x);
}

static int is_state(const struct tensor *t, int64_t layers, int64_t N, int64_t width)
{
    const int64_t want[3] = {layers, N, width};
    int64_t stride = 1;
    for (int i = t->dims - 1; i >= 0; i--) {
        if (t->dim[i] != (i < 3 ? want[i] : 1))
            return 0;
        if (t->dim[i] > 1 && t->stride[i] != stride)
            return 0; /* not packed; the stride of an axis of size 1 is free */
        stride *= t->dim[i];
    }
    return t->dims >= 3;
}

static const char *wrong_states(const struct call *c)
{
    int64_t layers = c->rnn->layers * fake_directions(c->rnn), N = c->x_desc->N;
    if ((c->hx || c->hy) && !(c->h_desc && is_state(c->h_desc, layers, N, c->rnn->proj_size)))
        return "hDesc";
    if ((c->cx || c->cy) && !(c->c_desc && is_state(c->c_desc, layers, N, c->rnn->hidden_size)))
        return "cDesc";
    return NULL;
}

static const char *wrong_memory(const struct call *c)
{
    size_t nbytes = (size_t)fake_weight_elements(c->rnn) * fake_dtype_bytes(c->rnn->dtype);
    if (!c->weights || c->weight_bytes < nbytes)
        return "weightSpace is NULL or too small";
    if (!c->workspace || c->workspace_bytes < workspace_bytes(c->rnn, c->x_desc))
        return "workSpace is NULL or too small";
    return NULL;
}

static cudnnStatus_t check(const struct call *c)
{
    const char *wrong;
    if (!c->rnn->is_set)
        return fake_refuse(INTERNAL, "the RNN's descriptor is not set");
    if (!c->x_desc->is_set || !c->y_desc->is_set)
        return fake_refuse(WRONG, "xDesc or yDesc is not set");
    if (c->rnn->algo != ALGO_STANDARD && !all_full(c->x_desc))
        return fake_refuse(UNSUPPORTED, "lengths with a persistent algorithm");
    if ((wrong = wrong_data(c)))
        return fake_refuse(WRONG, wrong);
    if (needs_padded(c->x_desc) && !(c->rnn->flags & PADDED_IO))
        return fake_refuse(WRONG, "lengths or a batch-major layout without padded I/O");
    if ((wrong = wrong_states(c)) || (wrong = wrong_memory(c)))
        return fake_refuse(WRONG, wrong);
    if (c->rnn->skip && c->rnn->input_size != c->rnn->hidden_size)
        return fake_refuse(WRONG, "skip input with inputSize unlike hiddenSize");
    if (fake_has_no_persist(c->rnn->algo, "forward"))
        return fake_refuse(UNSUPPORTED, "FAKE_CUDNN_NO_PERSIST");
    if (algo_class(c->rnn, fake_handle_capability(c->given)) != TAKEN)
        return fake_refuse(UNSUPPORTED, "the algorithm or the dtype on this device");
    if (c->rnn->algo != ALGO_STANDARD && c->rnn->algo != ALGO_SMALL_H)
        return fake_refuse(UNSUPPORTED, "the fake has no such algorithm");
    return fake_refuse(TAKEN, "");
}

/* ---- checks against faults and races on the device ---- */

static void use(struct fake_work *work, const void *at, size_t nbytes, int write, size_t unit,
                const char *what)
{
    if ((uintptr_t)at % unit)
        fake_die("%s: %p is not a multiple of %zu", what, at, unit);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    fake_bytes(address, nbytes, what);
    work->access[work->accesses++] = (struct fake_access){address, nbytes, write, what};
}

static void refuse_overlap(const struct fake_work *work)
{
    for (int i = 0; i < work->accesses; i++)
        for (int k = 0; k < work->accesses; k++) {
            const struct fake_access *a = &work->access[i], *b = &work->access[k];
            if (i != k && a->write && a->at < b->at + b->nbytes && b->at < a->at + a->nbytes)
                fake_die("cudnnRNNForward: %s overlaps %s", a->what, b->what);
        }
}

static void use_all(const struct call *c, struct fake_work *work)
{
    size_t unit = fake_dtype_bytes(c->rnn->dtype);
    size_t rows = (size_t)fake_data_rows(c->x_desc), N = (size_t)c->x_desc->N;
    size_t layers = (size_t)(c->rnn->layers * fake_directions(c->rnn));
    size_t h = layers * N * (size_t)c->rnn->proj_size * unit;
    size_t state = layers * N * (size_t)c->rnn->hidden_size * unit;
    int has_c = c->rnn->cell == CELL_LSTM; /* the others ignore cx and cy */
    use(work, c->x, rows * (size_t)c->x_desc->width * unit, 0, unit, "x");
    use(work, c->y, rows * (size_t)c->y_desc->width * unit, 1, unit, "y");
    use(work, c->weights, c->weight_bytes, 0, unit, "weightSpace");
    use(work, c->workspace, c->workspace_bytes, 1, 1, "workSpace");
    if (c->hx)
        use(work, c->hx, h, 0, unit, "hx");
    if (c->hy)
        use(work, c->hy, h, 1, unit, "hy");
    if (c->cx && has_c)
        use(work, c->cx, state, 0, unit, "cx");
    if (c->cy && has_c)
        use(work, c->cy, state, 1, unit, "cy");
    refuse_overlap(work);
}

static void check_strictly(const struct call *c)
{
    const char *call = "cudnnRNNForward";
    if (c->mode)
        fake_die("%s: fwdMode %d, only inference is modelled", call, c->mode);
    if (!c->rnn->dropout)
        fake_die("%s: the RNN has no dropout descriptor", call);
    fake_object(c->rnn->dropout, FAKE_DROPOUT, call);
    if ((c->h_desc && (c->hx || c->hy) && c->h_desc->dtype != c->rnn->dtype) ||
        (c->c_desc && (c->cx || c->cy) && c->c_desc->dtype != c->rnn->dtype))
        fake_die("%s: hDesc or cDesc has another dtype than the RNN", call);
    fake_object(c->x_desc, FAKE_RNN_DATA, call);
}

/* ---- the call ---- */

static void run(void *argument)
{
    fake_compute(*(struct forward **)argument);
}

/* Before the launch of a graph with the call: are the lengths as they were recorded? */
static void check_graph(void *argument)
{
    const struct forward *f = *(struct forward **)argument;
    const struct data *then = &f->x_data, *now = f->x_desc;
    if (!now->object.alive || now->T != then->T || now->N != then->N ||
        memcmp(now->lengths, then->lengths, (size_t)now->N * sizeof *now->lengths))
        fake_die("cuGraphLaunch: xDesc has changed since it was recorded; the graph has the old "
                 "lengths");
}

static struct data kept(const struct data *data)
{
    struct data copy = *data;
    copy.lengths = malloc((size_t)data->N * sizeof *data->lengths);
    memcpy(copy.lengths, data->lengths, (size_t)data->N * sizeof *data->lengths);
    return copy;
}

static CUdeviceptr address(const void *at)
{
    return (CUdeviceptr)(uintptr_t)at;
}

static cudnnStatus_t send(const struct call *c)
{
    if (fake_sticky())
        return fake_refuse(NO_DEVICE, "the device is dead");
    check_strictly(c);
    struct fake_work work = {.name = "cudnnRNNForward", .run = run, .check = check_graph};
    use_all(c, &work);
    struct forward *forward = malloc(sizeof *forward); /* never freed: a graph may use it */
    *forward = (struct forward){*c->rnn,
                                kept(c->x_desc),
                                kept(c->y_desc),
                                c->x_desc,
                                address(c->x),
                                address(c->y),
                                address(c->hx),
                                address(c->hy),
                                address(c->cx),
                                address(c->cy),
                                address(c->weights),
                                address(c->workspace),
                                workspace_bytes(c->rnn, c->x_desc)};
    memcpy(work.argument, &forward, sizeof forward);
    fake_submit(c->handle->stream, &work);
    return fake_refuse(TAKEN, "");
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t given, cudnnRNNDescriptor_t rnn_desc,
                              cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x_desc, const void *x,
                              cudnnRNNDataDescriptor_t y_desc, void *y,
                              cudnnTensorDescriptor_t h_desc, const void *hx, void *hy,
                              cudnnTensorDescriptor_t c_desc, const void *cx, void *cy,
                              size_t weight_bytes, const void *weights, size_t workspace_nbytes,
                              void *workspace, size_t reserve_nbytes, void *reserve)
{
    const char *name = "cudnnRNNForward";
    USES_HANDLE(given, name);
    CUDNN_CALL("cudnnRNNForward", 1,
               "handle=%p rnn=%p mode=%d lengths=%p x_desc=%p x=%p y_desc=%p y=%p hx=%p hy=%p "
               "cx=%p cy=%p weight_bytes=%zu weights=%p workspace_bytes=%zu workspace=%p",
               (void *)given, (void *)rnn_desc, (int)mode, (const void *)lengths, (void *)x_desc, x,
               (void *)y_desc, y, hx, hy, cx, cy, weight_bytes, weights, workspace_nbytes,
               workspace);
    if (!given || !rnn_desc || !x_desc || !y_desc)
        return fake_refuse(WRONG, "handle, rnnDesc, xDesc or yDesc is NULL");
    struct call c = {given,
                     fake_handle(given, name),
                     fake_object(rnn_desc, FAKE_RNN, name),
                     fake_object(x_desc, FAKE_RNN_DATA, name),
                     fake_object(y_desc, FAKE_RNN_DATA, name),
                     h_desc ? fake_object(h_desc, FAKE_TENSOR, name) : NULL,
                     c_desc ? fake_object(c_desc, FAKE_TENSOR, name) : NULL,
                     (int)mode,
                     x,
                     hx,
                     cx,
                     weights,
                     y,
                     hy,
                     cy,
                     workspace,
                     reserve,
                     weight_bytes,
                     workspace_nbytes,
                     reserve_nbytes};
    cudnnStatus_t status = check(&c);
    if (status)
        return status;
    return c.handle ? send(&c) : fake_refuse(NO_DEVICE, "no device");
}
