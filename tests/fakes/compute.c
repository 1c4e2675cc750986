/*
 * The computation of cudnnRNNForward, in double: weights and inputs are exact in double, and each
 * stored number is rounded once, to the RNN's type.
 *
 *     lstm  i f g o     c' = f c + i g,  h' = P (o tanh(c'))
 *     gru   r z n       h' = (1 - z) n + z h,  n = tanh(W x + bW + r (R h + bR))
 *     rnn               h' = tanh or relu (W x + bW + R h + bR)
 *
 * The weight space: all matrices by pseudo-layers (of each gate for the input, of each gate for the
 * state, the projection), then all biases in the same order.
 */
#include "fake_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

size_t fake_unit(rnl_cudnn_data_type type)
{
    return type == RNL_CUDNN_DATA_DOUBLE ? 8 : type == RNL_CUDNN_DATA_FLOAT ? 4 : 2;
}

/* A 16-bit number: how many bits its fraction has, and the exponent of its smallest normal. */
struct format {
    int fraction, least;
};
static const struct format HALF = {10, -14}, BFLOAT16 = {7, -126};

static double from_bits(uint16_t bits, struct format f)
{
    const int top = (1 << (15 - f.fraction)) - 1, exponent = bits >> f.fraction & top;
    const int fraction = bits & ((1 << f.fraction) - 1);
    const double one = 1 << f.fraction;
    const double size = exponent == top ? fraction ? NAN : INFINITY
                        : exponent      ? ldexp(1 + fraction / one, exponent - 1 + f.least)
                                        : ldexp(fraction / one, f.least);
    return bits >> 15 ? -size : size;
}

