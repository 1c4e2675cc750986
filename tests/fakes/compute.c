/*
 * The computation of cudnnRNNForward, in double; what is stored is rounded to the RNN's type.
 *
 *     lstm  i f g o     c' = f c + i g,  h' = P (o tanh(c'))
 *     gru   r z n       h' = (1 - z) n + z h,  n = tanh(W x + bW + r (R h + bR))
 *     rnn               h' = tanh or relu (W x + bW + R h + bR)
 *
 * The weight space: all matrices by pseudo-layers (of each gate for the input, of each gate for the
 * state, the projection), then all biases in the same order.
 */
#include "fake.h"
#include "kernels/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- arrays in the RNN's type ---- */

static size_t unit_of(rnl_cudnn_data_type type)
{
    return type == RNL_CUDNN_DATA_DOUBLE ? 8 : type == RNL_CUDNN_DATA_FLOAT ? 4 : 2;
}

static void *use(rnl_cu_address at, int64_t nelems, rnl_cudnn_data_type type, int write,
                 const char *what)
{
    if (at % unit_of(type))
        fake_die("%s: %llx is not a multiple of %zu", what, at, unit_of(type));
    return at ? fake_use(at, (size_t)nelems * unit_of(type), write, what) : NULL;
}

/* Numbers as doubles; zeros if there are none. */
static double *read_all(const void *from, int64_t nelems, rnl_cudnn_data_type type)
{
    double *values = calloc((size_t)nelems + 1, sizeof *values);
    const uint16_t *const bits = from;
    for (int64_t i = 0; from && i < nelems; i++)
        values[i] = type == RNL_CUDNN_DATA_DOUBLE  ? ((const double *)from)[i]
                    : type == RNL_CUDNN_DATA_FLOAT ? ((const float *)from)[i]
                    : type == RNL_CUDNN_DATA_HALF  ? as_float(float_of_half(bits[i]))
                                                   : as_float(float_of_bfloat(bits[i]));
    return values;
}

static void write_all(void *to, const double *values, int64_t nelems, rnl_cudnn_data_type type)
{
    for (int64_t i = 0; to && i < nelems; i++) {
        const float_bits bits = bits_of_float((float)values[i]);
        switch (type) {
        case RNL_CUDNN_DATA_DOUBLE: ((double *)to)[i] = values[i]; break;
        case RNL_CUDNN_DATA_FLOAT: ((float *)to)[i] = (float)values[i]; break;
        case RNL_CUDNN_DATA_HALF: ((uint16_t *)to)[i] = half_of_float(bits); break;
        default: ((uint16_t *)to)[i] = bfloat_of_float(bits); break;
        }
    }
}

/* ---- the weight space ---- */

static int64_t gates_of(const struct fake_rnn *rnn)
{
    return rnn->cell == RNL_CUDNN_LSTM ? 4 : rnn->cell == RNL_CUDNN_GRU ? 3 : 1;
}

/* The width of what a layer's matrices multiply; 0: layer 0 adds x without a matrix. */
static int64_t width_of(const struct fake_rnn *rnn, int64_t layer)
{
    return layer ? rnn->directions * rnn->P : rnn->skip ? 0 : rnn->I;
}

static int64_t num_in_matrices(const struct fake_rnn *rnn, int64_t layer)
{
    return gates_of(rnn) * rnn->H * (width_of(rnn, layer) + rnn->P) +
           (rnn->P < rnn->H ? rnn->P * rnn->H : 0);
}

static int64_t num_weights(const struct fake_rnn *rnn, int64_t *matrices)
{
    const int kinds = rnn->bias == RNL_CUDNN_RNN_DOUBLE_BIAS ? 2
                                                             : rnn->bias != RNL_CUDNN_RNN_NO_BIAS;
    *matrices = 0;
    for (int64_t l = 0; l < rnn->L; l++)
        *matrices += rnn->directions * num_in_matrices(rnn, l);
    return *matrices + rnn->L * rnn->directions * kinds * gates_of(rnn) * rnn->H;
}

size_t fake_weight_nbytes(const struct fake_rnn *rnn)
{
    int64_t matrices;
    return (size_t)num_weights(rnn, &matrices) * unit_of(rnn->type);
}

/* ---- one pseudo-layer ---- */

/* bW, bR, projection: NULL if it has none. */
struct layer {
    const struct fake_rnn *rnn;
    const double *W, *R, *projection, *bW, *bR;
    int64_t width;
};

/* A row of a matrix times a vector, and its bias. */
static double product(const double *matrix, const double *bias, int64_t row, const double *vector,
                      int64_t width)
{
    double sum = bias ? bias[row] : 0;
    for (int64_t i = 0; i < width; i++)
        sum += matrix[row * width + i] * vector[i];
    return sum;
}

static double sigmoid(double a)
{
    return 1 / (1 + exp(-a));
}

