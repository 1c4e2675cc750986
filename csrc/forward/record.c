/* Record a call for a backward pass: the forward pass, which leaves its states and sums in a tape.
 * The members of the crew divide the blocks of hidden units, and wait for each other once per
 * step. Sums have the bits of rnl_rnn_run(). */
#include <inttypes.h>
#include <string.h>

#include "core/lengths.h"
#include "core/status.h"
#include "forward/recurrence.h"
#include "forward/tape.h"
#include "kernels/kernels.h"
#include "system/min.h"
#include "system/system.h"

enum { ROWS_AT_ONCE = 96 }; /* rows per product of the input: the sums of a few tiles stay in L2 */

typedef struct recording {
    rnl_rnn *rnn;
    const rnl_rnn_call *call;
    rnl_crew crew;
    rnl_tape tape;
    rnl_rows rows;
    int64_t real, units, state; /* bytes; padded widths */
    int64_t steps_at_once;
    char *input, *sums; /* of some steps; sums: unless the tape has them */
    char *full, *reset; /* of a step */
} recording;

/* A member in a layer and direction. */
typedef struct worker {
    const recording *run;
    rnl_mate mate;
    int64_t layer, k; /* k: number of the layer and direction */
    int direction;
    char *h, *c, *sums;
    int64_t sums_from; /* the row of the call where `sums` begins */
    rnl_recurrence job;
} worker;

/* The state before or after a step, in the order of the direction. */
static char *state_at(const worker *w, char *states, int64_t width, int64_t t, bool after)
{
    return states + (t + (after != w->direction)) * w->run->rows.N * width * w->run->real;
}

/* The state of a sequence in the tape, before its first step or after its last. */
static char *end_of(const worker *w, char *states, int64_t padded, int64_t rank, bool last)
{
    const rnl_rows *const rows = &w->run->rows;
    const int64_t t = last != w->direction ? rows->lengths[rank] : 0;
    return states + (t * rows->N + rank) * padded * w->run->real;
}

/* Return where the state of a sequence begins in an array of the caller, in bytes. */
static int64_t callers_place(const worker *w, int64_t rank, int64_t width)
{
    const rnl_rows *const rows = &w->run->rows;
    return (w->k * rows->N + rows->order[rank]) * width * rnl_dtype_nbytes(w->run->call->dtype);
}

static void copy_row(rnl_dtype from_dtype, const char *from, rnl_dtype to_dtype, char *to,
                     int64_t width)
{
    const rnl_job job = {.src_dtype = from_dtype,
                         .dst_dtype = to_dtype,
                         .rows = 1,
                         .cols = width,
                         .src = from,
                         .dst = to,
                         .src_grid = {width, 1},
                         .dst_grid = {width, 1}};
    rnl_copy(&job);
}

/* Put the initial state where each sequence begins. */
static void put_state(const worker *w, const char *initial, int64_t width, char *states,
                      int64_t padded)
{
    const recording *const run = w->run;
    for (int64_t rank = 0; rank < run->rows.N; rank++) {
        char *const to = end_of(w, states, padded, rank, false);
        memset(to, 0, (size_t)(padded * run->real));
        if (initial)
            copy_row(run->call->dtype, initial + callers_place(w, rank, width), run->rnn->real, to,
                     width);
    }
}

static void get_state(const worker *w, char *states, int64_t padded, char *final, int64_t width)
{
    const recording *const run = w->run;
    for (int64_t rank = 0; final && rank < run->rows.N; rank++)
        copy_row(run->rnn->real, end_of(w, states, padded, rank, true), run->call->dtype,
                 final + callers_place(w, rank, width), width);
}

/* Return the layer's inputs from a step on, and their row: the tape's x, or a copy. */
static const char *inputs_of(const worker *w, int64_t from, int64_t to, int64_t *x_row)
{
    const recording *const run = w->run;
    const rnl_spec *const spec = &run->rnn->spec;
    const rnl_rows *const rows = &run->rows;
    const int64_t K = rnl_layer_input(spec, w->layer);
    const bool is_added = w->job.input.of->gates == 0;
    *x_row = is_added ? run->units : K;
    if (w->layer == 0 && !is_added)
        return run->tape.x + rows->first[from] * K * run->real;
    const int64_t parts = w->layer == 0 ? 1 : rnl_num_directions(spec), width = K / parts;
    for (int64_t t = from + w->mate.member; t < to; t += w->mate.members)
        for (int64_t part = 0; part < parts; part++) {
            const int64_t below = (w->layer - 1) * parts + part;
            rnl_job job = {.src_dtype = run->rnn->real,
                           .dst_dtype = run->rnn->real,
                           .rows = rnl_rows_of(rows, t),
                           .cols = width,
                           .src_grid = {run->state, 1},
                           .dst_grid = {*x_row, 1}};
            job.dst = run->input +
                      ((rows->first[t] - rows->first[from]) * *x_row + part * width) * run->real;
            if (w->layer == 0) { /* the sums of lanes after the last unit stay zero */
                memset(job.dst, 0, (size_t)(job.rows * *x_row * run->real));
                job.src = run->tape.x + rows->first[t] * K * run->real;
                job.src_grid.row = K;
            } else {
                job.src = run->tape.h + below * run->tape.apart +
                          (t + !part) * rows->N * run->state * run->real;
            }
            rnl_copy(&job);
        }
    (void)rnl_mate_wait(&w->mate);
    return run->input;
}