/* Rounded to nearest, ties to even. */
static uint16_t to_bits(double value, struct format f)
{
    const uint32_t infinity = (uint32_t)((1 << (15 - f.fraction)) - 1) << f.fraction;
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    if (isnan(value))
        return (uint16_t)(sign | infinity | 1);
    if (isinf(value))
        return (uint16_t)(sign | infinity);
    frexp(value, &exponent);
    exponent = value == 0 || exponent - 1 < f.least ? f.least : exponent - 1;
    /* in units of the last place; a carry into the next exponent is right as it comes */
    const uint32_t units = (uint32_t)nearbyint(ldexp(fabs(value), f.fraction - exponent));
    const uint32_t bits = units + ((uint32_t)(exponent - f.least) << f.fraction);
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

static double get(const void *from, int64_t i, rnl_cudnn_data_type type)
{
    switch (type) {
    case RNL_CUDNN_DATA_FLOAT: return ((const float *)from)[i];
    case RNL_CUDNN_DATA_DOUBLE: return ((const double *)from)[i];
    case RNL_CUDNN_DATA_HALF: return from_bits(((const uint16_t *)from)[i], HALF);
    default: return from_bits(((const uint16_t *)from)[i], BFLOAT16);
    }
}

static void put(void *to, int64_t i, rnl_cudnn_data_type type, double value)
{
    switch (type) {
    case RNL_CUDNN_DATA_FLOAT: ((float *)to)[i] = (float)value; break;
    case RNL_CUDNN_DATA_DOUBLE: ((double *)to)[i] = value; break;
    case RNL_CUDNN_DATA_HALF: ((uint16_t *)to)[i] = to_bits(value, HALF); break;
    default: ((uint16_t *)to)[i] = to_bits(value, BFLOAT16); break;
    }
}

static double *new_doubles(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static double *read_all(rnl_cu_address at, int64_t count, rnl_cudnn_data_type type)
{
    double *values = new_doubles(count);
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

/* All steps of one sequence; x and y advance by `*_step`. The reverse direction begins at the end
 * of the sequence. */
static void run_sequence(const struct layer *layer, int backward, int length, const double *x,
                         int64_t x_step, double *y, int64_t y_step, double *h, double *c)
{
    double *next = new_doubles(layer->rnn->hidden_size);
    if (length == 0) { /* cuDNN 9.19 on an H200 does so */
        memset(h, 0, (size_t)layer->rnn->proj_size * sizeof *h);
        memset(c, 0, (size_t)layer->rnn->hidden_size * sizeof *c);
    }
    for (int k = 0; k < length; k++) {
        const int t = backward ? length - 1 - k : k;
        step(layer, x + t * x_step, h, c, next);
        memcpy(y + t * y_step, h, (size_t)layer->rnn->proj_size * sizeof *h);
    }
    free(next);
}

/* ---- the whole call ---- */

/* The row of step t of sequence n in memory. */
static int64_t row_of(const struct data *d, int64_t t, int64_t n)
{
    return d->batch_first ? n * d->T + t : t * d->N + n;
}

/* x as (N, T, width); x past the end of a sequence is not read. */
static double *read_x(const struct forward *f)
{
    const struct data *d = &f->x_data;
    const int64_t T = d->T, width = d->width;
    const void *from = fake_bytes(f->x, 1, "x");
    double *x = new_doubles(T * d->N * width);
    for (int64_t n = 0; n < d->N; n++)
        for (int64_t t = 0; t < d->lengths[n]; t++)
            for (int64_t i = 0; i < width; i++)
                x[(n * T + t) * width + i] = get(from, row_of(d, t, n) * width + i, d->type);
    return x;
}

/* Past the end zeros; without a fill y is not written there. */
static void write_y(const struct forward *f, const double *y)
{
    const struct data *d = &f->y_data;
    const int64_t T = d->T, width = d->width;
    void *to = fake_bytes(f->y, 1, "y");
    for (int64_t n = 0; n < d->N; n++)
        for (int64_t t = 0; t < (d->has_fill ? T : d->lengths[n]); t++)
            for (int64_t i = 0; i < width; i++)
                put(to, row_of(d, t, n) * width + i, d->type,
                    t < d->lengths[n] ? y[(n * T + t) * width + i] : 0);
}

void fake_compute(const struct forward *f)
{
    const struct rnn *rnn = &f->rnn;
    const int64_t D = rnn->directions, N = f->x_data.N, T = f->x_data.T, G = fake_gates(rnn);
    const int64_t H = rnn->hidden_size, P = rnn->proj_size, all = rnn->layers * D;
    const int64_t count = fake_num_weights(rnn);
    memset(fake_bytes(f->work, f->work_nbytes, "workSpace"), 0xff, f->work_nbytes);
    double *space = read_all(f->weights, count, rnn->type), *x = read_x(f);
    double *h = read_all(f->hx, all * N * P, rnn->type),
           *c = read_all(f->cx, all * N * H, rnn->type);
    const double *matrices = space, *biases = space + count - all * num_in_biases(rnn);
    const int has_bW = rnn->bias == RNL_CUDNN_RNN_DOUBLE_BIAS ||
                       rnn->bias == RNL_CUDNN_RNN_SINGLE_INP_BIAS;
    const int has_bR = rnn->bias == RNL_CUDNN_RNN_DOUBLE_BIAS ||
                       rnn->bias == RNL_CUDNN_RNN_SINGLE_REC_BIAS;
    for (int64_t l = 0; l < rnn->layers; l++) {
        const int64_t width = width_of(rnn, l), x_step = l ? D * P : rnn->input_size;
        double *y = new_doubles(N * T * D * P);
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
            for (int64_t n = 0; n < N; n++)
                run_sequence(&layer, d == 1, f->x_data.lengths[n], x + n * T * x_step, x_step,
                             y + n * T * D * P + d * P, D * P, h + (state + n) * P,
                             c + (state + n) * H);
            matrices += num_in_matrices(rnn, l);
            biases += num_in_biases(rnn);
        }
        free(x);
        x = y;
    }
    write_y(f, x);
    write_all(f->hy, h, all * N * P, rnn->type);
    write_all(f->cy, c, all * N * H, rnn->type);
    free(x);
    free(c);
    free(h);
    free(space);
}
