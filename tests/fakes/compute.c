/* The computation of cudnnRNNForward by the slow recurrence of c/cpu/slow.c, in double, from the
 * weight space; what is stored is rounded to the RNN's type. */
#include "core/dtype.h"
#include "cpu/problem.h"
#include "fake.h"

#include <stdlib.h>
#include <string.h>

/* ---- arrays in the RNN's type ---- */

static rnl_dtype dtype_of(const struct fake_rnn *rnn)
{
    static const rnl_dtype dtypes[] = {[RNL_CUDNN_DATA_HALF] = RNL_FLOAT16,
                                       [RNL_CUDNN_DATA_BFLOAT16] = RNL_BFLOAT16,
                                       [RNL_CUDNN_DATA_FLOAT] = RNL_FLOAT32,
                                       [RNL_CUDNN_DATA_DOUBLE] = RNL_FLOAT64};
    return dtypes[rnn->type];
}

static char *use(rnl_cu_address at, int64_t nelems, rnl_dtype dtype, int write, const char *what)
{
    const int64_t nbytes = rnl_dtype_nbytes(dtype);
    if (at % (rnl_cu_address)nbytes)
        fake_die("%s: %llx is not a multiple of %d", what, at, (int)nbytes);
    return at ? fake_use(at, (size_t)(nelems * nbytes), write, what) : NULL;
}

/* Numbers as doubles, which the caller frees; zeros if there are none. */
static double *read_all(rnl_cu_address at, int64_t nelems, rnl_dtype dtype, const char *what)
{
    const char *const from = use(at, nelems, dtype, 0, what);
    double *const values = calloc((size_t)nelems + 1, sizeof *values);
    for (int64_t k = 0; from && k < nelems; k++)
        values[k] = rnl_to_double(dtype, rnl_load_bits(dtype, from + k * rnl_dtype_nbytes(dtype)));
    return values;
}

static void store(char *to, int64_t k, double value, rnl_dtype dtype)
{
    rnl_store_bits(dtype, to + k * rnl_dtype_nbytes(dtype), rnl_from_double(dtype, value));
}

static void write_all(rnl_cu_address at, const double *values, int64_t nelems, rnl_dtype dtype,
                      const char *what)
{
    char *const to = use(at, nelems, dtype, 1, what);
    for (int64_t k = 0; to && k < nelems; k++)
        store(to, k, values[k], dtype);
}

/* ---- the RNN ---- */

static rnl_spec spec_of(const struct fake_rnn *rnn)
{
    static const rnl_cell cells[] = {[RNL_CUDNN_LSTM] = RNL_LSTM,
                                     [RNL_CUDNN_GRU] = RNL_GRU,
                                     [RNL_CUDNN_RNN_TANH] = RNL_RNN_TANH,
                                     [RNL_CUDNN_RNN_RELU] = RNL_RNN_RELU};
    static const rnl_bias biases[] = {[RNL_CUDNN_RNN_DOUBLE_BIAS] = RNL_BIAS_DOUBLE,
                                      [RNL_CUDNN_RNN_SINGLE_INP_BIAS] = RNL_BIAS_INPUT,
                                      [RNL_CUDNN_RNN_SINGLE_REC_BIAS] = RNL_BIAS_RECURRENT,
                                      [RNL_CUDNN_RNN_NO_BIAS] = RNL_BIAS_NONE};
    return (rnl_spec){.cell = cells[rnn->cell],
                      .input_size = rnn->I,
                      .hidden_size = rnn->H,
                      .num_layers = rnn->L,
                      .bidirectional = rnn->directions == 2,
                      .proj_size = rnn->P < rnn->H ? rnn->P : 0,
                      .bias = biases[rnn->bias],
                      .skip_input = rnn->skip};
}

