/*
 * Does the forward pass compute what its header says? Against a recurrence in double, one sum after
 * the other, that shares nothing with it but the order of cuDNN's weight space; and against itself,
 * where bits must be equal.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/dtype.h"
#include "forward/team.h"
#include "model/spec.h"

enum { TURNS = 1200, MOST_STEPS = 7, MOST_ROWS = 15, MOST_UNITS = 40, LARGER = 3 };

/* --------------------------------------------------------------------------------- a problem -- */

typedef struct problem {
    rnl_spec spec;
    rnl_rnn_options options;
    int64_t T, N, D, H, S; /* S: width of the state */
    rnl_dtype dtype;       /* of the call */
    int64_t num_weights;
    double *weights, *x, *h0, *c0; /* exact in their dtypes */
    int64_t lengths[MOST_ROWS];
    bool has_lengths, has_states, batch_first;
} problem;

typedef struct answer {
    double *y, *hn, *cn;
} answer;

static double rounded(rnl_dtype dtype, double value)
{
    return rnl_to_double(dtype, rnl_from_double(dtype, value));
}

static double uniform(void)
{
    return (double)random_below(1 << 20) / (1 << 19) - 1;
}

static double *numbers(int64_t n, rnl_dtype dtype, double size)
{
    double *all = malloc((size_t)(n + 1) * sizeof *all);
    for (int64_t k = 0; all && k < n; k++)
        all[k] = rounded(dtype, size * uniform());
    if (!all)
        abort();
    return all;
}

static rnl_spec random_spec(int64_t scale)
{
    rnl_spec spec = rnl_spec_default((rnl_cell)random_below(4), 1 + random_below(20),
                                     1 + random_below(MOST_UNITS * scale));
    spec.num_layers = 1 + random_below(3);
    spec.bidirectional = (int)random_below(2);
    spec.bias = (rnl_bias)random_below(4);
    spec.dtype = (rnl_dtype)random_below(4);
    if (spec.cell == RNL_GRU)
        spec.reset = (rnl_reset)random_below(2);
    if (spec.cell == RNL_LSTM || spec.cell == RNL_GRU)
        spec.recurrent_activation = (rnl_activation)random_below(3);
    if (spec.cell == RNL_LSTM && spec.hidden_size > 1 && random_below(3) == 0)
        spec.proj_size = 1 + random_below(spec.hidden_size - 1);
    if (random_below(6) == 0) {
        spec.input_size = spec.hidden_size;
        spec.skip_input = 1;
    }
    return spec;
}

static int64_t num_weights_of(const rnl_spec *spec)
{
    rnl_error err;
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = -1};
    CHECK(!rnl_layout_named("cpu", &layout, &err), "%s", err.text);
    CHECK(!rnl_layout_tensor(&layout, spec, rnl_spec_has(spec), 0, &tensor, &err), "%s", err.text);
    return tensor.nelems;
}

static problem random_problem(void)
{
    /* some are so large that several threads are worth it */
    const int64_t scale = random_below(8) == 0 ? LARGER : 1;
    problem p = {.spec = random_spec(scale)};
    p.D = 1 + p.spec.bidirectional;
    p.H = p.spec.hidden_size;
    p.S = rnl_state_size(&p.spec);
    p.T = random_below(MOST_STEPS * scale + 1);
    p.N = random_below(MOST_ROWS + 1);
    p.dtype = p.spec.dtype < RNL_FLOAT32 && random_below(2) ? RNL_FLOAT32 : p.spec.dtype;
    if (p.spec.cell == RNL_LSTM && random_below(3) == 0)
        p.options = (rnl_rnn_options){.clips = 1, .clip_low = -0.25, .clip_high = 0.125};
    p.options.rounds = p.spec.dtype == RNL_BFLOAT16 && random_below(2);
    p.num_weights = num_weights_of(&p.spec);
    /* so small that no state takes part in the next one with more than its own size */
    p.weights = numbers(p.num_weights, p.spec.dtype, 1.0 / (double)p.S);
    p.x = numbers(p.T * p.N * p.spec.input_size, p.dtype, 1);
    p.h0 = numbers(p.spec.num_layers * p.D * p.N * p.S, p.dtype, 1);
    p.c0 = numbers(p.spec.num_layers * p.D * p.N * p.H, p.dtype, 1);
    p.has_lengths = random_below(2);
    for (int64_t n = 0; n < p.N; n++)
        p.lengths[n] = random_below(p.T + 1);
    p.has_states = random_below(2);
    p.batch_first = random_below(2);
    return p;
}

