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
#include "fake_cudnn.h"
#include "kernels/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

size_t fake_unit(rnl_cudnn_data_type type)
{
    return type == RNL_CUDNN_DATA_DOUBLE ? 8 : type == RNL_CUDNN_DATA_FLOAT ? 4 : 2;
}

static double get(const void *from, int64_t i, rnl_cudnn_data_type type)
{
    switch (type) {
    case RNL_CUDNN_DATA_FLOAT: return ((const float *)from)[i];
    case RNL_CUDNN_DATA_DOUBLE: return ((const double *)from)[i];
    case RNL_CUDNN_DATA_HALF: return as_float(float_of_half(((const uint16_t *)from)[i]));
    default: return as_float(float_of_bfloat(((const uint16_t *)from)[i]));
    }
}

static void put(void *to, int64_t i, rnl_cudnn_data_type type, double value)
{
    const float_bits bits = bits_of_float((float)value);
    switch (type) {
    case RNL_CUDNN_DATA_FLOAT: ((float *)to)[i] = (float)value; break;
    case RNL_CUDNN_DATA_DOUBLE: ((double *)to)[i] = value; break;
    case RNL_CUDNN_DATA_HALF: ((uint16_t *)to)[i] = half_of_float(bits); break;
    default: ((uint16_t *)to)[i] = bfloat_of_float(bits); break;
    }
}

/* The numbers at an address, or zeros. */
static double *read_all(rnl_cu_address at, int64_t count, rnl_cudnn_data_type type)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    const void *from = at ? fake_bytes(at, (size_t)count * fake_unit(type), "an input") : NULL;
    for (int64_t i = 0; from && i < count; i++)
        values[i] = get(from, i, type);
    return values;
}

static void write_all(rnl_cu_address at, const double *values, int64_t count,
                      rnl_cudnn_data_type type)
{
    void *to = at ? fake_bytes(at, (size_t)count * fake_unit(type), "an output") : NULL;
    for (int64_t i = 0; to && i < count; i++)
        put(to, i, type, values[i]);
}

/* ---- the weight space ---- */

int64_t fake_gates(const struct rnn *rnn)
{
    return rnn->cell == RNL_CUDNN_LSTM ? 4 : rnn->cell == RNL_CUDNN_GRU ? 3 : 1;
}

/* The width of what a layer's matrices multiply; 0: layer 0 adds x without a matrix. */
static int64_t width_of(const struct rnn *rnn, int64_t layer)
{
    return layer ? rnn->directions * rnn->proj_size : rnn->skip ? 0 : rnn->input_size;
}

static int64_t num_in_matrices(const struct rnn *rnn, int64_t layer)
{
    const int64_t H = rnn->hidden_size, P = rnn->proj_size;
    return fake_gates(rnn) * H * (width_of(rnn, layer) + P) + (P < H ? P * H : 0);
}

static int64_t num_in_biases(const struct rnn *rnn)
{
    const int kinds = rnn->bias == RNL_CUDNN_RNN_DOUBLE_BIAS ? 2
                                                             : rnn->bias != RNL_CUDNN_RNN_NO_BIAS;
    return kinds * fake_gates(rnn) * rnn->hidden_size;
}

int64_t fake_num_weights(const struct rnn *rnn)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < rnn->layers; l++)
        sum += rnn->directions * (num_in_matrices(rnn, l) + num_in_biases(rnn));
    return sum;
}

/* A pseudo-layer; bW, bR, P: NULL if it has none. */
struct layer {
    const struct rnn *rnn;
    const double *W, *R, *P, *bW, *bR;
    int64_t width;
};

/* ---- one pseudo-layer ---- */

static double product(const double *matrix, int64_t row, const double *vector, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += matrix[row * count + i] * vector[i];
    return sum;
}

static double from_x(const struct layer *l, int64_t gate, int64_t j, const double *x)
{
    const int64_t row = gate * l->rnn->hidden_size + j;
    return (l->width ? product(l->W, row, x, l->width) : x[j]) + (l->bW ? l->bW[row] : 0);
}

static double from_h(const struct layer *l, int64_t gate, int64_t j, const double *h)
{
    const int64_t row = gate * l->rnn->hidden_size + j;
    return product(l->R, row, h, l->rnn->proj_size) + (l->bR ? l->bR[row] : 0);
}

static double sigmoid(double a)
{
    return 1 / (1 + exp(-a));
}

