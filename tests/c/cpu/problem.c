#include <stdlib.h>

#include "check.h"
#include "core/dtype.h"
#include "cpu/problem.h"
#include "model/spec.h"

double rounded(rnl_dtype dtype, double value)
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
    CHECK(!rnl_layout_tensor(&layout, spec, rnl_spec_has(spec), 0, &tensor, &err), "%s", err.text);
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
    for (int64_t n = 0; n < p.N; n++)
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
}

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