static void problem_free(problem *p)
{
    free(p->weights);
    free(p->x);
    free(p->h0);
    free(p->c0);
}

static answer answer_new(const problem *p)
{
    const int64_t layers = p->spec.num_layers * p->D;
    answer a = {calloc((size_t)(p->T * p->N * p->D * p->S + 1), sizeof(double)),
                calloc((size_t)(layers * p->N * p->S + 1), sizeof(double)),
                calloc((size_t)(layers * p->N * p->H + 1), sizeof(double))};
    if (!a.y || !a.hn || !a.cn)
        abort();
    return a;
}

static void answer_free(answer *a)
{
    free(a->y);
    free(a->hn);
    free(a->cn);
}

/* ---------------------------------------------------------------------------- the slow twin -- */

static double gate_of(const problem *p, double a)
{
    switch (p->spec.recurrent_activation) {
    case RNL_SIGMOID: return 1 / (1 + exp(-a));
    case RNL_HARD_SIGMOID: return fmin(fmax(a / 6 + 0.5, 0), 1);
    default: return fmin(fmax(0.2 * a + 0.5, 0), 1);
    }
}

/* Weights of one layer and direction; NULL where there are none. */
typedef struct cell {
    const double *W, *R, *P, *bW, *bR;
    int64_t I;
} cell;

static cell cell_at(const problem *p, int64_t layer, int64_t direction)
{
    const rnl_spec *spec = &p->spec;
    const int64_t G = rnl_num_gates(spec->cell);
    const double *at = p->weights, *biases = p->weights + p->num_weights;
    const int64_t modes[] = {
        [RNL_BIAS_DOUBLE] = 2, [RNL_BIAS_INPUT] = 1, [RNL_BIAS_RECURRENT] = 1, [RNL_BIAS_NONE] = 0};
    const int64_t vectors = modes[spec->bias];
    biases -= spec->num_layers * p->D * vectors * G * p->H;
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
        }
    return c;
}

static double dot(const problem *p, const double *w, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += w[k] * (p->options.rounds ? rounded(RNL_BFLOAT16, x[k]) : x[k]);
    return sum;
}

/* One step of one row: h (S) and c (H) to the next. */
static void step_of(const problem *p, const cell *w, const double *x, double *h, double *c)
{
    const int64_t H = p->H, S = p->S;
    double a[4][LARGER * MOST_UNITS], r[4][LARGER * MOST_UNITS];
    double full[LARGER * MOST_UNITS], reset[LARGER * MOST_UNITS] = {0};
    const int G = rnl_num_gates(p->spec.cell);
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
            const double f = gate_of(p, a[1][u] + r[1][u]);
            c[u] = f * c[u] + gate_of(p, a[0][u] + r[0][u]) * tanh(a[2][u] + r[2][u]);
            if (p->options.clips)
                c[u] = fmin(fmax(c[u], p->options.clip_low), p->options.clip_high);
            full[u] = gate_of(p, a[3][u] + r[3][u]) * tanh(c[u]);
            break;
        }
        case RNL_GRU: {
            const double z = gate_of(p, a[1][u] + r[1][u]), bias = w->bR ? w->bR[2 * H + u] : 0;
            const double n = p->spec.reset == RNL_RESET_AFTER
                                 ? a[2][u] + gate_of(p, a[0][u] + r[0][u]) * r[2][u]
                                 : a[2][u] + bias + dot(p, w->R + (2 * H + u) * S, reset, S);
            full[u] = (1 - z) * tanh(n) + z * h[u];
            break;
        }
        case RNL_RNN_TANH: full[u] = tanh(a[0][u] + r[0][u]); break;
        default: full[u] = fmax(a[0][u] + r[0][u], 0); break;
        }
    for (int64_t s = 0; s < S; s++)
        h[s] = w->P ? dot(p, w->P + s * H, full, H) : full[s];
}

