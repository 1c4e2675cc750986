/* Does a folded plan do what its steps say? Compared with a walk, one element at a time. */
#include <stdlib.h>

#include "core/dtype.h"
#include "layouts.h"

enum { NUM_SPECS = 120, MAX_TENSORS = 128, UNTOUCHED = 0x7f };

/* One RNN in one layout, in memory blocks of exactly the right size. */
typedef struct tensors {
    int64_t n;
    int64_t nelems[MAX_TENSORS];
    void *data[MAX_TENSORS];
} tensors;

static size_t nbytes(const tensors *t, int64_t k, rnl_dtype dtype)
{
    return (size_t)(t->nelems[k] * rnl_dtype_nbytes(dtype));
}

static tensors tensors_new(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                           rnl_dtype dtype)
{
    tensors made = {0};
    rnl_tensor tensor;
    rnl_error err;
    CHECK(!rnl_layout_num_tensors(layout, spec, has, &made.n, &err), "%s", err.text);
    if (made.n > MAX_TENSORS)
        abort();
    for (int64_t k = 0; k < made.n; k++) {
        CHECK(!rnl_layout_tensor(layout, spec, has, k, &tensor, &err), "%s", err.text);
        made.nelems[k] = tensor.nelems;
        made.data[k] = malloc(nbytes(&made, k, dtype));
        if (!made.data[k])
            abort();
        memset(made.data[k], UNTOUCHED, nbytes(&made, k, dtype));
    }
    return made;
}

static void tensors_free(tensors *t)
{
    for (int64_t k = 0; k < t->n; k++)
        free(t->data[k]);
}

static int same_bytes(const tensors *a, const tensors *b, rnl_dtype dtype)
{
    for (int64_t k = 0; k < a->n; k++)
        if (memcmp(a->data[k], b->data[k], nbytes(a, k, dtype)) != 0)
            return 0;
    return 1;
}

/* Element k of a view, read row by row. */
static float *element(const tensors *t, const rnl_view *view, int64_t k)
{
    const int64_t r = k / view->cols, c = k % view->cols;
    return (float *)t->data[view->tensor] + view->at + r * view->row_stride + c * view->col_stride;
}

/* ------------------------------------------------------------------------------- the walk -- */

static float sum(float a, float b)
{
    return b == 0 ? a : a == 0 ? b : a + b;
}

static void walk_step(const rnl_step *step, const tensors *src, const tensors *dst)
{
    for (int64_t k = 0; k < step->dst.rows * step->dst.cols; k++) {
        const float sign = step->negate ? -1 : 1;
        float *const out = element(dst, &step->dst, k);
        switch (step->op) {
        case RNL_OP_MOVE: *out = sign * *element(src, &step->src, k); break;
        case RNL_OP_ADD:
            *out = sign * sum(*element(src, &step->src, k), *element(src, &step->src2, k));
            break;
        case RNL_OP_SHIFT:
            *out = (float)step->shift;
            *out += step->src.tensor >= 0 ? *element(src, &step->src, k) : 0;
            *out += step->src2.tensor >= 0 ? *element(src, &step->src2, k) : 0;
            break;
        case RNL_OP_IDENTITY: *out = sign * (k / step->dst.cols == k % step->dst.cols); break;
        default: *out = 0; break;
        }
    }
}

/* Random values, small enough for exact sums in half precision; some are zero. Values that the
 * target cannot represent are replaced by the ones it expects. */
static void fill(const rnl_plan *plan, const tensors *src)
{
    for (int64_t t = 0; t < src->n; t++)
        for (int64_t k = 0; k < src->nelems[t]; k++)
            ((float *)src->data[t])[k] = (float)(random_below(64) - 20) / 8;
    for (int64_t s = 0; s < rnl_plan_num_steps(plan); s++) {
        const rnl_step *step = rnl_plan_step(plan, s);
        const int identity = step->op == RNL_OP_EXPECT_IDENTITY;
        if (step->op == RNL_OP_EXPECT_ZERO || identity)
            for (int64_t k = 0; k < step->src.rows * step->src.cols; k++)
                *element(src, &step->src, k) = identity && k / step->src.cols == k % step->src.cols
                                                   ? step->negate ? -1 : 1
                                                   : 0 - (float)step->shift;
    }
}

static tensors halves_of(const tensors *floats)
{
    tensors halves = *floats;
    for (int64_t t = 0; t < floats->n; t++) {
        halves.data[t] = malloc(nbytes(floats, t, RNL_FLOAT16));
        if (!halves.data[t])
            abort();
        for (int64_t k = 0; k < floats->nelems[t]; k++)
            rnl_store_bits(RNL_FLOAT16, (char *)halves.data[t] + 2 * k,
                           rnl_from_double(RNL_FLOAT16, ((float *)floats->data[t])[k]));
    }
    return halves;
}

/* ------------------------------------------------------------------------------ the checks -- */

/* One conversion: a plan, and its target as the walk computes it. */
typedef struct pair {
    const rnl_spec *spec;
    const rnl_layout *from, *to;
    unsigned has;
    rnl_plan *plan;
    tensors src, want;
} pair;

static tensors target(const pair *p)
{
    return tensors_new(p->to, p->spec, rnl_spec_has(p->spec), RNL_FLOAT32);
}