static char *sums_at(const worker *w, int64_t t)
{
    const recording *const run = w->run;
    return w->sums + (run->rows.first[t] - w->sums_from) * rnl_sums_row(run->rnn) * run->real;
}

/* Compute the sums of the inputs of some steps. */
static void add_inputs(worker *w, int64_t from, int64_t to)
{
    const recording *const run = w->run;
    w->sums_from = run->sums ? run->rows.first[from] : 0;
    rnl_rnn_kernels kernels = *run->rnn->kernels;
    rnl_product job = w->job.input;
    job.x = inputs_of(w, from, to, &job.x_row);
    job.rows = run->rows.first[to] - run->rows.first[from];
    job.acc = sums_at(w, from);
    if (job.of->gates == 0)
        kernels.product = kernels.add_input;
    rnl_mate_multiply(&w->mate, &kernels, &job, run->real);
}

static void run_step(worker *w, int64_t t)
{
    const recording *const run = w->run;
    const rnl_rnn_kernels *const kernels = run->rnn->kernels;
    rnl_recurrence *const job = &w->job;
    rnl_recurrence_rows(job, rnl_rows_of(&run->rows, t));
    rnl_recurrence_sums(job, sums_at(w, t));
    rnl_recurrence_states(job, state_at(w, w->h, run->state, t, false),
                          state_at(w, w->h, run->state, t, true), t & 1);
    job->step.gates.c = state_at(w, w->c, run->units, t, false);
    job->step.gates.c_next = state_at(w, w->c, run->units, t, true);
    rnl_mate_multiply(&w->mate, kernels, &job->step.state, run->real);
    kernels->gates(&job->step.gates);
    if (job->renews) {
        (void)rnl_mate_wait(&w->mate);
        rnl_mate_multiply(&w->mate, kernels, &job->renew.state, run->real);
        kernels->gates(&job->renew.gates);
    }
    if (job->projects) {
        (void)rnl_mate_wait(&w->mate);
        rnl_mate_multiply(&w->mate, kernels, &job->project, run->real);
    }
}

/* False: leave. */
static bool run_direction(worker *w)
{
    const recording *const run = w->run;
    const rnl_spec *const spec = &run->rnn->spec;
    const int64_t T = run->rows.T, width = rnl_state_size(spec);
    if (w->mate.member == 0) {
        put_state(w, run->call->h0, width, w->h, run->state);
        if (rnl_cell_facts_of(spec->cell)->has_c)
            put_state(w, run->call->c0, spec->hidden_size, w->c, run->units);
    }
    if (!rnl_mate_end_step(&w->mate))
        return false;
    for (int64_t done = 0, steps; done < T; done += steps) {
        steps = rnl_min(run->steps_at_once, T - done);
        const int64_t from = w->direction ? T - done - steps : done;
        add_inputs(w, from, from + steps);
        for (int64_t k = 0; k < steps; k++) {
            run_step(w, w->direction ? from + steps - 1 - k : from + k);
            if (!rnl_mate_end_step(&w->mate))
                return false;
        }
    }
    if (w->mate.member == 0) {
        get_state(w, w->h, run->state, run->call->hn, width);
        if (rnl_cell_facts_of(spec->cell)->has_c)
            get_state(w, w->c, run->units, run->call->cn, spec->hidden_size);
    }
    return true;
}

/* Copy the states of the last layer to y, in which the steps after the end of a sequence are zero.
 */
static void put_output(const recording *run, const rnl_mate *mate)
{
    const rnl_spec *const spec = &run->rnn->spec;
    const rnl_rows *const rows = &run->rows;
    const rnl_rnn_call *const call = run->call;
    const int64_t width = rnl_state_size(spec), D = rnl_num_directions(spec);
    const int64_t nbytes = rnl_dtype_nbytes(call->dtype);
    for (int64_t t = mate->member; call->y && t < rows->T; t += mate->members) {
        char *const y = (char *)call->y + t * call->y_time * nbytes;
        const int64_t active = rnl_rows_of(rows, t);
        for (int64_t d = 0; d < D; d++)
            rnl_rows_scatter(rows, active,
                             run->tape.h + ((spec->num_layers - 1) * D + d) * run->tape.apart +
                                 (t + !d) * rows->N * run->state * run->real,
                             run->rnn->real, run->state, y + d * width * nbytes, call->dtype,
                             call->y_batch, width);
        for (int64_t rank = active; rank < rows->N; rank++)
            memset(y + rows->order[rank] * call->y_batch * nbytes, 0, (size_t)(D * width * nbytes));
    }
}

