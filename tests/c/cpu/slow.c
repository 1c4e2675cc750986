#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/problem.h"

enum { MOST = 2048 }; /* units */

answer answer_new(const problem *p)
{
    const int64_t layers = p->spec.num_layers * p->D;
    answer a = {calloc((size_t)(p->T * p->N * p->D * p->S + 1), sizeof(double)),
                calloc((size_t)(layers * p->N * p->S + 1), sizeof(double)),
                calloc((size_t)(layers * p->N * p->H + 1), sizeof(double))};
    if (!a.y || !a.hn || !a.cn)
        abort();
    return a;
}

void answer_free(answer *a)
{
    free(a->y);
    free(a->hn);
    free(a->cn);
}

static int gates_of(rnl_cell cell)
{
    return cell == RNL_LSTM ? 4 : cell == RNL_GRU ? 3 : 1;
}

static double gate_of(const problem *p, double a)
{
    switch (p->spec.recurrent_activation) {
    case RNL_SIGMOID: return 1 / (1 + exp(-a));
    case RNL_HARD_SIGMOID: return fmin(fmax(a / 6 + 0.5, 0), 1);
    default: return fmin(fmax(0.2 * a + 0.5, 0), 1);
    }
}

static double curve_of(const problem *p, double a)
{
    return p->spec.activation == RNL_RELU ? fmax(a, 0) : tanh(a);
}

/* The weights of one layer and direction; NULL: it has none. */
typedef struct cell {
    const double *W, *R, *P, *bW, *bR, *peepholes; /* of i, f, o */
    int64_t I;
} cell;

static cell cell_at(const problem *p, int64_t layer, int64_t direction)
{
    const rnl_spec *spec = &p->spec;
    const int64_t G = gates_of(spec->cell);
    const double *at = p->weights, *biases = p->weights + p->num_weights;
    const int64_t modes[] = {
        [RNL_BIAS_DOUBLE] = 2, [RNL_BIAS_INPUT] = 1, [RNL_BIAS_RECURRENT] = 1, [RNL_BIAS_NONE] = 0};
    const int64_t vectors = modes[spec->bias];
    const double *peepholes = biases - (spec->peepholes ? spec->num_layers * p->D * 3 * p->H : 0);
    biases = peepholes - spec->num_layers * p->D * vectors * G * p->H;
    cell c = {0};
    for (int64_t l = 0; l <= layer; l++)
        for (int64_t d = 0; d < (l < layer ? p->D : direction + 1); d++) {
            c = (cell){.I = l ? p->D * p->S : spec->input_size};
            if (l > 0 || !spec->skip_input) {
                c.W = at;
                at += G * p->H * c.I;
            }
            c.R = at;
            at += G * p->H * p->S;
            if (spec->proj_size) {
                c.P = at;
                at += p->S * p->H;
            }
            if (spec->bias == RNL_BIAS_DOUBLE || spec->bias == RNL_BIAS_INPUT)
                c.bW = biases;
            if (spec->bias == RNL_BIAS_DOUBLE || spec->bias == RNL_BIAS_RECURRENT)
                c.bR = biases + (vectors - 1) * G * p->H;
            biases += vectors * G * p->H;
            if (spec->peepholes) {
                c.peepholes = peepholes;
                peepholes += 3 * p->H;
            }
        }
    return c;
}

/* The scale of n values of which the largest magnitude becomes `most`. */
static float scale_of(const double *values, int64_t n, float most)
{
    double largest = 0;
    for (int64_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(values[k]));
    return largest < 0x1p-100 ? 0 : (float)largest / most;
}

/* The product of weights in one byte with x in two: RNL_CPU_MATH_INT8. */
static double dot_of_bytes(const double *w, const double *x, int64_t n)
{
    const float x_scale = scale_of(x, n, 32767);
    int exponent;
    const float mantissa = frexpf(scale_of(w, n, 127), &exponent);
    const float scale = ldexpf(ceilf(ldexpf(mantissa, 16)), exponent - 16); /* 16 bits */
    double sum = 0;
    for (int64_t k = 0; k < n && scale > 0 && x_scale > 0; k++)
        sum += nearbyintf((float)w[k] / scale) * nearbyintf((float)x[k] * (1 / x_scale));
    return sum * scale * x_scale;
}