static answer slow(const problem *p)
{
    answer a = answer_new(p);
    const int64_t T = p->T, N = p->N, S = p->S, H = p->H, wide = p->D * S;
    const int64_t most = wide > p->spec.input_size ? wide : p->spec.input_size;
    double *in = calloc((size_t)(T * most + 1), sizeof *in);
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

/* ------------------------------------------------------------------------------ the fast one -- */

static void *packed(const double *from, int64_t n, rnl_dtype dtype)
{
    const int64_t nbytes = rnl_dtype_nbytes(dtype);
    char *to = malloc((size_t)(n * nbytes + 1));
    for (int64_t k = 0; to && k < n; k++)
        rnl_store_bits(dtype, to + k * nbytes, rnl_from_double(dtype, from[k]));
    if (!to)
        abort();
    return to;
}

static rnl_rnn *prepared(const problem *p)
{
    rnl_error err;
    rnl_rnn *rnn = NULL;
    void *weights = packed(p->weights, p->num_weights, p->spec.dtype);
    CHECK(!rnl_rnn_new(&p->spec, weights, &p->options, &rnn, &err), "%s", err.text);
    void *back = packed(p->weights, 0, p->spec.dtype);
    free(back);
    back = malloc((size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype)));
    rnl_rnn_weights(rnn, back);
    CHECK(!memcmp(back, weights, (size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype))), "%s",
          "weights come back");
    free(back);
    free(weights);
    return rnn;
}

/* Sequences first ... first + N - 1, steps from ... from + T - 1 of the problem, out of `states` if
 * there are some. */
typedef struct slice {
    int64_t first, N, from, T;
    const answer *states;
} slice;

static answer fast(const problem *p, rnl_rnn *rnn, slice s)
{
    const int64_t I = p->spec.input_size, wide = p->D * p->S, nbytes = rnl_dtype_nbytes(p->dtype);
    const int64_t layers = p->spec.num_layers * p->D;
    const int64_t gap = 3; /* between rows: other numbers */
    char *x = packed(p->x, 0, p->dtype), *y = malloc((size_t)((s.T * s.N * wide + 1) * nbytes));
    free(x);
    x = calloc((size_t)(s.T * s.N * (I + gap) + 1), (size_t)nbytes);
    char *hn = calloc((size_t)(layers * s.N * p->S + 1), (size_t)nbytes);
    char *cn = calloc((size_t)(layers * s.N * p->H + 1), (size_t)nbytes);
    int64_t lengths[MOST_ROWS];
    rnl_rnn_call call = {.T = s.T, .N = s.N, .dtype = p->dtype, .x = x, .y = y, .hn = hn, .cn = cn};
    call.x_time = p->batch_first ? I + gap : s.N * (I + gap);
    call.x_batch = p->batch_first ? s.T * (I + gap) : I + gap;
    call.y_time = p->batch_first ? wide : s.N * wide;
    call.y_batch = p->batch_first ? s.T * wide : wide;
    memset(y, 0xa5, (size_t)((s.T * s.N * wide + 1) * nbytes));
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < I + gap; k++)
                rnl_store_bits(
                    p->dtype, x + (t * call.x_time + n * call.x_batch + k) * nbytes,
                    rnl_from_double(p->dtype,
                                    k < I ? p->x[((s.from + t) * p->N + s.first + n) * I + k]
                                          : (double)NAN));
    const double *h0 = s.states ? s.states->hn : p->h0, *c0 = s.states ? s.states->cn : p->c0;
    for (int64_t l = 0; (p->has_states || s.states) && l < layers; l++)
        for (int64_t n = 0; n < s.N; n++) {
            const int64_t from = l * (s.states ? s.N : p->N) + (s.states ? n : s.first + n);
            for (int64_t k = 0; k < p->S; k++)
                rnl_store_bits(p->dtype, hn + ((l * s.N + n) * p->S + k) * nbytes,
                               rnl_from_double(p->dtype, h0[from * p->S + k]));
            for (int64_t k = 0; k < p->H; k++)
                rnl_store_bits(p->dtype, cn + ((l * s.N + n) * p->H + k) * nbytes,
                               rnl_from_double(p->dtype, c0[from * p->H + k]));
        }
    if (p->has_states || s.states) { /* in place */
        call.h0 = hn;
        call.c0 = cn;
    }
    for (int64_t n = 0; n < s.N; n++) {
        const int64_t left = p->lengths[s.first + n] - s.from;
        lengths[n] = left < 0 ? 0 : left > s.T ? s.T : left;
    }
    if (p->has_lengths)
        call.lengths = lengths;
    rnl_error err;
    CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
    problem shape = *p;
    shape.T = s.T;
    shape.N = s.N;
    answer a = answer_new(&shape);
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < wide; k++)
                a.y[(t * s.N + n) * wide + k] = rnl_to_double(
                    p->dtype,
                    rnl_load_bits(p->dtype, y + (t * call.y_time + n * call.y_batch + k) * nbytes));
    for (int64_t k = 0; k < layers * s.N * p->S; k++)
        a.hn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, hn + k * nbytes));
    for (int64_t k = 0; k < layers * s.N * p->H; k++)
        a.cn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, cn + k * nbytes));
    free(x);
    free(y);
    free(hn);
    free(cn);
    return a;
}

