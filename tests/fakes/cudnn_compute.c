/*
 * The computation of cudnnRNNForward, in double: weights and inputs are exact in double, and each
 * stored number is rounded once, to the RNN's type.
 *
 *     lstm  i f g o     c' = f clip(c) + i g,  h' = P (o tanh(clip(c'))),  and cy is not clipped
 *     gru   r z n       h' = (1 - z) n + z h,  n = tanh(W x + bW + r (R h + bR))
 *     rnn               h' = tanh or relu (W x + bW + R h + bR)
 */
#include "cudnn_fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static double get(const void *from, int64_t i, int dtype)
{
    uint16_t half;
    uint32_t word;
    float value;
    switch (dtype) {
    case FLOAT: return ((const float *)from)[i];
    case DOUBLE: return ((const double *)from)[i];
    case BFLOAT16:
        word = (uint32_t)((const uint16_t *)from)[i] << 16;
        memcpy(&value, &word, sizeof value);
        return value;
    default: break;
    }
    half = ((const uint16_t *)from)[i];
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double size = exponent == 31  ? fraction ? NAN : INFINITY
                  : exponent == 0 ? ldexp(fraction, -24)
                                  : ldexp(1024 + fraction, exponent - 25);
    return half >> 15 ? -size : size;
}

/* The bits of a number in a 16-bit format, rounded to nearest, ties to even.
 * fraction: its number of bits; least: the exponent of the smallest normal number. */