static rnl_status run(const pair *p, rnl_dtype dtype, const tensors *src, const tensors *dst,
                      rnl_error *err)
{
    return rnl_plan_run(p->plan, dtype, (const void *const *)src->data, RNL_FLOAT32, dst->data,
                        NULL, NULL, err);
}

static void check_run(const pair *p, rnl_dtype dtype, const tensors *src)
{
    tensors got = target(p);
    rnl_error err = {0};
    CHECK(!run(p, dtype, src, &got, &err), "%s to %s: %s", p->from->name, p->to->name, err.text);
    CHECK(same_bytes(&got, &p->want, RNL_FLOAT32), "%s to %s, %s, I %" PRId64 " H %" PRId64,
          p->from->name, p->to->name, rnl_name(RNL_NAMES_CELL, (int)p->spec->cell),
          p->spec->input_size, p->spec->hidden_size);
    tensors_free(&got);
}

/* Change each value that must be zero or the identity: the run is refused and writes nothing. */
static void check_refusals(const pair *p)
{
    tensors got = target(p), blank = target(p);
    rnl_error err;
    for (int64_t s = 0; s < rnl_plan_num_steps(p->plan); s++) {
        const rnl_step *step = rnl_plan_step(p->plan, s);
        if (step->op != RNL_OP_EXPECT_ZERO && step->op != RNL_OP_EXPECT_IDENTITY)
            continue;
        float *const value = element(&p->src, &step->src,
                                     random_below(step->src.rows * step->src.cols));
        const float was = *value;
        *value = 0.5f;
        err.text[0] = '\0';
        CHECK(run(p, RNL_FLOAT32, &p->src, &got, &err) == RNL_E_LOSSY, "%s", err.text);
        CHECK(err.status == RNL_E_LOSSY && strstr(err.text, "0.5"), "%s", err.text);
        CHECK(same_bytes(&got, &blank, RNL_FLOAT32), "written on error: %s", err.text);
        *value = was;
    }
    tensors_free(&got);
    tensors_free(&blank);
}

/* The steps write every element of the target. */
static void check_complete(const pair *p)
{
    float untouched;
    memset(&untouched, UNTOUCHED, sizeof untouched);
    for (int64_t t = 0; t < p->want.n; t++)
        for (int64_t k = 0; k < p->want.nelems[t]; k++)
            CHECK(((float *)p->want.data[t])[k] != untouched,
                  "%s to %s: tensor %" PRId64 ", element %" PRId64, p->from->name, p->to->name, t,
                  k);
}

static void check_pair(pair *p)
{
    rnl_error err;
    const rnl_status status = rnl_plan_new(p->spec, p->from, p->has, p->to, &p->plan, &err);
    if (status) { /* only because one of the two layouts cannot represent this RNN */
        CHECK(rnl_layout_check(p->from, p->spec, &err) || rnl_layout_check(p->to, p->spec, &err),
              "%s", err.text);
        return;
    }
    p->src = tensors_new(p->from, p->spec, p->has, RNL_FLOAT32);
    p->want = target(p);
    fill(p->plan, &p->src);
    for (int64_t k = 0; k < rnl_plan_num_steps(p->plan); k++)
        if (rnl_plan_step(p->plan, k)->dst.tensor >= 0)
            walk_step(rnl_plan_step(p->plan, k), &p->src, &p->want);
    tensors halves = halves_of(&p->src);
    CHECK(rnl_plan_num_ops(p->plan) <= rnl_plan_num_steps(p->plan), "%s", p->from->name);
    check_complete(p);
    check_run(p, RNL_FLOAT32, &p->src);
    check_run(p, RNL_FLOAT16, &halves);
    check_refusals(p);
    tensors_free(&halves);
    tensors_free(&p->src);
    tensors_free(&p->want);
    rnl_plan_free(p->plan);
}

/* A valid spec of any kind; sizes differ more often than not. */
static rnl_spec random_spec(void)
{
    rnl_spec spec = rnl_spec_default((rnl_cell)random_below(4), 1 + random_below(5),
                                     1 + random_below(5));
    spec.num_layers = 1 + random_below(3);
    spec.bidirectional = (int)random_below(2);
    spec.bias = (rnl_bias)random_below(4);
    if (spec.cell == RNL_GRU)
        spec.reset = (rnl_reset)random_below(2);
    if (spec.cell == RNL_LSTM)
        spec.peepholes = random_below(4) == 0;
    if (spec.cell == RNL_LSTM && random_below(2))
        spec.proj_size = random_below(spec.hidden_size);
    if (random_below(4) == 0) {
        spec.input_size = spec.hidden_size;
        spec.skip_input = (int)random_below(2);
    }
    return spec;
}

int main(void)
{
    const layouts known = layouts_all();
    const int turns = check_turns(NUM_SPECS);
    for (int turn = 0; turn < turns; turn++) {
        const rnl_spec spec = random_spec();
        const unsigned has = (unsigned)random_below(4); /* biases, peepholes */
        for (int from = 0; from < known.n; from++)
            for (int to = 0; to < known.n; to++)
                check_pair(&(pair){
                    .spec = &spec, .from = &known.all[from], .to = &known.all[to], .has = has});
    }
    return check_end();
}
