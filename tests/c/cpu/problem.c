#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/dtype.h"
#include "cpu/problem.h"
#include "model/spec.h"

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

/* Make every apart-th number subnormal or zero. */
static void shrink(double *all, int64_t n, rnl_dtype dtype, int64_t apart)
{
    const double size = dtype == RNL_FLOAT64   ? 0x1p-1024
                        : dtype == RNL_FLOAT16 ? 0x1p-16
                                               : 0x1p-128;
    for (int64_t k = 0; k < n; k += apart)
        all[k] = rounded(dtype, all[k] * size);
}

static rnl_spec random_spec(int64_t scale)
{
    /* one after the other: the order of arguments is the compiler's */
    const rnl_cell cell = (rnl_cell)random_below(4);
    const int64_t I = 1 + random_below(20), H = 1 + random_below(MOST_UNITS * scale);
    rnl_spec spec = rnl_spec_default(cell, I, H);
    spec.num_layers = 1 + random_below(3);
    spec.bidirectional = (int)random_below(2);
    spec.bias = (rnl_bias)random_below(4);
    spec.dtype = (rnl_dtype)random_below(4);
    if (spec.cell == RNL_GRU)
        spec.reset = (rnl_reset)random_below(2);
    if (spec.cell == RNL_LSTM || spec.cell == RNL_GRU) {
        spec.recurrent_activation = (rnl_activation)random_below(3);
        spec.activation = (rnl_state_activation)random_below(2);
    }
    if (spec.cell == RNL_LSTM && spec.hidden_size > 1 && random_below(3) == 0)
        spec.proj_size = 1 + random_below(spec.hidden_size - 1);
    if (spec.cell == RNL_LSTM)
        spec.peepholes = (int)random_below(2);
    if (random_below(6) == 0) {
        spec.input_size = spec.hidden_size;
        spec.skip_input = 1;
    }
    return spec;
}

int64_t num_weights_of(const rnl_spec *spec)
{
    rnl_error err;
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = -1};
    CHECK(!rnl_layout_named(RNL_FORWARD_LAYOUT, &layout, &err), "%s", err.text);
    CHECK(!rnl_layout_tensor(&layout, spec, rnl_spec_optional(spec), 0, &tensor, &err), "%s",
          err.text);
    return tensor.nelems;
}

problem random_problem(void)
{
    /* some are large enough for several threads */
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
    if (p.spec.dtype == RNL_BFLOAT16 && random_below(2))
        p.options.math = RNL_CPU_MATH_BFLOAT16;
    if (p.spec.dtype == RNL_FLOAT32 && random_below(2))
        p.options.math = RNL_CPU_MATH_INT8;
    p.num_weights = num_weights_of(&p.spec);
    /* so small that a state adds at most its own size to the next one */
    p.weights = numbers(p.num_weights, p.spec.dtype, 1.0 / (double)p.S);
    p.x = numbers(p.T * p.N * p.spec.input_size, p.dtype, 1);
    p.h0 = numbers(p.spec.num_layers * p.D * p.N * p.S, p.dtype, 1);
    p.c0 = numbers(p.spec.num_layers * p.D * p.N * p.H, p.dtype, 1);
    if (random_below(4) == 0) {
        const int64_t apart = random_below(2) ? 1 : 3;
        shrink(p.weights, p.num_weights, p.spec.dtype, apart);
        shrink(p.x, p.T * p.N * p.spec.input_size, p.dtype, apart);
    }
    p.has_lengths = random_below(2);
    p.lengths = calloc(MOST_ROWS, sizeof *p.lengths);
    for (int64_t n = 0; p.lengths && n < p.N; n++)
        p.lengths[n] = random_below(p.T + 1);
    p.has_states = random_below(2);
    p.batch_first = random_below(2);
    return p;
}

void problem_free(problem *p)
{
    free(p->weights);
    free(p->x);
    free(p->h0);
    free(p->c0);
    free(p->lengths);
}

/* ---- the answer of the forward pass itself ---- */