/* ------------------------------------------------------------------------------- the checks -- */

/* With |W|, |R|, |b| <= 1 / S and |x|, |h|, |c| small, a sum of K terms of size m rounds by at most
 * (K + 2) u K m; the curves have slopes of at most 1, so a state is wrong by that and 8 u of its
 * own operations, and passes on at most 2 of its error to the next step (c and h); a layer's error
 * is the input of the next, with at most D P' weights of 1 / S. In all less than: */
static double bound(const problem *p, const cell *w)
{
    const double u = p->spec.dtype == RNL_FLOAT64 ? 0x1p-53 : 0x1p-24;
    const double K = (double)(w->I + p->S + 2),
                 terms = (double)(w->I > p->S ? w->I : p->S) / (double)p->S;
    return (K + 16) * u * (terms + 3) * 4;
}

/* Is what is rounded to bfloat16 the same for both? Not where it is their own result: two of those
 * that lie close together may be rounded apart, by a whole unit of 2^-7 at the most. */
static bool rounds_apart(const problem *p)
{
    const bool again = p->T > 1 || p->spec.num_layers > 1 || p->spec.proj_size ||
                       (p->spec.cell == RNL_GRU && p->spec.reset == RNL_RESET_BEFORE);
    return p->options.rounds && again;
}

static void check_close(const problem *p, const answer *a, const answer *b)
{
    double most = 0, size = 1;
    for (int64_t layer = 0; layer < p->spec.num_layers; layer++) {
        const cell w = cell_at(p, layer, 0);
        for (int64_t t = 0; t < p->T; t++)
            most = most * 3 + bound(p, &w) * size + (rounds_apart(p) ? 0x1p-7 * size : 0);
        size += (double)p->T; /* of relu's states, which may grow by 1 / S * S a step */
    }
    /* and the result's own rounding */
    const double narrow = p->dtype == RNL_FLOAT16 ? 0x1p-11 : p->dtype == RNL_BFLOAT16 ? 0x1p-8 : 0;
    const int64_t layers = p->spec.num_layers * p->D;
    for (int64_t k = 0; k < p->T * p->N * p->D * p->S; k++)
        CHECK(fabs(a->y[k] - b->y[k]) <= most + narrow * (fabs(a->y[k]) + 1e-4),
              "y[%" PRId64 "]: %.9g, not %.9g (cell %d, T %" PRId64 ")", k, b->y[k], a->y[k],
              (int)p->spec.cell, p->T);
    for (int64_t k = 0; k < layers * p->N * p->S; k++)
        CHECK(fabs(a->hn[k] - b->hn[k]) <= most + narrow * (fabs(a->hn[k]) + 1e-4),
              "h_n[%" PRId64 "]: %.9g, not %.9g (cell %d)", k, b->hn[k], a->hn[k],
              (int)p->spec.cell);
    for (int64_t k = 0; p->spec.cell == RNL_LSTM && k < layers * p->N * p->H; k++)
        CHECK(fabs(a->cn[k] - b->cn[k]) <= most + narrow * (fabs(a->cn[k]) + 1e-4),
              "c_n[%" PRId64 "]: %.9g, not %.9g", k, b->cn[k], a->cn[k]);
}

