/* The backward pass of a recorded call: steps, groups of steps, directions and layers. */
#include "forward/backward.h"

#include <inttypes.h>
#include <string.h>

#include "core/lengths.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "system/min.h"
#include "system/system.h"

enum { ROWS_AT_ONCE = 128 }; /* rows per product with a gradient of a matrix */

typedef rnl_back_worker worker;

static rnl_size place_buffers(rnl_going_back *run, char *memory)
{
    const rnl_rnn *const rnn = run->rnn;
    const rnl_gradients *const call = run->call;
    const int64_t N = call->N, real = run->real;
    rnl_arena a = {.memory = memory};
    /* a call without sequences has no steps, whatever T is */
    rnl_rows_place(&run->rows, N ? call->T : 0, N, call->lengths, &a);
    for (int k = 0; k < 2; k++)
        run->between[k] = rnl_arena_take(&a, call->T * N, run->inputs, real);
    run->dh = rnl_arena_take(&a, N, run->state, real);
    run->dc = rnl_arena_take(&a, N, run->units, real);
    run->dfull = rnl_arena_take(&a, N, run->units, real);
    run->dsums = rnl_arena_take(&a, run->group, rnl_sums_row(rnn), real);
    run->dsums_panel = rnl_arena_take(&a, run->group, rnn->num_sums * run->units, real);
    const int64_t projected = rnn->spec.proj_size ? run->state : 0;
    run->dprojected = rnl_arena_take(&a, run->group, projected, real);
    run->dprojected_panel = rnl_arena_take(&a, run->group, projected, real);
    run->out = rnl_arena_take(&a, run->group, run->units, real);
    run->zeros = rnl_arena_take(&a, run->inputs + run->units, 1, real);
    run->dpeepholes = rnl_arena_take(&a, RNL_NUM_PEEPHOLES, run->units, real);
    rnl_factors_place(run, &a);
    if (rnn->panels)
        run->weights = rnl_arena_take(&a, rnl_num_weights(rnn, &run->cpu), 1,
                                      rnl_dtype_nbytes(rnn->spec.dtype));
    return a.used;
}

/* --------------------------------------------------------------------------------- a step -- */

static rnl_gates_backward gates_job(const worker *w, int64_t t, const rnl_step_group *steps)
{
    const rnl_going_back *const run = w->run;
    const rnl_rnn *const rnn = run->rnn;
    const rnl_weights *const weights = rnl_weights_of(rnn, w->layer, w->direction);
    const int64_t N = run->rows.N, first = run->rows.first[t], row = first - steps->first;
    const int64_t before = t + w->direction, after = t + !w->direction;
    const rnl_factor *const f = &w->factors[RNL_OF_R];
    rnl_gates_backward job = {.kind = rnn->kind,
                              .activation = rnn->spec.recurrent_activation,
                              .relu = rnn->spec.activation == RNL_RELU,
                              .first = rnl_mate_first(&w->mate, rnn->blocks),
                              .last = rnl_mate_last(&w->mate, rnn->blocks),
                              .blocks = rnn->blocks,
                              .rows = rnl_rows_of(&run->rows, t),
                              .acc = w->sums + first * rnl_sums_row(rnn) * run->real,
                              .acc_row = rnl_sums_row(rnn),
                              .h = w->h + before * N * run->state * run->real,
                              .h_next = w->h + after * N * run->state * run->real,
                              .c = w->c + before * N * run->units * run->real,
                              .c_next = w->c + after * N * run->units * run->real,
                              .out = run->out + row * run->units * run->real,
                              .dh = run->dh,
                              .dc = run->dc,
                              .state_row = run->units,
                              .dh_row = run->units,
                              .peepholes = weights->peepholes,
                              .dpeepholes = run->dpeepholes,
                              .dsums = run->dsums + row * f->dsums_row * run->real,
                              .dsums_row = f->dsums_row,
                              .panel = run->dsums_panel + row * run->kernels->lanes * run->real,
                              .panel_rows = steps->rows};
    if (w->doutput) {
        job.dy = w->doutput + (first * w->doutput_row + w->direction * run->state) * run->real;
        job.dy_row = w->doutput_row;
    }
    return job;
}