/* To 8 bits; a bfloat16 below the smallest normal number would have fewer. */
static double to_bfloat16(double x)
{
    int exponent;
    const double mantissa = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

static double dot(const problem *p, const double *w, const double *x, int64_t n)
{
    if (p->options.math == RNL_CPU_MATH_INT8)
        return dot_of_bytes(w, x, n);
    double sum = 0;
    if (p->options.math == RNL_CPU_MATH_BFLOAT16)
        for (int64_t k = 0; k < n; k++)
            sum += w[k] * to_bfloat16(x[k]);
    else
        for (int64_t k = 0; k < n; k++)
            sum += w[k] * x[k];
    return sum;
}

/* Advance h (S) and c (H) of one row by one step. */
static void step_of(const problem *p, const cell *w, const double *x, double *h, double *c)
{
    const int64_t H = p->H, S = p->S;
    static const double none[2 * MOST + 1] = {0};
    double a[4][MOST], r[4][MOST], full[MOST], reset[MOST];
    const int G = gates_of(p->spec.cell);
    for (int g = 0; g < G; g++)
        for (int64_t u = 0; u < H; u++) {
            const int64_t row = g * H + u;
            a[g][u] = (w->bW ? w->bW[row] : 0) + (w->W ? dot(p, w->W + row * w->I, x, w->I) : x[u]);
            r[g][u] = (w->bR ? w->bR[row] : 0) + dot(p, w->R + row * S, h, S);
        }
    for (int64_t u = 0; p->spec.cell == RNL_GRU && u < H; u++)
        reset[u] = gate_of(p, a[0][u] + r[0][u]) * h[u];
    for (int64_t u = 0; u < H; u++)
        switch (p->spec.cell) {
        case RNL_LSTM: {
            const double *const peep = w->peepholes ? w->peepholes + u : none;
            const double i = gate_of(p, a[0][u] + r[0][u] + peep[0] * c[u]);
            const double f = gate_of(p, a[1][u] + r[1][u] + peep[H] * c[u]);
            c[u] = f * c[u] + i * curve_of(p, a[2][u] + r[2][u]);
            if (p->options.clips)
                c[u] = fmin(fmax(c[u], p->options.clip_low), p->options.clip_high);
            full[u] = gate_of(p, a[3][u] + r[3][u] + peep[2 * H] * c[u]) * curve_of(p, c[u]);
            break;
        }
        case RNL_GRU: {
            const double z = gate_of(p, a[1][u] + r[1][u]), bias = w->bR ? w->bR[2 * H + u] : 0;
            const double n = p->spec.reset == RNL_RESET_AFTER
                                 ? a[2][u] + gate_of(p, a[0][u] + r[0][u]) * r[2][u]
                                 : a[2][u] + bias + dot(p, w->R + (2 * H + u) * S, reset, S);
            full[u] = (1 - z) * curve_of(p, n) + z * h[u];
            break;
        }
        case RNL_RNN_TANH: full[u] = tanh(a[0][u] + r[0][u]); break;
        default: full[u] = fmax(a[0][u] + r[0][u], 0); break;
        }
    for (int64_t s = 0; s < S; s++)
        h[s] = w->P ? dot(p, w->P + s * H, full, H) : full[s];
}

answer slow(const problem *p)
{
    answer a = answer_new(p);
    const int64_t T = p->T, N = p->N, S = p->S, H = p->H, wide = p->D * S;
    const int64_t most = wide > p->spec.input_size ? wide : p->spec.input_size;
    double *in = calloc((size_t)(T * most + 1), sizeof *in);
    if (H > MOST)
        abort();
    for (int64_t n = 0; in && n < N; n++) {
        const int64_t length = p->has_lengths ? p->lengths[n] : T;
        for (int64_t t = 0; t < length; t++)
            memcpy(in + t * p->spec.input_size, p->x + (t * N + n) * p->spec.input_size,
                   (size_t)p->spec.input_size * sizeof *in);
        for (int64_t layer = 0; layer < p->spec.num_layers; layer++) {
            for (int64_t d = 0; d < p->D; d++) {
                const cell w = cell_at(p, layer, d);
                const int64_t at = (layer * p->D + d) * N + n;
                double *h = a.hn + at * S, *c = a.cn + at * H;
                for (int64_t k = 0; p->has_states && k < S; k++)
                    h[k] = p->h0[at * S + k];
                for (int64_t k = 0; p->has_states && k < H; k++)
                    c[k] = p->c0[at * H + k];
                for (int64_t k = 0; k < length; k++) {
                    const int64_t t = d ? length - 1 - k : k;
                    step_of(p, &w, in + t * w.I, h, c);
                    memcpy(a.y + (t * N + n) * wide + d * S, h, (size_t)S * sizeof *h);
                }
            }
            for (int64_t t = 0; t < length; t++)
                memcpy(in + t * wide, a.y + (t * N + n) * wide, (size_t)wide * sizeof *in);
        }
    }
    free(in);
    return a;
}