/* One step from the states that the fast one had: here the bound is a tight one. */
static void check_one_step(const problem *p, int64_t t, const answer *states, const answer *next)
{
    problem one = *p;
    one.T = 1;
    one.x = p->x + t * p->N * p->spec.input_size;
    for (int64_t n = 0; n < p->N; n++)
        one.lengths[n] = p->lengths[n] > t;
    if (states) {
        one.h0 = states->hn;
        one.c0 = states->cn;
        one.has_states = true;
    }
    answer right = slow(&one);
    check_close(&one, &right, next);
    answer_free(&right);
}

static bool same(const double *a, const double *b, int64_t n)
{
    return !memcmp(a, b, (size_t)n * sizeof *a);
}

static int went_alone;

/* Bits: every wait is taken for a long one, and one thread goes on alone. */
static void check_alone(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    const int patience = rnl_team_patience;
    for (int threads = 2; threads <= 3; threads++) {
        rnl_set_num_threads(threads);
        rnl_team_patience = 0;
        answer again = fast(p, rnn, (slice){0, p->N, 0, p->T, NULL});
        CHECK(same(again.y, whole->y, p->T * p->N * p->D * p->S) &&
                  same(again.hn, whole->hn, p->spec.num_layers * p->D * p->N * p->S),
              "alone of %d threads", threads);
        answer_free(&again);
        rnl_team_patience = patience;
        went_alone += rnl_team_is_crowded();
        rnl_team_was_crowded(false); /* the next call may share again */
    }
}

/* Bits: other numbers of threads, one sequence alone, step by step. */
static void check_bits(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    const int64_t wide = p->D * p->S, layers = p->spec.num_layers * p->D;
    for (int threads = 1; threads <= 3; threads++) {
        rnl_set_num_threads(threads);
        rnl_team_was_crowded(false);
        answer again = fast(p, rnn, (slice){0, p->N, 0, p->T, NULL});
        CHECK(same(again.y, whole->y, p->T * p->N * wide) &&
                  same(again.hn, whole->hn, layers * p->N * p->S),
              "%d threads", threads);
        answer_free(&again);
    }
    check_alone(p, rnn, whole);
    rnl_set_num_threads(1);
    for (int64_t n = 0; n < p->N; n++) {
        answer one = fast(p, rnn, (slice){n, 1, 0, p->T, NULL});
        for (int64_t t = 0; t < p->T; t++)
            CHECK(same(one.y + t * wide, whole->y + (t * p->N + n) * wide, wide),
                  "sequence %" PRId64 " alone, step %" PRId64, n, t);
        answer_free(&one);
    }
    if (p->D == 2 || p->spec.num_layers * p->T == 0 || p->dtype < RNL_FLOAT32)
        return;
    answer states = {NULL, NULL, NULL};
    for (int64_t t = 0; t < p->T; t++) {
        answer next = fast(p, rnn, (slice){0, p->N, t, 1, t ? &states : NULL});
        check_one_step(p, t, t ? &states : NULL, &next);
        CHECK(same(next.y, whole->y + t * p->N * wide, p->N * wide), "step %" PRId64, t);
        answer_free(&states);
        states = next;
    }
    CHECK(same(states.hn, whole->hn, layers * p->N * p->S) &&
              (p->spec.cell != RNL_LSTM || same(states.cn, whole->cn, layers * p->N * p->H)),
          "%s", "states after all steps");
    answer_free(&states);
}

/* Bits again: of an RNN for one call, which reads the weights where they are or packs them first.
 */
static void check_once(const problem *p, rnl_rnn *rnn, const answer *whole)
{
    const int64_t wide = p->D * p->S, layers = p->spec.num_layers * p->D;
    void *weights = packed(p->weights, p->num_weights, p->spec.dtype);
    rnl_rnn_options options = p->options;
    options.borrows = 1;
    rnl_error err;
    rnl_rnn *once = NULL;
    CHECK(!rnl_rnn_new(&p->spec, weights, &options, &once, &err), "%s", err.text);
    for (int64_t n = 0; p->T > 0 && n < p->N; n++) {
        const slice first = {n, 1, 0, 1, NULL};
        answer a = fast(p, rnn, first), b = fast(p, once, first);
        CHECK(same(a.y, b.y, wide) && same(a.hn, b.hn, layers * p->S), "sequence %" PRId64, n);
        answer_free(&a);
        answer_free(&b);
    }
    answer again = fast(p, once, (slice){0, p->N, 0, p->T, NULL});
    CHECK(same(again.y, whole->y, p->T * p->N * wide), "%s", "packed by the call");
    answer_free(&again);
    rnl_rnn_free(once);
    free(weights);
}