void *packed(const double *from, int64_t n, rnl_dtype dtype)
{
    const int64_t nbytes = rnl_dtype_nbytes(dtype);
    char *to = malloc((size_t)(n * nbytes + !n)); /* a byte beyond it is seen by the sanitizers */
    for (int64_t k = 0; to && k < n; k++)
        rnl_store_bits(dtype, to + k * nbytes, rnl_from_double(dtype, from[k]));
    if (!to)
        abort();
    return to;
}

rnl_rnn *new_rnn(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options)
{
    rnl_error err;
    rnl_rnn *rnn = NULL;
    CHECK(!rnl_rnn_new(spec, weights, options, &rnn, &err), "%s", err.text);
    return rnn;
}

rnl_rnn *prepared(const problem *p)
{
    void *weights = packed(p->weights, p->num_weights, p->spec.dtype);
    rnl_rnn *rnn = new_rnn(&p->spec, weights, &p->options);
    void *back = malloc((size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype)));
    rnl_rnn_weights(rnn, back);
    if (p->options.math == RNL_CPU_MATH_INT8) { /* what was rounded is not rounded again */
        memcpy(weights, back, (size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype)));
        rnl_rnn_update(rnn, back);
        rnl_rnn_weights(rnn, back);
    }
    CHECK(!memcmp(back, weights, (size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype))), "%s",
          "weights come back");
    free(back);
    free(weights);
    return rnn;
}

/* Return the time of step k of sequence n: with a mask, gaps are between the steps and in front. */
static int64_t time_of(slice s, int64_t n, int64_t k)
{
    return s.masked ? k + (k + n % 4) / 2 : k;
}

/* Check y of the steps that the mask leaves out. */
static void check_masked_y(const rnl_rnn_call *call, int64_t width)
{
    const int64_t nbytes = rnl_dtype_nbytes(call->dtype);
    char *const zeros = calloc((size_t)width, (size_t)nbytes);
    for (int64_t n = 0; n < call->N; n++) {
        const char *last = zeros;
        for (int64_t t = 0; t < call->T; t++) {
            const char *y = (char *)call->y + (t * call->y_time + n * call->y_batch) * nbytes;
            if (!call->mask[t * call->mask_time + n * call->mask_batch])
                CHECK(!memcmp(y, last, (size_t)(width * nbytes)),
                      "y of masked step %" PRId64 " of %" PRId64, t, n);
            else if (call->repeats_masked)
                last = y;
        }
    }
    free(zeros);
}

answer fast(const problem *p, rnl_rnn *rnn, slice s)
{
    const int64_t T = s.masked ? time_of(s, 3, s.T) : s.T;
    const int64_t I = p->spec.input_size, wide = p->D * p->S, nbytes = rnl_dtype_nbytes(p->dtype);
    const int64_t layers = p->spec.num_layers * p->D;
    const int64_t gap = 3; /* NaNs between the rows, as past the end of a sequence */
    char *x = malloc((size_t)((T * s.N * (I + gap) + 1) * nbytes));
    char *y = malloc((size_t)((T * s.N * wide + 1) * nbytes));
    unsigned char *mask = calloc((size_t)(T * s.N + 1), 1);
    char *hn = calloc((size_t)(layers * s.N * p->S + 1), (size_t)nbytes);
    char *cn = calloc((size_t)(layers * s.N * p->H + 1), (size_t)nbytes);
    int64_t lengths[MOST_ROWS];
    rnl_rnn_call call = {.T = T, .N = s.N, .dtype = p->dtype, .x = x, .y = y, .hn = hn, .cn = cn};
    call.x_time = p->batch_first ? I + gap : s.N * (I + gap);
    call.x_batch = p->batch_first ? T * (I + gap) : I + gap;
    call.y_time = p->batch_first ? wide : s.N * wide;
    call.y_batch = p->batch_first ? T * wide : wide;
    memset(y, 0xa5, (size_t)((T * s.N * wide + 1) * nbytes));
    for (int64_t n = 0; n < s.N; n++) {
        const int64_t left = p->lengths[s.first + n] - s.from;
        lengths[n] = left < 0 ? 0 : left > s.T ? s.T : left;
    }
    for (int64_t k = 0; k < T * s.N * (I + gap); k++)
        rnl_store_bits(p->dtype, x + k * nbytes, rnl_from_double(p->dtype, (double)NAN));
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++) {
            if (p->has_lengths && t >= lengths[n])
                continue;
            const int64_t time = time_of(s, n, t), at = time * call.x_time + n * call.x_batch;
            const double *from = p->x + ((s.from + t) * p->N + s.first + n) * I;
            mask[n * T + time] = 1;
            for (int64_t k = 0; k < I; k++)
                rnl_store_bits(p->dtype, x + (at + k) * nbytes, rnl_from_double(p->dtype, from[k]));
        }
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
    if (s.masked) {
        call.mask = mask;
        call.mask_time = 1;
        call.mask_batch = T;
        call.repeats_masked = p->batch_first;
    } else if (p->has_lengths)
        call.lengths = lengths;
    rnl_error err;
    CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
    if (s.masked)
        check_masked_y(&call, wide);
    problem shape = *p;
    shape.T = s.T;
    shape.N = s.N;
    answer a = answer_new(&shape);
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < wide && !(s.masked && p->has_lengths && t >= lengths[n]); k++) {
                const int64_t at = time_of(s, n, t) * call.y_time + n * call.y_batch + k;
                a.y[(t * s.N + n) * wide + k] = rnl_to_double(
                    p->dtype, rnl_load_bits(p->dtype, y + at * nbytes));
            }
    for (int64_t k = 0; k < layers * s.N * p->S; k++)
        a.hn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, hn + k * nbytes));
    for (int64_t k = 0; k < layers * s.N * p->H; k++)
        a.cn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, cn + k * nbytes));
    free(x);
    free(y);
    free(mask);
    free(hn);
    free(cn);
    return a;
}

