/*
 * Any bytes become calls of the public functions: the target of libFuzzer, run by tools/fuzz. The
 * sanitizers see memory and arithmetic; what the header promises is asserted here. Every buffer has
 * exactly the size that the header gives, so that a byte beyond it is seen.
 */
#undef NDEBUG
#include <assert.h>
#include <stdlib.h>

#include "core/dtype.h"
#include "layouts.h"

enum {
    MOST_LAYERS = 4,   /* of what is converted and run ...              */
    MOST_ELEMS = 1024, /* ... and elements, so that a call takes 0.1 ms */
    ENOUGH_TENSORS = 256
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ------------------------------------------------------------------- the bytes as arguments -- */

static const uint8_t *at, *end;
static rnl_error err;

/* The next bytes as a number; zeros after the end. */
static uint64_t bits(int nbytes)
{
    uint64_t found = 0;
    for (int k = 0; k < nbytes && at < end; k++)
        found |= (uint64_t)*at++ << 8 * k;
    return found;
}

static int any_int(void)
{
    return (int32_t)bits(4);
}

/* One of n values; now and then any other. */
static int one_of(int n)
{
    const int byte = (int)bits(1);
    return byte < 0xf0 ? byte % n : any_int();
}

static int64_t any_size(void)
{
    const int byte = (int)bits(1);
    return byte < 0xf0 ? byte % 40 : (int64_t)bits(8);
}

static double any_double(void)
{
    const uint64_t some = bits(8);
    double value;
    memcpy(&value, &some, sizeof value);
    return value;
}

/* A text, which the caller frees. */
static char *any_text(void)
{
    size_t length = (size_t)bits(1);
    if (length > (size_t)(end - at))
        length = (size_t)(end - at);
    char *text = calloc(length + 1, 1);
    assert(text);
    for (size_t k = 0; k < length; k++, at++)
        text[k] = *at == '(' ? ' ' : (char)*at; /* "(null)" in a message is never this text */
    return text;
}

/* Memory of n elements with the bytes that are left, over and over; zeros if none are left. */
static void *numbers(int64_t n, rnl_dtype dtype)
{
    const size_t nbytes = (size_t)(n * rnl_dtype_nbytes(dtype)), left = (size_t)(end - at);
    uint8_t *memory = calloc(nbytes + !nbytes, 1);
    assert(memory);
    for (size_t k = 0; left && k < nbytes; k += left)
        memcpy(memory + k, at, left < nbytes - k ? left : nbytes - k);
    return memory;
}

static rnl_spec any_spec(void)
{
    rnl_spec spec = rnl_spec_default((rnl_cell)one_of(4), any_size(), any_size());
    spec.num_layers = any_size();
    const unsigned flags = (unsigned)bits(1);
    spec.bidirectional = flags & 1;
    spec.peepholes = flags >> 1 & 1;
    spec.skip_input = flags >> 2 & 1;
    spec.proj_size = flags >> 3 & 1 ? any_size() : 0;
    spec.dtype = (rnl_dtype)one_of(4);
    spec.bias = (rnl_bias)one_of(4);
    spec.reset = (rnl_reset)one_of(2);
    spec.recurrent_activation = (rnl_activation)one_of(3);
    spec.activation = (rnl_state_activation)one_of(2);
    return spec;
}

static rnl_layout any_layout(void)
{
    static layouts known;
    if (!known.n)
        known = layouts_all();
    const int k = (int)bits(1);
    rnl_layout layout = known.all[k % known.n];
    if (k >= known.n) { /* an option that is a number has more values than are in the table */
        char *const value = any_text();
        (void)rnl_layout_set(&layout, "forget_bias", value, &err);
        free(value);
    }
    return layout;
}

/* Is it done? If not, there is a message, whose values all have names. */
static int done(rnl_status status)
{
    if (!status)
        return 1;
    const size_t length = strnlen(err.text, sizeof err.text);
    assert(err.status == status && length >= 10 && length < sizeof err.text - 1);
    assert(!strstr(err.text, "(null)"));
    return 0;
}

/* ------------------------------------------------------------------------------ the calls -- */

static void fuzz_describe(void)
{
    const rnl_spec spec = any_spec();
    const rnl_layout layout = any_layout();
    const unsigned optional = (unsigned)bits(1);
    const rnl_block any = {any_size(), one_of(2), (rnl_role)one_of(7), one_of(4)};
    rnl_tensor tensor;
    rnl_view view;
    int64_t n = 0;
    if (done(rnl_layout_tensor(&layout, &spec, optional, any_size(), &tensor, &err)))
        assert(tensor.ndim <= RNL_MAX_DIMS && strnlen(tensor.name, RNL_MAX_NAME) < RNL_MAX_NAME);
    if (done(rnl_layout_locate(&layout, &spec, optional, &any, &view, &err)))
        assert(view_is_inside(&layout, &spec, optional, &view));
    if (!done(rnl_layout_num_tensors(&layout, &spec, optional, &n, &err)))
        return;
    const int64_t blocks = rnl_num_blocks(&spec);
    const rnl_block block = rnl_block_at(&spec, (int64_t)(bits(8) % (uint64_t)blocks));
    assert(done(rnl_layout_locate(&layout, &spec, optional, &block, &view, &err)));
    assert(view.tensor < n && strchr("ifgorznh", rnl_gate_letter(spec.cell, block.gate)));
    assert(rnl_lin_layer_id(spec.cell, &block) >= 0);
    assert(view_is_inside(&layout, &spec, optional, &view));
}

/* ---------------------------------------------------------------------------- conversions -- */

typedef struct tensors {
    int64_t n, nelems; /* nelems: of all together */
    void *data[ENOUGH_TENSORS];
} tensors;

static void tensors_free(tensors *t)
{
    for (int64_t k = 0; k < t->n; k++)
        free(t->data[k]);
}

/* Are the RNN's tensors so few and small that they can be allocated? Then do that. */
static int tensors_new(tensors *made, const rnl_layout *layout, const rnl_spec *spec,
                       unsigned optional, rnl_dtype dtype)
{
    rnl_tensor tensor;
    int64_t n;
    assert(done(rnl_layout_num_tensors(layout, spec, optional, &n, &err)));
    for (made->n = 0; made->n < n && made->n < ENOUGH_TENSORS; made->n++) {
        assert(done(rnl_layout_tensor(layout, spec, optional, made->n, &tensor, &err)));
        if (tensor.nelems > MOST_ELEMS || (made->nelems += tensor.nelems) > MOST_ELEMS)
            return 0;
        made->data[made->n] = numbers(tensor.nelems, dtype);
    }
    return made->n == n;
}

static int stop_or_not(void *arg)
{
    return *(int *)arg;
}

/* A dry run foretells the run. */
static void run_plan(const rnl_plan *plan, const tensors *src, const tensors *dst,
                     const rnl_dtype *dtypes)
{
    const unsigned flags = (unsigned)bits(1);
    int stop = flags >> 2 & 1;
    rnl_run_options options = {.exact = flags & 1, .poll = stop_or_not, .poll_arg = &stop};
    rnl_report foretold = {0}, report = {0};
    options.dry_run = 1;
    const rnl_status dry = rnl_plan_run(plan, dtypes[0], (const void *const *)src->data, dtypes[1],
                                        NULL, &options, &foretold, &err);
    done(dry);
    options.dry_run = 0;
    options.dst_is_new = flags >> 1 & 1;
    const rnl_status status = rnl_plan_run(plan, dtypes[0], (const void *const *)src->data,
                                           dtypes[1], dst->data, &options, &report, &err);
    done(status);
    assert(stop || status == dry);
    assert(status || dry ||
           (report.grade == foretold.grade && report.rounded_sums == foretold.rounded_sums));
}

static void fuzz_convert(void)
{
    const rnl_spec spec = any_spec();
    const rnl_layout from = any_layout(), to = any_layout();
    const unsigned optional = (unsigned)bits(1);
    const rnl_dtype dtypes[] = {(rnl_dtype)one_of(4), (rnl_dtype)one_of(4)};
    const rnl_kind kind = (rnl_kind)one_of(3);
    const int known = rnl_name(RNL_NAMES_DTYPE, (int)dtypes[0]) &&
                      rnl_name(RNL_NAMES_DTYPE, (int)dtypes[1]);
    rnl_plan *plan = NULL;
    tensors src = {0}, dst = {0};
    if (spec.num_layers > MOST_LAYERS ||
        !done(rnl_plan_new(&spec, &from, optional, &to, kind, &plan, &err)))
        return;
    assert(rnl_plan_num_block_ops(plan) <= 2 * rnl_num_blocks(&spec));
    for (int64_t k = 0; k < rnl_plan_num_ops(plan); k++) {
        assert(view_is_inside(&from, &spec, optional, &rnl_plan_op(plan, k)->src));
        assert(view_is_inside(&from, &spec, optional, &rnl_plan_op(plan, k)->src2));
        assert(view_is_inside(&to, &spec, rnl_spec_optional(&spec), &rnl_plan_op(plan, k)->dst));
    }
    if (!known)
        assert(!done(rnl_plan_run(plan, dtypes[0], NULL, dtypes[1], NULL, NULL, NULL, &err)));
    else if (tensors_new(&src, &from, &spec, optional, dtypes[0]) &&
             tensors_new(&dst, &to, &spec, rnl_spec_optional(&spec), dtypes[1]))
        run_plan(plan, &src, &dst, dtypes);
    tensors_free(&src);
    tensors_free(&dst);
    rnl_plan_free(plan);
}

/* ----------------------------------------------------------------------- the forward pass -- */

/* Where (T, N, width) ends, if its axes have gaps; steps or sequences may be the slowest. */
static int64_t strides(const rnl_rnn_call *call, int64_t width, unsigned how, int64_t *time,
                       int64_t *batch)
{
    const int64_t inner = width + (how >> 1 & 1), most = call->T > call->N ? call->T : call->N;
    const int64_t outer = inner * most + (how >> 2 & 1);
    *time = how & 1 ? inner : outer;
    *batch = how & 1 ? outer : inner;
    if (call->T < 1 || call->N < 1)
        return 0;
    return (call->T - 1) * *time + (call->N - 1) * *batch + width;
}

/* Record the call, and go back with some of the gradients. */
static void run_backward(rnl_rnn *rnn, const rnl_spec *spec, const rnl_rnn_call *call,
                         int64_t num_weights)
{
    enum { ALIGNMENT = 64, MOST_NBYTES = 1 << 24 };
    const rnl_dtype real = spec->dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32;
    const int64_t D = 1 + spec->bidirectional, rows = call->T * call->N;
    const int64_t P = spec->proj_size ? spec->proj_size : spec->hidden_size;
    const int64_t states = spec->num_layers * D * call->N;
    const unsigned which = (unsigned)bits(1);
    int stop = (int)(bits(1) >> 7);
    int64_t nbytes;
    if (!done(rnl_rnn_tape_nbytes(rnn, call->T, call->N, &nbytes, &err)) || nbytes > MOST_NBYTES)
        return;
    void *const tape = aligned_alloc(ALIGNMENT, (size_t)((nbytes / ALIGNMENT + 1) * ALIGNMENT));
    assert(tape);
    void *const given[] = {numbers(rows * D * P, real),
                           numbers(states * P, real),
                           numbers(states * spec->hidden_size, real),
                           numbers(rows * spec->input_size, real),
                           numbers(states * P, real),
                           numbers(states * spec->hidden_size, real),
                           numbers(num_weights, real)};
    rnl_gradients gradients = {.T = call->T,
                               .N = call->N,
                               .lengths = call->lengths,
                               .dy = which & 1 ? given[0] : NULL,
                               .dy_time = call->N * D * P,
                               .dy_batch = D * P,
                               .dhn = which & 2 ? given[1] : NULL,
                               .dcn = which & 4 ? given[2] : NULL,
                               .dx = which & 8 ? given[3] : NULL,
                               .dx_time = call->N * spec->input_size,
                               .dx_batch = spec->input_size,
                               .dh0 = which & 16 ? given[4] : NULL,
                               .dc0 = which & 32 ? given[5] : NULL,
                               .dweights = which & 64 ? given[6] : NULL,
                               .adds = (int)(which >> 7),
                               .poll = stop_or_not,
                               .poll_arg = &stop};
    if (done(rnl_rnn_record(rnn, call, tape, &err)))
        done(rnl_rnn_backward(rnn, tape, &gradients, &err));
    for (size_t k = 0; k < sizeof given / sizeof *given; k++)
        free(given[k]);
    free(tape);
}

static void run_rnn(rnl_rnn *rnn, const rnl_spec *spec, int64_t num_weights)
{
    const unsigned which = (unsigned)bits(1), how = (unsigned)bits(1);
    int stop = how >> 7;
    rnl_rnn_call call = {.T = one_of(7),
                         .N = one_of(9),
                         .dtype = (rnl_dtype)one_of(4),
                         .poll = stop_or_not,
                         .poll_arg = &stop};
    if (call.T > 64 || call.N > 64)
        return;
    const int is_lstm = rnl_cell_facts_of(spec->cell)->has_c, D = 1 + spec->bidirectional;
    const int64_t T = call.T < 0 ? 0 : call.T, N = call.N < 0 ? 0 : call.N;
    const rnl_dtype dtype = rnl_name(RNL_NAMES_DTYPE, (int)call.dtype) ? call.dtype : RNL_FLOAT64;
    const int64_t width = D * (spec->proj_size ? spec->proj_size : spec->hidden_size);
    const int64_t states = spec->num_layers * N * width;
    const int64_t cells = is_lstm ? spec->num_layers * N * D * spec->hidden_size : 0;
    int64_t *const lengths = malloc((size_t)N * sizeof *lengths + !N);
    assert(lengths);
    for (int64_t n = 0; which & 1 && n < N; n++)
        lengths[n] = one_of((int)T + 1);
    unsigned char *const mask = malloc((size_t)(T * N) + 1);
    assert(mask);
    const int has_mask = how >> 6 & 1 && !(which & 1);
    for (int64_t k = 0; has_mask && k < T * N; k++)
        mask[k] = (unsigned char)bits(1);
    void *const given[] = {
        numbers(strides(&call, spec->input_size, how, &call.x_time, &call.x_batch), dtype),
        numbers(strides(&call, width, how >> 3, &call.y_time, &call.y_batch), dtype),
        numbers(states, dtype),
        numbers(cells, dtype),
        numbers(states, dtype),
        numbers(cells, dtype),
        lengths,
        mask};
    call.lengths = which & 1 ? lengths : NULL;
    call.mask = has_mask ? mask : NULL;
    call.mask_time = N;
    call.mask_batch = 1;
    call.repeats_masked = (int)(how & 1);
    call.x = given[0];
    call.y = which & 2 ? given[1] : NULL;
    call.h0 = which & 4 ? given[2] : NULL;
    call.c0 = which & 8 ? given[3] : NULL;
    call.hn = which & 16 ? given[4] : NULL;
    call.cn = which & 32 && is_lstm ? given[5] : NULL;
    rnl_set_num_threads(1 + (int)(which >> 6));
    if (done(rnl_rnn_run(rnn, &call, &err)) && how & 1)
        run_backward(rnn, spec, &call, num_weights);
    for (size_t k = 0; k < sizeof given / sizeof *given; k++)
        free(given[k]);
}

static void check_weights(const rnl_rnn *rnn, const tensors *given, rnl_dtype dtype)
{
    const size_t nbytes = (size_t)(given->nelems * rnl_dtype_nbytes(dtype));
    void *const same = malloc(nbytes);
    assert(same);
    rnl_rnn_weights(rnn, same);
    assert(!memcmp(same, given->data[0], nbytes));
    free(same);
}

static void fuzz_run(void)
{
    const rnl_spec spec = any_spec();
    const unsigned flags = (unsigned)bits(1);
    rnl_rnn_options options = {
        .clips = flags & 1, .math = (rnl_cpu_math)(flags >> 1 & 3), .borrows = flags >> 3 & 1};
    if (options.clips) {
        options.clip_low = any_double();
        options.clip_high = any_double();
    }
    rnl_layout layout;
    tensors weights = {0};
    rnl_rnn *rnn = NULL;
    assert(done(rnl_layout_named(RNL_FORWARD_LAYOUT, &layout, &err)));
    if (!done(rnl_layout_check(&layout, &spec, &err)) || spec.num_layers > MOST_LAYERS)
        return;
    if (tensors_new(&weights, &layout, &spec, rnl_spec_optional(&spec), spec.dtype) &&
        done(rnl_rnn_new(&spec, weights.data[0], &options, &rnn, &err))) {
        if (!options.borrows && options.math != RNL_CPU_MATH_INT8)
            check_weights(rnn, &weights, spec.dtype);
        run_rnn(rnn, &spec, weights.nelems);
        if (flags >> 4 & 1)
            rnl_rnn_update(rnn, weights.data[0]);
        run_rnn(rnn, &spec, weights.nelems);
    }
    rnl_rnn_free(rnn);
    tensors_free(&weights);
}

/* Rows that were read are written, read again, and the same. */
static void check_rows(rnl_layout *layout)
{
    char first[16384], second[16384];
    rnl_layout same;
    assert(done(rnl_layout_to_json(layout, first, sizeof first, &err)));
    assert(done(rnl_layout_from_json(first, strlen(first), &same, &err)));
    assert(done(rnl_layout_to_json(&same, second, sizeof second, &err)));
    assert(strcmp(first, second) == 0);
    rnl_layout_free(layout);
    rnl_layout_free(&same);
}

/* All bytes that are left, in memory of exactly that size. */
static void fuzz_json(void)
{
    const size_t nbytes = (size_t)(end - at);
    char *const text = malloc(nbytes + !nbytes);
    rnl_spec spec;
    rnl_rnn_options options;
    assert(text);
    for (size_t k = 0; k < nbytes; k++)
        text[k] = (char)(at[k] == '(' ? ' ' : at[k]); /* as in any_text() */
    if (done(rnl_spec_from_json(text, nbytes, &spec, &options, &err))) {
        assert(!rnl_spec_check(&spec, &err));
        assert(options.clips == (options.clip_high > 0) && !options.math && !options.borrows);
    }
    (void)done(rnl_weights_check(text, nbytes, text, nbytes, &err));
    rnl_layout layout;
    if (done(rnl_layout_from_json(text, nbytes, &layout, &err)))
        check_rows(&layout);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const calls[])(void) = {fuzz_json, fuzz_describe, fuzz_convert, fuzz_run};
    at = data;
    end = data + size;
    if (size && *data == '{') /* not a number of one of the calls below */
        fuzz_json();
    else
        calls[bits(1) % 4]();
    return 0;
}