static int stop_at_once(void *count)
{
    return ++*(int *)count > 1;
}

/* A call that is stopped says so, with one thread and with two. */
static void check_interrupt(int threads)
{
    enum { T = 400, H = 256, N = 40 };
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 100, H);
    spec.num_layers = 2;
    spec.bidirectional = threads > 1;
    rnl_error err;
    rnl_rnn *rnn = NULL;
    const int64_t n = num_weights_of(&spec);
    float *weights = calloc((size_t)n, sizeof *weights), *x = calloc(T * N * 100, sizeof *x);
    int count = 0;
    rnl_set_num_threads(threads);
    CHECK(!rnl_rnn_new(&spec, weights, NULL, &rnn, &err), "%s", err.text);
    const rnl_rnn_call call = {.T = T,
                               .N = N,
                               .dtype = RNL_FLOAT32,
                               .x = x,
                               .x_time = N * 100,
                               .x_batch = 100,
                               .poll = stop_at_once,
                               .poll_arg = &count};
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_INTERRUPTED, "%d threads", threads);
    CHECK(count == 2, "%d questions", count);
    rnl_rnn_free(rnn);
    free(weights);
    free(x);
    rnl_set_num_threads(1);
}

static void check_errors(void)
{
    rnl_error err;
    rnl_rnn *rnn = NULL;
    const float weights[200] = {0};
    rnl_spec spec = rnl_spec_default(RNL_GRU, 3, 2);
    rnl_rnn_options clip = {.clips = 1, .clip_low = -1, .clip_high = 1};
    CHECK(rnl_rnn_new(&spec, weights, &clip, &rnn, &err) == RNL_E_SPEC, "%s", "a clip of a GRU");
    spec.cell = RNL_LSTM;
    clip.clip_high = -2;
    CHECK(rnl_rnn_new(&spec, weights, &clip, &rnn, &err) == RNL_E_SPEC, "%s", "a clip of nothing");
    const rnl_rnn_options rounds = {.rounds = 1};
    CHECK(rnl_rnn_new(&spec, weights, &rounds, &rnn, &err) == RNL_E_SPEC, "%s", "float32 weights");
    spec.hidden_size = 0;
    CHECK(rnl_rnn_new(&spec, weights, NULL, &rnn, &err) == RNL_E_SPEC, "%s", "no units");
    spec.hidden_size = 2;
    CHECK(!rnl_rnn_new(&spec, weights, NULL, &rnn, &err), "%s", err.text);
    const int64_t lengths[] = {2, 3};
    float x[12] = {0};
    rnl_rnn_call call = {.T = 2, .N = 2, .dtype = RNL_FLOAT32, .x = x, .x_time = 6, .x_batch = 3};
    call.lengths = lengths;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_SPEC, "%s", "a length of more than T");
    call.lengths = NULL;
    call.dtype = RNL_FLOAT16;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_SPEC, "%s", "a narrower x");
    call.dtype = RNL_FLOAT32;
    call.T = -1;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_SPEC, "%s", "T below 0");
    call.T = INT64_C(1) << 60;
    call.N = INT64_C(1) << 60;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_NOMEM, "%s", "no such memory");
    rnl_rnn_free(rnn);
    rnl_rnn_free(NULL);
}

int main(int argc, char **argv)
{
    const int turns = argc > 1 ? atoi(argv[1]) : TURNS;
    printf("tier %s\n", rnl_cpu_tier());
    for (int turn = 0; turn < turns; turn++) {
        problem p = random_problem();
        rnl_rnn *rnn = prepared(&p);
        rnl_set_num_threads(1 + turn % 2);
        answer right = slow(&p), whole = fast(&p, rnn, (slice){0, p.N, 0, p.T, NULL});
        check_close(&p, &right, &whole);
        check_bits(&p, rnn, &whole);
        check_once(&p, rnn, &whole);
        answer_free(&right);
        answer_free(&whole);
        rnl_rnn_free(rnn);
        problem_free(&p);
    }
    CHECK(went_alone > 0, "%d calls went on alone", went_alone);
    check_errors();
    check_interrupt(1);
    check_interrupt(2);
    return check_end();
}