/* From the gradient of the state after a step to that of the state before. False: leave. */
static bool step_back(worker *w, int64_t t, const rnl_step_group *steps)
{
    const rnl_going_back *const run = w->run;
    const rnl_rnn_kernels *const kernels = run->kernels;
    const int64_t row = run->rows.first[t] - steps->first;
    const bool is_gru = run->rnn->spec.cell == RNL_GRU;
    rnl_gates_backward job = gates_job(w, t, steps);
    if (run->rnn->spec.proj_size) {
        rnl_gates_backward project = job;
        project.projects = true;
        project.first = rnl_mate_first(&w->mate, run->rnn->state_blocks);
        project.last = rnl_mate_last(&w->mate, run->rnn->state_blocks);
        project.blocks = run->rnn->state_blocks;
        project.dh_row = project.dsums_row = run->state;
        project.dsums = run->dprojected + row * run->state * run->real;
        project.panel = run->dprojected_panel + row * kernels->lanes * run->real;
        kernels->gates_backward(&project);
        (void)rnl_mate_wait(&w->mate);
        rnl_factor_multiply(w, RNL_OF_P, row, job.rows, run->dfull, run->units, false);
        job.dh = run->dfull;
        job.dy = NULL;
    }
    kernels->gates_backward(&job);
    if (job.kind == RNL_STEP_GRU_BEFORE) {
        (void)rnl_mate_wait(&w->mate);
        rnl_factor_multiply(w, RNL_OF_R_NEW, row, job.rows, run->dfull, run->units, false);
        job.kind = RNL_STEP_RESET;
        job.dy = run->dfull;
        job.dy_row = run->units;
        kernels->gates_backward(&job);
    }
    if (!rnl_mate_end_step(&w->mate))
        return false;
    rnl_factor_multiply(w, RNL_OF_R, row, job.rows, run->dh, run->state, is_gru);
    return true;
}

/* ------------------------------------------------------------------------------- a group -- */

/* Transpose the member's columns of rows of `width` elements, for the factor's operand from a
 * column and a row of the group on. */
static void transpose_rows(const worker *w, const char *from, int64_t width, int64_t rows,
                           const rnl_factor *f, int64_t column, int64_t columns, int64_t row)
{
    const rnl_going_back *const run = w->run;
    const int64_t first = rnl_mate_first(&w->mate, columns);
    const rnl_job job = {.src_dtype = run->rnn->real,
                         .dst_dtype = run->rnn->real,
                         .rows = rows,
                         .cols = rnl_mate_last(&w->mate, columns) - first,
                         .src = from + first * run->real,
                         .dst = f->transposed + ((column + first) * run->group + row) * run->real,
                         .src_grid = {width, 1},
                         .dst_grid = {1, run->group}};
    if (job.cols)
        rnl_copy(&job);
}

/* Transpose states of the tape, [step][sequence][lane], of the steps of a group. */
static void transpose_states(const worker *w, const rnl_step_group *steps, const char *states,
                             const rnl_factor *f, int64_t column, int64_t columns)
{
    const rnl_going_back *const run = w->run;
    const rnl_rows *const rows = &run->rows;
    const int64_t at_once = rows->all ? steps->to - steps->from : 1;
    for (int64_t t = steps->from; t < steps->to; t += at_once)
        transpose_rows(w, states + t * rows->N * run->state * run->real, run->state,
                       rows->first[t + at_once] - rows->first[t], f, column, columns,
                       rows->first[t] - steps->first);
}

/* Transpose the operands of the group. */
static void transpose_operands(const worker *w, const rnl_step_group *steps)
{
    const rnl_going_back *const run = w->run;
    const rnl_factor *const f = w->factors, *const input = &f[RNL_OF_W];
    const int64_t step = run->rows.N * run->state * run->real, width = input->K / input->parts;
    if (w->layer > 0)
        for (int64_t part = 0; part < input->parts; part++)
            transpose_states(w, steps,
                             run->tape.h +
                                 ((w->layer - 1) * input->parts + part) * run->tape.apart +
                                 !part * step,
                             input, part * width, width);
    else if (input->operand.of.gates)
        transpose_rows(w, run->tape.x + steps->first * width * run->real, width, steps->rows, input,
                       0, width, 0);
    transpose_states(w, steps, w->h + w->direction * step, &f[RNL_OF_R], 0, f[RNL_OF_R].K);
    for (int j = RNL_OF_R_NEW; j <= RNL_OF_P; j++)
        if (f[j].gates)
            transpose_rows(w, run->out, run->units, steps->rows, &f[j], 0, f[j].K, 0);
}