/* Advance h (P) and c (H) by one step; next has room for H. */
static void step(const struct layer *l, const double *x, double *h, double *c, double *next)
{
    const int64_t H = l->rnn->H, P = l->rnn->P, G = gates_of(l->rnn);
    for (int64_t j = 0; j < H; j++) {
        double a[4], b[4]; /* of each gate, what x gives and what h gives */
        for (int64_t g = 0; g < G; g++) {
            a[g] = product(l->W, l->bW, g * H + j, x, l->width) + (l->width ? 0 : x[j]);
            b[g] = product(l->R, l->bR, g * H + j, h, P);
        }
        switch (l->rnn->cell) {
        case RNL_CUDNN_LSTM:
            c[j] = sigmoid(a[1] + b[1]) * c[j] + sigmoid(a[0] + b[0]) * tanh(a[2] + b[2]);
            next[j] = sigmoid(a[3] + b[3]) * tanh(c[j]);
            break;
        case RNL_CUDNN_GRU: {
            const double z = sigmoid(a[1] + b[1]), n = tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]);
            next[j] = (1 - z) * n + z * h[j];
            break;
        }
        case RNL_CUDNN_RNN_TANH: next[j] = tanh(a[0] + b[0]); break;
        default: next[j] = fmax(a[0] + b[0], 0); break;
        }
    }
    for (int64_t p = 0; p < P; p++)
        h[p] = l->projection ? product(l->projection, NULL, p, next, H) : next[p];
}

/* The steps of a batch, each sequence to its length; the reverse direction begins there. y: this
 * direction's part of the first row. */
static void run_batch(const struct layer *layer, int backward, const struct fake_data *d,
                      const double *x, int64_t x_width, double *y, double *h, double *c)
{
    const int64_t P = layer->rnn->P, H = layer->rnn->H, y_width = layer->rnn->directions * P;
    double *next = calloc((size_t)H, sizeof *next);
    for (int64_t n = 0; n < d->N; n++, h += P, c += H) {
        if (d->lengths[n] == 0) { /* cuDNN 9.19 on an H200 does so */
            memset(h, 0, (size_t)P * sizeof *h);
            memset(c, 0, (size_t)H * sizeof *c);
        }
        for (int64_t k = 0; k < d->lengths[n]; k++) {
            const int64_t t = backward ? d->lengths[n] - 1 - k : k;
            const int64_t row = d->batch_first ? n * d->T + t : t * d->N + n;
            step(layer, x + row * x_width, h, c, next);
            memcpy(y + row * y_width, h, (size_t)P * sizeof *h);
        }
    }
    free(next);
}

/* ---- the whole call ---- */

void fake_compute(const struct fake_work *work)
{
    const struct fake_forward *const f = work->argument;
    const struct fake_rnn *const rnn = &f->rnn;
    const rnl_cudnn_data_type type = rnn->type;
    const int64_t D = rnn->directions, N = f->x_data.N, rows = N * f->x_data.T;
    const int64_t H = rnn->H, P = rnn->P, G = gates_of(rnn), all = rnn->L * D;
    int64_t before_biases;
    const int64_t count = num_weights(rnn, &before_biases);
    const int64_t bW = rnn->bias != RNL_CUDNN_RNN_SINGLE_REC_BIAS && before_biases < count;
    const int64_t bR = rnn->bias != RNL_CUDNN_RNN_SINGLE_INP_BIAS && before_biases < count;
    memset(fake_use(f->work, f->work_nbytes, 1, "workSpace"), 0xff, f->work_nbytes);
    double *const space = read_all(use(f->weights, count, type, 0, "weightSpace"), count, type);
    const double *matrices = space, *biases = space + before_biases;
    double *x = read_all(use(f->x, rows * rnn->I, type, 0, "x"), rows * rnn->I, type);
    double *const h = read_all(use(f->hx, all * N * P, type, 0, "hx"), all * N * P, type);
    double *const c = read_all(use(f->cx, all * N * H, type, 0, "cx"), all * N * H, type);
    void *const to_y = use(f->y, rows * D * P, type, 1, "y");
    for (int64_t l = 0; l < rnn->L; l++) {
        const int64_t width = width_of(rnn, l);
        /* past the end y is zero, or, without a fill, what it was */
        const int keeps = l + 1 == rnn->L && !f->y_data.has_fill;
        double *y = read_all(keeps ? to_y : NULL, rows * D * P, type);
        for (int64_t d = 0; d < D; d++) {
            const double *const R = matrices + G * H * width;
            const struct layer layer = {rnn,
                                        matrices,
                                        R,
                                        P < H ? R + G * H * P : NULL,
                                        bW ? biases : NULL,
                                        bR ? biases + bW * G * H : NULL,
                                        width};
            const int64_t state = (l * D + d) * N;
            run_batch(&layer, d == 1, &f->x_data, x, l ? D * P : rnn->I, y + d * P, h + state * P,
                      c + state * H);
            matrices += num_in_matrices(rnn, l);
            biases += (bW + bR) * G * H;
        }
        free(x);
        x = y;
    }
    write_all(to_y, x, rows * D * P, type);
    write_all(use(f->hy, all * N * P, type, 1, "hy"), h, all * N * P, type);
    write_all(use(f->cy, all * N * H, type, 1, "cy"), c, all * N * H, type);
    free(x);
    free(c);
    free(h);
    free(space);
}
