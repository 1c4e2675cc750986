/* Compute a sequence, some steps at a time, in the calling thread. */
#include "forward/stepper.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "kernels/kernels.h"
#include "kernels/subnormals.h"
#include "system/min.h"
#include "system/system.h"

enum {
    STEPS_AT_ONCE = 16, /* steps per product of the inputs ...     */
    MANY_INPUTS = 32,   /* ... if input_size is at least this size */
    ALIAS = 4096        /* CPUs compare the addresses of loads and stores modulo this number */
};

/* Copy n numbers, with a conversion if the dtypes differ. */
static void copy(rnl_dtype from_dtype, const void *from, rnl_dtype to_dtype, void *to, int64_t n)
{
    if (from_dtype == to_dtype) {
        memcpy(to, from, (size_t)(n * rnl_dtype_nbytes(to_dtype)));
        return;
    }
    const rnl_job job = {.src_dtype = from_dtype,
                         .dst_dtype = to_dtype,
                         .src = from,
                         .dst = to,
                         .rows = 1,
                         .cols = n,
                         .src_grid = {n, 1},
                         .dst_grid = {n, 1}};
    rnl_copy(&job);
}

/* ------------------------------------------------------------------------------- memory -- */

/* Place the states of a layer so that the states end where the panel of W begins, modulo ALIAS. A
 * CPU may start W x before the previous step has stored the states, but a load waits for an earlier
 * store whose address seems to be the same. With these places, the part of W that is read last
 * seems to have the addresses of the states. With other places a step of I = H = 16 took 111 ns
 * instead of 82 (Emerald Rapids). */
static rnl_buffers place_states(const rnl_rnn *rnn, int64_t layer, rnl_arena *arena)
{
    const int64_t real = rnl_dtype_nbytes(rnn->real);
    const int64_t units = rnl_padded(rnn, rnn->blocks), state = rnl_padded(rnn, rnn->state_blocks);
    const int64_t cells = rnl_cell_facts_of(rnn->spec.cell)->has_c ? units : 0;
    const uintptr_t end = (uintptr_t)rnl_weights_of(rnn, layer, 0)->operands[RNL_OF_W].panel;
    rnl_arena states = {.memory = arena->memory};
    if (states.memory) {
        states.memory += arena->used.n;
        states.memory +=
            (end - (uintptr_t)((2 * state + cells) * real) - (uintptr_t)states.memory) % ALIAS;
    }
    const rnl_buffers buffers = {
        .h = {rnl_arena_take(&states, state, 1, real), rnl_arena_take(&states, state, 1, real)},
        .c = rnl_arena_take(&states, cells, 1, real),
        .full = rnl_arena_take(&states, units, rnn->spec.proj_size > 0, real),
        .reset = rnl_arena_take(&states, units, rnn->kind == RNL_STEP_GRU_BEFORE, real)};
    arena->used = rnl_size_add(rnl_size_add(arena->used, states.used), rnl_size_of(ALIAS));
    return buffers;
}

static void describe(const rnl_stepper *s, int64_t k, const rnl_buffers *states, char *sums,
                     char *scratch)
{
    rnl_stepped *const layer = &s->layers[k];
    layer->states = *states;
    layer->current = 0;
    layer->job = rnl_recurrence_of(s->rnn, rnl_weights_of(s->rnn, k, 0), states);
    layer->job.input.acc = sums;
    rnl_recurrence_rows(&layer->job, 1);
    rnl_recurrence_sums(&layer->job, sums);
    rnl_recurrence_scratch(&layer->job, scratch);
    if (layer->job.input.of->gates) /* otherwise add_input() comes before the step */
        layer->job.step.input = layer->job.input;
}