/* False: leave. */
static bool group_back(worker *w, const rnl_step_group *steps)
{
    const rnl_going_back *const run = w->run;
    for (int64_t k = 0; k < steps->to - steps->from; k++)
        if (!step_back(w, w->direction ? steps->from + k : steps->to - 1 - k, steps))
            return false;
    if (run->call->dweights)
        transpose_operands(w, steps);
    (void)rnl_mate_wait(&w->mate);
    if (run->call->dweights)
        rnl_factors_add(w, steps);
    if (w->dinput)
        rnl_factor_multiply(w, RNL_OF_W, 0, steps->rows,
                            w->dinput + steps->first * w->dinput_row * run->real, w->dinput_row,
                            w->direction > 0);
    return rnl_mate_end_step(&w->mate);
}

/* ------------------------------------------------------------------- directions and layers -- */

/* Copy the gradient of the final states to the ranks, or that of the initial states back. */
static void begin_state(const worker *w, const char *gradient, char *to, int64_t width,
                        int64_t padded_width)
{
    const rnl_going_back *const run = w->run;
    const int64_t N = run->rows.N;
    memset(to, 0, (size_t)(N * padded_width * run->real));
    if (gradient)
        rnl_rows_gather(&run->rows, N, gradient + w->k * N * width * run->real, run->rnn->real,
                        width, to, run->rnn->real, padded_width, width);
}

static void end_state(const worker *w, const char *from, int64_t padded_width, char *gradient,
                      int64_t width)
{
    const rnl_going_back *const run = w->run;
    const int64_t N = run->rows.N;
    if (gradient)
        rnl_rows_scatter(&run->rows, N, from, run->rnn->real, padded_width,
                         gradient + w->k * N * width * run->real, run->rnn->real, width, width);
}

/* False: leave. */
static bool direction_back(worker *w)
{
    const rnl_going_back *const run = w->run;
    const rnl_spec *const spec = &run->rnn->spec;
    const int64_t T = run->rows.T, width = rnl_state_size(spec), H = spec->hidden_size;
    rnl_factors_describe(w);
    rnl_factors_begin(w);
    if (w->mate.member == 0) {
        begin_state(w, run->call->dhn, run->dh, width, run->state);
        begin_state(w, run->call->dcn, run->dc, H, run->units);
    }
    if (!rnl_mate_end_step(&w->mate))
        return false;
    if (run->call->dweights && run->call->adds)
        rnl_factors_copy(w, false);
    if (!rnl_mate_end_step(&w->mate))
        return false;
    for (int64_t done = 0, n; done < T; done += n) {
        n = rnl_min(run->steps_at_once, T - done);
        rnl_step_group steps = {.from = w->direction ? done : T - done - n};
        steps.to = steps.from + n;
        steps.first = run->rows.first[steps.from];
        steps.rows = run->rows.first[steps.to] - steps.first;
        if (steps.rows && !group_back(w, &steps))
            return false;
    }
    if (run->call->dweights)
        rnl_factors_copy(w, true);
    if (w->mate.member == 0) {
        end_state(w, run->dh, run->state, run->call->dh0, width);
        if (rnl_cell_facts_of(spec->cell)->has_c)
            end_state(w, run->dc, run->units, run->call->dc0, H);
    }
    return rnl_mate_end_step(&w->mate);
}

/* Are the rows of an array of the caller the rows of the tape, without lanes after the last unit?
 * Then the array is used in place. */
static bool is_in_place(const rnl_going_back *run, int64_t width, int64_t time, int64_t batch)
{
    return run->rows.all && width % run->kernels->lanes == 0 &&
           (run->rows.T == 1 || time == run->rows.N * batch);
}

/* Copy dy to the rows. */
static void get_doutput(const worker *w, char *to)
{
    const rnl_going_back *const run = w->run;
    const rnl_gradients *const call = run->call;
    const rnl_spec *const spec = &run->rnn->spec;
    const int64_t D = rnl_num_directions(spec), width = rnl_state_size(spec), real = run->real;
    for (int64_t t = w->mate.member; t < run->rows.T; t += w->mate.members) {
        const int64_t rows = rnl_rows_of(&run->rows, t);
        char *const at = to + run->rows.first[t] * D * run->state * real;
        if (run->state > width)
            memset(at, 0, (size_t)(rows * D * run->state * real));
        for (int64_t d = 0; d < D; d++)
            rnl_rows_gather(&run->rows, rows,
                            (const char *)call->dy + (t * call->dy_time + d * width) * real,
                            run->rnn->real, call->dy_batch, at + d * run->state * real,
                            run->rnn->real, D * run->state, width);
    }
}