/* ---- how close two answers have to be ---- */

/* With |W|, |R|, |b| <= 1 / S and |x|, |h|, |c| small, a sum of K terms of size m rounds by at most
 * (K + 2) u K m. The activations have slopes of at most 1, so a state has that error and 8 u from
 * its own operations, and passes at most twice its error to the next step (c and h). A layer's
 * error is input to the next layer, with at most D P' weights of 1 / S. In all less than: */
static double bound(const problem *p, int64_t layer)
{
    const double u = p->spec.dtype == RNL_FLOAT64 ? 0x1p-53 : 0x1p-24;
    const int64_t I = layer ? p->D * p->S : p->spec.input_size;
    const double K = (double)(I + p->S + 2), terms = (double)(I > p->S ? I : p->S) / (double)p->S;
    return (K + 16) * u * (terms + 3) * 4;
}

/* By how much do the two differ if they round their own results, to bfloat16 or to 16 bits? Two
 * close numbers may be rounded to different sides. */
static double rounds_apart(const problem *p)
{
    static const double units[] = {[RNL_CPU_MATH_BFLOAT16] = 0x1p-7, [RNL_CPU_MATH_INT8] = 0x1p-14};
    const bool again = p->T > 1 || p->spec.num_layers > 1 || p->spec.proj_size ||
                       (p->spec.cell == RNL_GRU && p->spec.reset == RNL_RESET_BEFORE);
    return again ? units[p->options.math] : 0;
}

void check_close(const problem *p, const answer *a, const answer *b)
{
    double most = 0, size = 1;
    for (int64_t layer = 0; layer < p->spec.num_layers; layer++) {
        for (int64_t t = 0; t < p->T; t++)
            most = most * 3 + (bound(p, layer) + rounds_apart(p)) * size;
        size += (double)p->T; /* relu's states may grow by 1 / S * S per step */
    }
    /* plus the rounding of the result */
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

void check_one_step(const problem *p, int64_t t, const answer *states, const answer *next)
{
    problem one = *p;
    one.T = 1;
    one.x = p->x + t * p->N * p->spec.input_size;
    int64_t lengths[MOST_ROWS];
    one.lengths = lengths;
    for (int64_t n = 0; n < p->N; n++)
        lengths[n] = p->lengths[n] > t;
    if (states) {
        one.h0 = states->hn;
        one.c0 = states->cn;
        one.has_states = true;
    }
    answer right = slow(&one);
    check_close(&one, &right, next);
    answer_free(&right);
}