rnl_size rnl_stepper_place(rnl_stepper *stepper, const rnl_rnn *rnn, rnl_dtype dtype, char *memory)
{
    const rnl_spec *const spec = &rnn->spec;
    const int64_t real = rnl_dtype_nbytes(rnn->real);
    const int64_t units = rnl_padded(rnn, rnn->blocks);
    rnl_arena a = {.memory = memory};
    *stepper = (rnl_stepper){.rnn = rnn,
                             .dtype = dtype,
                             .copies_x = dtype != rnn->real || spec->skip_input,
                             .num_layers = spec->num_layers,
                             .state_size = rnl_state_size(spec),
                             .x_nbytes = spec->input_size * rnl_dtype_nbytes(dtype),
                             .y_nbytes = rnl_state_size(spec) * rnl_dtype_nbytes(dtype),
                             .sums_nbytes = rnl_sums_row(rnn) * real,
                             .at_once = 1};
    if (spec->input_size >= MANY_INPUTS && !spec->skip_input)
        stepper->at_once = STEPS_AT_ONCE;
    stepper->layers = (rnl_stepped *)(void *)rnl_arena_take(&a, spec->num_layers, 1,
                                                            sizeof *stepper->layers);
    stepper->x = rnl_arena_take(&a, STEPS_AT_ONCE, spec->skip_input ? units : spec->input_size,
                                real);
    stepper->sums = rnl_arena_take(&a, STEPS_AT_ONCE, rnl_sums_row(rnn), real);
    const int64_t inputs = spec->skip_input ? units : spec->input_size;
    char *const scratch = rnl_arena_take(&a, rnl_scratch_nbytes(rnn, STEPS_AT_ONCE, inputs), 1, 1);
    char *const deep_sums = rnl_arena_take(&a, units, rnn->num_sums, real);
    for (int64_t k = 0; k < spec->num_layers; k++) {
        const rnl_buffers states = place_states(rnn, k, &a);
        if (memory)
            describe(stepper, k, &states, k > 0 ? deep_sums : stepper->sums, scratch);
    }
    return a.used;
}

rnl_status rnl_stepper_new(rnl_rnn *rnn, rnl_dtype dtype, rnl_stepper **stepper, rnl_error *err)
{
    rnl_status status = rnl_rnn_check_dtype(rnn, dtype, err);
    if (!status && rnn->spec.bidirectional)
        status = rnl_fail(err, RNL_E_SPEC,
                          "a stepper needs one direction, this RNN has two: the backward one starts"
                          " at the last step, which has not come yet");
    if (!status && !rnn->panels)
        status = rnl_rnn_pack(rnn, err);
    if (status)
        return status;
    rnl_stepper *const result = malloc(sizeof *result);
    const rnl_size size = result ? rnl_stepper_place(result, rnn, dtype, NULL)
                                 : (rnl_size){0, true};
    void *const memory = size.overflow ? NULL : rnl_memory_new(size.n);
    if (!memory) {
        free(result);
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a stepper");
    }
    memset(memory, 0, (size_t)size.n);
    rnl_stepper_place(result, rnn, dtype, memory);
    *stepper = result;
    return RNL_OK;
}

void rnl_stepper_free(rnl_stepper *stepper)
{
    if (stepper)
        rnl_memory_free(stepper->layers); /* the first piece of the memory */
    free(stepper);
}

/* ------------------------------------------------------------------------------- states -- */

static void set(const rnl_stepper *s, const char *from, int64_t width, char *to)
{
    if (from)
        copy(s->dtype, from, s->rnn->real, to, width);
    else
        memset(to, 0, (size_t)(width * rnl_dtype_nbytes(s->rnn->real)));
}

void rnl_stepper_set(rnl_stepper *stepper, const void *h, const void *c)
{
    const rnl_spec *const spec = &stepper->rnn->spec;
    const int64_t P = rnl_state_size(spec), H = spec->hidden_size;
    const int64_t nbytes = rnl_dtype_nbytes(stepper->dtype);
    for (int64_t k = 0; k < spec->num_layers; k++) {
        const rnl_stepped *const layer = &stepper->layers[k];
        set(stepper, h ? (const char *)h + k * P * nbytes : NULL, P,
            layer->states.h[layer->current]);
        if (rnl_cell_facts_of(spec->cell)->has_c)
            set(stepper, c ? (const char *)c + k * H * nbytes : NULL, H, layer->states.c);
    }
}

void rnl_stepper_reset(rnl_stepper *stepper)
{
    rnl_stepper_set(stepper, NULL, NULL);
}