static void put_dx(const worker *w, const char *from)
{
    const rnl_going_back *const run = w->run;
    const rnl_gradients *const call = run->call;
    const rnl_rows *const rows = &run->rows;
    const int64_t I = run->rnn->spec.input_size, row = rnl_whole_lanes(run->kernels, I),
                  real = run->real;
    for (int64_t t = w->mate.member; t < rows->T; t += w->mate.members) {
        char *const dx = (char *)call->dx + t * call->dx_time * real;
        const int64_t active = rnl_rows_of(rows, t);
        rnl_rows_scatter(rows, active, from + rows->first[t] * row * real, run->rnn->real, row, dx,
                         run->rnn->real, call->dx_batch, I);
        for (int64_t rank = active; rank < rows->N; rank++)
            memset(dx + rows->order[rank] * call->dx_batch * real, 0, (size_t)(I * real));
    }
}

static void run_member(void *arg, int k, int members)
{
    rnl_going_back *const run = arg;
    const rnl_rnn *const rnn = run->rnn;
    const int D = rnl_num_directions(&rnn->spec);
    worker w = {.run = run, .mate = {.crew = &run->crew, .member = k, .members = members}};
    const rnl_gradients *const call = run->call;
    const int64_t width = rnl_state_size(&rnn->spec), I = rnn->spec.input_size;
    const bool reads_dy = call->dy && is_in_place(run, width, call->dy_time, call->dy_batch);
    const bool writes_dx = call->dx && is_in_place(run, I, call->dx_time, call->dx_batch);
    char *output = run->between[0], *input = run->between[1];
    w.doutput = reads_dy ? call->dy : call->dy ? output : NULL;
    w.doutput_row = reads_dy ? call->dy_batch : D * run->state;
    if (call->dy && !reads_dy)
        get_doutput(&w, output);
    for (w.layer = rnn->spec.num_layers - 1; w.layer >= 0; w.layer--) {
        w.dinput = w.layer > 0 || call->dx ? input : NULL;
        w.dinput_row = w.layer > 0 ? D * run->state : rnl_whole_lanes(run->kernels, I);
        if (w.layer == 0 && writes_dx) {
            w.dinput = call->dx;
            w.dinput_row = call->dx_batch;
        }
        for (w.direction = 0; w.direction < D; w.direction++) {
            w.k = w.layer * D + w.direction;
            w.h = run->tape.h + w.k * run->tape.apart;
            w.c = run->tape.c + w.k * run->tape.apart;
            w.sums = run->tape.sums + w.k * run->tape.apart;
            if (!direction_back(&w))
                return;
        }
        char *const above = output;
        output = input;
        input = above;
        w.doutput = output;
        w.doutput_row = D * run->state;
    }
    if (call->dx && !writes_dx)
        put_dx(&w, output);
}

rnl_status rnl_rnn_backward(rnl_rnn *rnn, const void *tape, const rnl_gradients *gradients,
                            rnl_error *err)
{
    const rnl_gradients *const call = gradients;
    const int64_t N = call->N;
    rnl_status status = rnl_lengths_check(call->T, N, call->lengths, err);
    if (status)
        return status;
    rnl_going_back run = {.rnn = rnn,
                          .call = call,
                          .kernels = rnl_rnn_kernels_get((int)rnn->real, rnn->spec.hidden_size),
                          .cpu = rnl_forward_layout(),
                          .crew = {.poll = call->poll, .poll_arg = call->poll_arg},
                          .real = rnl_dtype_nbytes(rnn->real),
                          .units = rnl_padded(rnn, rnn->blocks),
                          .state = rnl_padded(rnn, rnn->state_blocks)};
    run.steps_at_once = (ROWS_AT_ONCE - 1) / (N > 0 ? N : 1) + 1;
    run.group = run.steps_at_once * N;
    const int64_t first = rnl_whole_lanes(run.kernels, rnn->spec.input_size);
    const int64_t outputs = rnl_num_directions(&rnn->spec) * run.state;
    run.inputs = first > outputs ? first : outputs;
    status = rnl_tape_place(rnn, call->T, N, (void *)tape, &run.tape, err);
    if (status)
        return status;
    const rnl_size size = place_buffers(&run, NULL);
    rnl_workspace *const workspace = size.overflow ? NULL : rnl_workspace_take(rnn, size.n);
    if (!workspace)
        return rnl_fail(err, RNL_E_NOMEM,
                        "no memory for a backward pass with T = %" PRId64 ", N = %" PRId64, call->T,
                        N);
    place_buffers(&run, workspace->data);
    memset(run.zeros, 0, (size_t)((run.inputs + run.units) * run.real));
    if (run.weights)
        rnl_rnn_weights(rnn, run.weights);
    status = rnl_crew_run(&run.crew, rnn, &run.rows, run_member, &run, err);
    rnl_workspace_give(rnn, workspace);
    return status;
}