static void run_member(void *arg, int k, int members)
{
    recording *const run = arg;
    rnl_rnn *const rnn = run->rnn;
    const rnl_rows *const rows = &run->rows;
    const rnl_rnn_call *const call = run->call;
    worker w = {.run = run, .mate = {.crew = &run->crew, .member = k, .members = members}};
    for (int64_t t = k; t < rows->T; t += members)
        rnl_rows_gather(rows, rnl_rows_of(rows, t),
                        (const char *)call->x + t * call->x_time * rnl_dtype_nbytes(call->dtype),
                        call->dtype, call->x_batch,
                        run->tape.x + rows->first[t] * rnn->spec.input_size * run->real, rnn->real,
                        rnn->spec.input_size, rnn->spec.input_size);
    for (; w.layer < rnn->spec.num_layers; w.layer++)
        for (w.direction = 0; w.direction < rnl_num_directions(&rnn->spec); w.direction++, w.k++) {
            const rnl_buffers buffers = {.full = run->full, .reset = run->reset};
            w.job = rnl_recurrence_of(rnn, rnl_weights_of(rnn, w.layer, w.direction), &buffers);
            rnl_recurrence_blocks(&w.job, rnl_mate_first(&w.mate, rnn->blocks),
                                  rnl_mate_last(&w.mate, rnn->blocks),
                                  rnl_mate_first(&w.mate, rnn->state_blocks),
                                  rnl_mate_last(&w.mate, rnn->state_blocks));
            w.h = run->tape.h + w.k * run->tape.apart;
            w.c = run->tape.c + w.k * run->tape.apart;
            w.sums = run->sums ? run->sums : run->tape.sums + w.k * run->tape.apart;
            if (!run_direction(&w))
                return;
        }
    put_output(run, &w.mate);
}

static rnl_size place_buffers(recording *run, char *memory)
{
    const rnl_rnn *const rnn = run->rnn;
    const rnl_spec *const spec = &rnn->spec;
    const rnl_rnn_call *const call = run->call;
    rnl_arena a = {.memory = memory};
    int64_t widest = spec->skip_input ? run->units : 0;
    if (spec->num_layers > 1 && rnl_layer_input(spec, 1) > widest)
        widest = rnl_layer_input(spec, 1);
    rnl_rows_place(&run->rows, call->T, call->N, call->lengths, &a);
    run->input = rnl_arena_take(&a, call->N * run->steps_at_once, widest, run->real);
    if (!rnl_tape_has_sums(rnn))
        run->sums = rnl_arena_take(&a, call->N * run->steps_at_once, rnl_sums_row(rnn), run->real);
    run->full = rnl_arena_take(&a, call->N, spec->proj_size ? run->units : 0, run->real);
    run->reset = rnl_arena_take(&a, call->N, rnn->kind == RNL_STEP_GRU_BEFORE ? run->units : 0,
                                run->real);
    return a.used;
}

rnl_status rnl_rnn_tape_nbytes(const rnl_rnn *rnn, int64_t T, int64_t N, int64_t *nbytes,
                               rnl_error *err)
{
    rnl_tape tape;
    const rnl_status sizes = rnl_lengths_check(T, N, NULL, err);
    const rnl_status status = sizes ? sizes : rnl_tape_place(rnn, T, N, NULL, &tape, err);
    if (!status)
        *nbytes = tape.nbytes;
    return status;
}

rnl_status rnl_rnn_record(rnl_rnn *rnn, const rnl_rnn_call *call, void *tape, rnl_error *err)
{
    rnl_status status = rnl_rnn_check_dtype(rnn, call->dtype, err);
    if (!status)
        status = rnl_lengths_check(call->T, call->N, call->lengths, err);
    if (!status && call->mask)
        status = rnl_fail(err, RNL_E_SPEC,
                          "a call with a mask cannot be recorded, with lengths it"
                          " can");
    if (!status && (rnn->options.clips || rnn->options.math))
        status = rnl_fail(err, RNL_E_SPEC, "%s cannot be recorded: prepare the RNN without %s",
                          rnn->options.clips ? "a clip of the cell state"
                                             : "arithmetic that rounds",
                          rnn->options.clips ? "the clip" : "math");
    if (!status && !rnn->panels)
        status = rnl_rnn_pack(rnn, err);
    if (status || call->N == 0)
        return status;
    recording run = {.rnn = rnn,
                     .call = call,
                     .crew = {.poll = call->poll, .poll_arg = call->poll_arg},
                     .real = rnl_dtype_nbytes(rnn->real),
                     .units = rnl_padded(rnn, rnn->blocks),
                     .state = rnl_padded(rnn, rnn->state_blocks),
                     .steps_at_once = rnl_min(call->T, (ROWS_AT_ONCE - 1) / call->N + 1)};
    status = rnl_tape_place(rnn, call->T, call->N, tape, &run.tape, err);
    if (status)
        return status;
    const rnl_size size = place_buffers(&run, NULL);
    rnl_workspace *const workspace = size.overflow ? NULL : rnl_workspace_take(rnn, size.n);
    if (!workspace)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a call with T = %" PRId64 ", N = %" PRId64,
                        call->T, call->N);
    place_buffers(&run, workspace->data);
    status = rnl_crew_run(&run.crew, rnn, &run.rows, run_member, &run, err);
    rnl_workspace_give(rnn, workspace);
    return status;
}