static int64_t num_weights(const struct fake_rnn *rnn)
{
    const int64_t gates = rnn->cell == RNL_CUDNN_LSTM ? 4 : rnn->cell == RNL_CUDNN_GRU ? 3 : 1;
    const int64_t biases = (rnn->bias != RNL_CUDNN_RNN_NO_BIAS) +
                           (rnn->bias == RNL_CUDNN_RNN_DOUBLE_BIAS);
    int64_t count = 0;
    for (int64_t l = 0; l < rnn->L; l++) {
        const int64_t width = l ? rnn->directions * rnn->P : rnn->skip ? 0 : rnn->I;
        count += gates * rnn->H * (width + rnn->P + biases);
        count += rnn->P < rnn->H ? rnn->P * rnn->H : 0;
    }
    return rnn->directions * count;
}

size_t fake_weight_nbytes(const struct fake_rnn *rnn)
{
    return (size_t)(num_weights(rnn) * rnl_dtype_nbytes(dtype_of(rnn)));
}

/* ---- the whole call ---- */

/* The place of a row in x or y; in a problem time is the slower axis. */
static int64_t row_of(const struct fake_data *d, int64_t t, int64_t n)
{
    return d->batch_first ? n * d->T + t : t * d->N + n;
}

void fake_compute(const struct fake_work *work)
{
    const struct fake_forward *const f = work->argument;
    const struct fake_rnn *const rnn = &f->rnn;
    const rnl_dtype type = dtype_of(rnn);
    const int64_t T = f->x_data.T, N = f->x_data.N, I = rnn->I, wide = rnn->directions * rnn->P;
    const int64_t states = rnn->L * rnn->directions * N;
    memset(fake_use(f->work, f->work_nbytes, 1, "workSpace"), 0xff, f->work_nbytes);
    problem p = {.spec = spec_of(rnn),
                 .T = T,
                 .N = N,
                 .D = rnn->directions,
                 .H = rnn->H,
                 .S = rnn->P,
                 .num_weights = num_weights(rnn),
                 .weights = read_all(f->weights, num_weights(rnn), type, "weightSpace"),
                 .x = calloc((size_t)(T * N * I), sizeof *p.x),
                 .h0 = read_all(f->hx, states * rnn->P, type, "hx"),
                 .c0 = read_all(f->cx, states * rnn->H, type, "cx"),
                 .lengths = calloc((size_t)N, sizeof *p.lengths),
                 .has_lengths = true,
                 .has_states = true};
    double *const x = read_all(f->x, T * N * I, type, "x");
    for (int64_t n = 0; n < N; n++) {
        p.lengths[n] = f->x_data.lengths[n];
        for (int64_t t = 0; t < T; t++)
            memcpy(p.x + (t * N + n) * I, x + row_of(&f->x_data, t, n) * I, (size_t)I * sizeof *x);
    }
    /* the last state of a sequence without steps is 0: cuDNN 9.19 on an H200 */
    for (int64_t row = 0; row < states; row++)
        if (p.lengths[row % N] == 0) {
            memset(p.h0 + row * rnn->P, 0, (size_t)rnn->P * sizeof *p.h0);
            memset(p.c0 + row * rnn->H, 0, (size_t)rnn->H * sizeof *p.c0);
        }
    answer a = slow(&p);
    char *const y = use(f->y, T * N * wide, type, 1, "y");
    for (int64_t n = 0; n < N; n++) /* past the end y is zero, or, without a fill, what it was */
        for (int64_t t = 0; t < (f->y_data.has_fill ? T : p.lengths[n]); t++)
            for (int64_t k = 0; k < wide; k++)
                store(y, row_of(&f->y_data, t, n) * wide + k, a.y[(t * N + n) * wide + k], type);
    write_all(f->hy, a.hn, states * rnn->P, type, "hy");
    write_all(f->cy, a.cn, states * rnn->H, type, "cy");
    answer_free(&a);
    free(x);
    free(p.x);
    free(p.weights);
    free(p.h0);
    free(p.c0);
    free(p.lengths);
}