/* Advance h (P) and c (H) by one step; next has room for H. */
static void step(const struct layer *l, const double *x, double *h, double *c, double *next)
{
    const struct rnn *rnn = l->rnn;
    const int64_t H = rnn->hidden_size, G = fake_gates(rnn);
    for (int64_t j = 0; j < H; j++) {
        double a[4]; /* of each gate; of a GRU's n only what x gives */
        for (int64_t g = 0; g < G; g++)
            a[g] = from_x(l, g, j, x) + (g == 2 && G == 3 ? 0 : from_h(l, g, j, h));
        if (rnn->cell == RNL_CUDNN_LSTM) {
            c[j] = sigmoid(a[1]) * c[j] + sigmoid(a[0]) * tanh(a[2]);
            next[j] = sigmoid(a[3]) * tanh(c[j]);
        } else if (rnn->cell == RNL_CUDNN_GRU) {
            const double z = sigmoid(a[1]), n = tanh(a[2] + sigmoid(a[0]) * from_h(l, 2, j, h));
            next[j] = (1 - z) * n + z * h[j];
        } else {
            next[j] = rnn->cell == RNL_CUDNN_RNN_TANH ? tanh(a[0]) : a[0] > 0 ? a[0] : 0;
        }
    }
    for (int64_t p = 0; p < rnn->proj_size; p++)
        h[p] = l->P ? product(l->P, p, next, H) : next[p];
}

/* The steps of a batch, each sequence to its length; the reverse direction begins there. x and y
 * are in the order of the call; `first`: where this direction's part of a row of y begins. */
static void run_batch(const struct layer *layer, int backward, const struct data *d,
                      const double *x, int64_t x_width, double *y, int64_t y_width, int64_t first,
                      double *h, double *c)
{
    const int64_t P = layer->rnn->proj_size, H = layer->rnn->hidden_size;
    double *next = calloc((size_t)H, sizeof *next);
    for (int64_t n = 0; n < d->N; n++) {
        if (d->lengths[n] == 0) { /* cuDNN 9.19 on an H200 does so */
            memset(h + n * P, 0, (size_t)P * sizeof *h);
            memset(c + n * H, 0, (size_t)H * sizeof *c);
        }
        for (int64_t k = 0; k < d->lengths[n]; k++) {
            const int64_t t = backward ? d->lengths[n] - 1 - k : k;
            const int64_t row = d->batch_first ? n * d->T + t : t * d->N + n;
            step(layer, x + row * x_width, h + n * P, c + n * H, next);
            memcpy(y + row * y_width + first, h + n * P, (size_t)P * sizeof *h);
        }
    }
    free(next);
}

/* ---- the whole call ---- */

void fake_compute(const struct forward *f)
{
    const struct rnn *rnn = &f->rnn;
    const int64_t D = rnn->directions, N = f->x_data.N, rows = N * f->x_data.T;
    const int64_t H = rnn->hidden_size, P = rnn->proj_size, G = fake_gates(rnn);
    const int64_t all = rnn->layers * D, count = fake_num_weights(rnn), biased = num_in_biases(rnn);
    memset(fake_bytes(f->work, f->work_nbytes, "workSpace"), 0xff, f->work_nbytes);
    double *const space = read_all(f->weights, count, rnn->type);
    double *x = read_all(f->x, rows * rnn->input_size, rnn->type);
    double *const h = read_all(f->hx, all * N * P, rnn->type);
    double *const c = read_all(f->cx, all * N * H, rnn->type);
    const double *matrices = space, *biases = space + count - all * biased;
    const int has_bW = biased && rnn->bias != RNL_CUDNN_RNN_SINGLE_REC_BIAS;
    const int has_bR = biased && rnn->bias != RNL_CUDNN_RNN_SINGLE_INP_BIAS;
    for (int64_t l = 0; l < rnn->layers; l++) {
        const int64_t width = width_of(rnn, l);
        /* past the end y is zero, or, without a fill, what it was */
        const int keeps = l + 1 == rnn->layers && !f->y_data.has_fill;
        double *y = read_all(keeps ? f->y : 0, rows * D * P, rnn->type);
        for (int64_t d = 0; d < D; d++) {
            const double *R = matrices + G * H * width;
            const struct layer layer = {rnn,
                                        matrices,
                                        R,
                                        P < H ? R + G * H * P : NULL,
                                        has_bW ? biases : NULL,
                                        has_bR ? biases + has_bW * G * H : NULL,
                                        width};
            const int64_t state = (l * D + d) * N;
            run_batch(&layer, d == 1, &f->x_data, x, l ? D * P : rnn->input_size, y, D * P, d * P,
                      h + state * P, c + state * H);
            matrices += num_in_matrices(rnn, l);
            biases += biased;
        }
        free(x);
        x = y;
    }
    write_all(f->y, x, rows * D * P, rnn->type);
    write_all(f->hy, h, all * N * P, rnn->type);
    write_all(f->cy, c, all * N * H, rnn->type);
    free(x);
    free(c);
    free(h);
    free(space);
}