void rnl_stepper_get(const rnl_stepper *stepper, void *h, void *c)
{
    const rnl_rnn *const rnn = stepper->rnn;
    const int64_t P = rnl_state_size(&rnn->spec), H = rnn->spec.hidden_size;
    const int64_t nbytes = rnl_dtype_nbytes(stepper->dtype);
    for (int64_t k = 0; k < rnn->spec.num_layers; k++) {
        const rnl_stepped *const layer = &stepper->layers[k];
        if (h)
            copy(rnn->real, layer->states.h[layer->current], stepper->dtype,
                 (char *)h + k * P * nbytes, P);
        if (c && rnl_cell_facts_of(rnn->spec.cell)->has_c)
            copy(rnn->real, layer->states.c, stepper->dtype, (char *)c + k * H * nbytes, H);
    }
}

/* -------------------------------------------------------------------------------- steps -- */

/* Compute a step of a layer. Return the new state. */
static inline const char *step_layer(const rnl_rnn_kernels *kernels, rnl_stepped *layer,
                                     const char *x)
{
    rnl_recurrence *const job = &layer->job;
    const char *const before = layer->states.h[layer->current];
    char *const after = layer->states.h[layer->current ^= 1];
    rnl_recurrence_states(job, before, after, layer->current);
    job->step.input.x = job->input.x = x;
    if (!job->input.of->gates)
        kernels->add_input(&job->input);
    rnl_rnn_step_row(kernels, &job->step);
    if (job->renews)
        rnl_rnn_step_row(kernels, &job->renew);
    if (job->projects)
        kernels->product(&job->project);
    return after;
}

/* Compute a step; x is REAL. */
static inline void step(const rnl_stepper *s, const char *x, char *y)
{
    for (int64_t k = 0; k < s->num_layers; k++)
        x = step_layer(s->rnn->kernels, &s->layers[k], x);
    if (y)
        copy(s->rnn->real, x, s->dtype, y, s->state_size);
}

/* Add the product with the inputs to the sums of n steps of the first layer. */
static void add_inputs(const rnl_stepper *s, const char *x, int64_t n)
{
    rnl_product job = s->layers[0].job.input;
    job.x = x;
    job.x_row = s->rnn->spec.input_size;
    job.rows = n;
    s->rnn->kernels->product(&job);
}

/* Compute n steps, at most STEPS_AT_ONCE, with a single product of all inputs beforehand. */
static void run_ahead(const rnl_stepper *s, const char *x, char *y, int64_t n)
{
    rnl_recurrence *const first = &s->layers[0].job;
    add_inputs(s, x, n);
    first->step.input.rows = 0;
    for (int64_t t = 0; t < n; t++) {
        rnl_recurrence_sums(first, s->sums + t * s->sums_nbytes);
        step(s, x, y ? y + t * s->y_nbytes : NULL);
    }
    first->step.input.rows = 1;
    rnl_recurrence_sums(first, s->sums);
}

static void run(const rnl_stepper *stepper, const char *x, char *y, int64_t n)
{
    for (int64_t done = 0, num_steps; done < n;
         done += num_steps, x += num_steps * stepper->x_nbytes) {
        num_steps = rnl_min(stepper->at_once, n - done);
        const char *in = x;
        if (stepper->copies_x) {
            copy(stepper->dtype, x, stepper->rnn->real, stepper->x,
                 num_steps * stepper->rnn->spec.input_size);
            in = stepper->x;
        }
        if (num_steps > 1)
            run_ahead(stepper, in, y, num_steps);
        else
            step(stepper, in, y);
        if (y)
            y += num_steps * stepper->y_nbytes;
    }
}

/* Most calls compute a single step. Instructions between two steps delay the second step, because
 * the CPU looks only some hundreds of instructions ahead; so the common case comes first. */
void rnl_stepper_run(rnl_stepper *stepper, const void *x, void *y, int64_t n)
{
    if (rnl_subnormals_are_flushed()) {
        run(stepper, x, y, n);
        return;
    }
    const rnl_float_mode before = rnl_flush_subnormals();
    run(stepper, x, y, n);
    rnl_float_mode_restore(before);
}