static uint16_t bits16(double value, int fraction, int least)
{
    int exponent, top = (1 << (15 - fraction)) - 1; /* the exponent's bits of infinity */
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return (uint16_t)(sign | top << fraction | 1 << (fraction - 1));
    if (isinf(value))
        return (uint16_t)(sign | top << fraction);
    frexp(value, &exponent);
    exponent = value == 0 || exponent - 1 < least ? least : exponent - 1;
    /* in units of the last place; a carry into the next exponent is right as it comes */
    uint32_t units = (uint32_t)nearbyint(ldexp(fabs(value), fraction - exponent));
    uint32_t bits = units + ((uint32_t)(exponent - least) << fraction);
    uint32_t infinity = (uint32_t)top << fraction;
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

static void put(void *to, int64_t i, int dtype, double value)
{
    switch (dtype) {
    case FLOAT: ((float *)to)[i] = (float)value; break;
    case DOUBLE: ((double *)to)[i] = value; break;
    case HALF: ((uint16_t *)to)[i] = bits16(value, 10, -14); break;
    default: ((uint16_t *)to)[i] = bits16(value, 7, -126); break;
    }
}

static double *new_doubles(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static double *read_all(CUdeviceptr at, int64_t count, int dtype, const char *what)
{
    double *values = new_doubles(count);
    if (at) {
        const void *from = fake_bytes(at, (size_t)count * fake_dtype_bytes(dtype), what);
        for (int64_t i = 0; i < count; i++)
            values[i] = get(from, i, dtype);
    }
    return values;
}

static void write_all(CUdeviceptr at, const double *values, int64_t count, int dtype,
                      const char *what)
{
    if (!at)
        return;
    void *to = fake_bytes(at, (size_t)count * fake_dtype_bytes(dtype), what);
    for (int64_t i = 0; i < count; i++)
        put(to, i, dtype, values[i]);
}

/* ---- one pseudo-layer ---- */

struct layer {
    const struct rnn *rnn;
    const double *space; /* all weights */
    int64_t number, width;
};

/* a row of a matrix times a vector; the identity if skip input has no matrix */
static double product(const struct layer *layer, int64_t id, int64_t row, const double *vector)
{
    struct piece_at m = fake_matrix(layer->rnn, layer->number, id);
    if (!m.rows)
        return vector[row];
    double sum = 0;
    for (int64_t i = 0; i < m.cols; i++)
        sum += layer->space[m.at + row * m.cols + i] * vector[i];
    return sum;
}

static double bias(const struct layer *layer, int64_t id, int64_t row)
{
    struct piece_at b = fake_bias(layer->rnn, layer->number, id);
    return b.rows ? layer->space[b.at + row] : 0;
}

static double from_x(const struct layer *layer, int64_t gate, int64_t row, const double *x)
{
    return product(layer, gate, row, x) + bias(layer, gate, row);
}

static double from_h(const struct layer *layer, int64_t gate, int64_t row, const double *h)
{
    gate += fake_gates(layer->rnn);
    return product(layer, gate, row, h) + bias(layer, gate, row);
}

static double both(const struct layer *layer, int64_t gate, int64_t row, const double *x,
                   const double *h)
{
    return from_x(layer, gate, row, x) + from_h(layer, gate, row, h);
}

static double sigmoid(double a)
{
    return 1 / (1 + exp(-a));
}

/* The cell state as it is read; the bounds are floats for every type. */
static double clipped(const struct rnn *rnn, double c)
{
    if (rnn->clip_mode != CLIP_MINMAX)
        return c;
    double low = (float)rnn->clip_low, high = (float)rnn->clip_high;
    return c < low ? low : c > high ? high : c;
}

/* Advance h (P) and c (H) by one step; next has room for H. */
static void step(const struct layer *layer, const double *x, double *h, double *c, double *next)
{
    const struct rnn *rnn = layer->rnn;
    int64_t H = rnn->hidden_size;
    for (int64_t j = 0; j < H; j++) {
        if (rnn->cell == CELL_LSTM) {
            double i = sigmoid(both(layer, 0, j, x, h)), f = sigmoid(both(layer, 1, j, x, h));
            double g = tanh(both(layer, 2, j, x, h)), o = sigmoid(both(layer, 3, j, x, h));
            c[j] = f * clipped(rnn, c[j]) + i * g;
            next[j] = o * tanh(clipped(rnn, c[j]));
        } else if (rnn->cell == CELL_GRU) {
            double r = sigmoid(both(layer, 0, j, x, h)), z = sigmoid(both(layer, 1, j, x, h));
            double n = tanh(from_x(layer, 2, j, x) + r * from_h(layer, 2, j, h));
            next[j] = (1 - z) * n + z * h[j];
        } else {
            double a = both(layer, 0, j, x, h);
            next[j] = rnn->cell == CELL_TANH ? tanh(a) : a > 0 ? a : 0;
        }
    }
    int is_projected = rnn->proj_size < H;
    for (int64_t p = 0; p < rnn->proj_size; p++)
        h[p] = is_projected ? product(layer, 2 * fake_gates(rnn), p, next) : next[p];
}

/* All steps of one sequence: x and y begin at its first step and advance by `*_step`. The reverse
 * direction begins at the end of the sequence. */
static void run_sequence(const struct layer *layer, int backward, int length, const double *x,
                         int64_t x_step, double *y, int64_t y_step, double *h, double *c)
{
    double *next = new_doubles(layer->rnn->hidden_size);
    for (int k = 0; k < length; k++) {
        int t = backward ? length - 1 - k : k;
        step(layer, x + t * x_step, h, c, next);
        memcpy(y + t * y_step, h, (size_t)layer->rnn->proj_size * sizeof *h);
    }
    free(next);
}

/* ---- where x and y are in memory ---- */

/* The row of step t of sequence n. */
static int64_t row_of(const struct data *data, int t, int n)
{
    return data->layout == LAYOUT_SEQ ? (int64_t)t * data->N + n : (int64_t)n * data->T + t;
}

/* x as (N, T, width) in double; x past the end of a sequence is not read. */
static double *read_x(const struct forward *f)
{
    const struct data *d = &f->x_data;
    int64_t rows = fake_data_rows(d), T = d->T, width = d->width;
    const void *from = fake_bytes(f->x, (size_t)(rows * width) * fake_dtype_bytes(d->dtype), "x");
    double *x = new_doubles(T * d->N * width);
    for (int n = 0; n < d->N; n++)
        for (int t = 0; t < d->lengths[n]; t++)
            for (int64_t i = 0; i < width; i++)
                x[(n * T + t) * width + i] = get(from, row_of(d, t, n) * width + i, d->dtype);
    return x;
}

/* Past the end: the fill; without one y is not written. */
static void write_y(const struct forward *f, const double *y)
{
    const struct data *d = &f->y_data;
    size_t unit = fake_dtype_bytes(d->dtype);
    int64_t T = d->T, width = d->width;
    char *to = fake_bytes(f->y, (size_t)(fake_data_rows(d) * width) * unit, "y");
    for (int n = 0; n < d->N; n++)
        for (int t = 0; t < T; t++) {
            int is_past = t >= d->lengths[n];
            if (is_past && !d->has_fill)
                continue;
            int64_t row = row_of(d, t, n) * width;
            for (int64_t i = 0; i < width; i++)
                if (is_past)
                    memcpy(to + (size_t)(row + i) * unit, d->fill, unit);
                else
                    put(to, row + i, d->dtype, y[(n * T + t) * width + i]);
        }
}

/* ---- the whole call ---- */

void fake_compute(const struct forward *f)
{
    const struct rnn *rnn = &f->rnn;
    int64_t D = fake_directions(rnn), all = rnn->layers * D, N = f->x_data.N, T = f->x_data.T;
    int64_t H = rnn->hidden_size, P = rnn->proj_size, width = rnn->input_size;
    memset(fake_bytes(f->workspace, f->workspace_bytes, "workSpace"), 0xff, f->workspace_bytes);
    int is_lstm = rnn->cell == CELL_LSTM;
    double *space = read_all(f->weights, fake_weight_elements(rnn), rnn->dtype, "weightSpace");
    double *h = read_all(f->hx, all * N * P, rnn->dtype, "hx");
    double *c = read_all(is_lstm ? f->cx : 0, all * N * H, rnn->dtype, "cx");
    double *x = read_x(f);
    for (int64_t l = 0; l < rnn->layers; l++) {
        double *y = new_doubles(N * T * D * P);
        for (int64_t p = l * D; p < (l + 1) * D; p++) {
            struct layer layer = {rnn, space, p, width};
            for (int64_t n = 0; n < N; n++)
                run_sequence(&layer, p > l * D, f->x_data.lengths[n], x + n * T * width, width,
                             y + n * T * D * P + (p - l * D) * P, D * P, h + (p * N + n) * P,
                             c + (p * N + n) * H);
        }
        free(x);
        x = y;
        width = D * P;
    }
    write_y(f, x);
    write_all(f->hy, h, all * N * P, rnn->dtype, "hy");
    write_all(is_lstm ? f->cy : 0, c, all * N * H, rnn->dtype, "cy");
    free(x);
    free(c);
    free(h);
    free(space);
}
