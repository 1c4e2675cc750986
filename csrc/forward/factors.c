/* The matrices of a backward pass: their panels, their products, and their gradients. */
#include "forward/backward.h"

#include <string.h>

#include "kernels/kernels.h"
#include "system/min.h"
#include "system/system.h"

enum { TERMS = 128 }; /* see rnl_product */

/* Return the number of gates of dS that belong to a matrix; 0: no layer has the matrix. */
static int gates_of(const rnl_rnn *rnn, int j)
{
    return j == RNL_OF_W ? rnn->gates : rnn->weights[0].operands[j].of.gates;
}

static int64_t units_of(const rnl_going_back *run, int j)
{
    return j == RNL_OF_P ? run->state : run->units;
}

/* Return the largest number of columns of a matrix, padded. */
static int64_t most_columns(const rnl_going_back *run, int j)
{
    return j == RNL_OF_W ? run->inputs : j == RNL_OF_P ? run->units : run->state;
}

/* Return the elements from row to row of a gradient: see rnl_sums_row(). */
static int64_t gradient_row(const rnl_going_back *run, int j)
{
    return gates_of(run->rnn, j) * units_of(run, j) + RNL_ALIGNMENT / run->real;
}

void rnl_factors_place(rnl_going_back *run, rnl_arena *arena)
{
    for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
        const int gates = gates_of(run->rnn, j);
        const int64_t columns = gates ? most_columns(run, j) : 0, rows = gates ? columns + 1 : 0;
        run->panel[j] = rnl_arena_take(arena, columns, gates * units_of(run, j), run->real);
        run->gradient[j] = rnl_arena_take(arena, rows, gradient_row(run, j), run->real);
        run->transposed[j] = rnl_arena_take(arena, rows, run->group, run->real);
    }
}

static rnl_factor factor_of(const rnl_back_worker *w, int j)
{
    const rnl_going_back *const run = w->run;
    const rnl_rnn *const rnn = run->rnn;
    const rnl_spec *const spec = &rnn->spec;
    const bool is_gru = rnn->kind == RNL_STEP_GRU, is_deep = j == RNL_OF_W && w->layer > 0;
    rnl_factor f = {.operand = rnl_weights_of(rnn, w->layer, w->direction)->operands[j],
                    .gates = gates_of(rnn, j),
                    .first_slot = j == RNL_OF_R_NEW ? 2 : j == RNL_OF_R && is_gru,
                    .slot = {0, 1, 2, 3},
                    .K = j == RNL_OF_W   ? rnl_layer_input(spec, w->layer)
                         : j == RNL_OF_P ? spec->hidden_size
                                         : rnl_state_size(spec),
                    .parts = is_deep ? rnl_num_directions(spec) : 1,
                    .units = units_of(run, j),
                    .panel = run->panel[j],
                    .gradient = run->gradient[j],
                    .gradient_row = gradient_row(run, j),
                    .transposed = run->transposed[j],
                    .dsums = j == RNL_OF_P ? run->dprojected : run->dsums,
                    .dsums_panel = j == RNL_OF_P ? run->dprojected_panel : run->dsums_panel,
                    .dsums_row = j == RNL_OF_P ? run->state : rnl_sums_row(rnn)};
    if (j == RNL_OF_W && is_gru) { /* the slots are n, r, z */
        f.slot[0] = 1;
        f.slot[1] = 2;
        f.slot[2] = 0;
    }
    f.in_blocks = f.parts * rnl_whole_lanes(run->kernels, f.K / f.parts) / run->kernels->lanes;
    for (int gate = 0; run->weights && gate < f.operand.of.gates; gate++)
        f.operand.of.of_gate[gate] = run->weights +
                                     f.operand.at[gate] * rnl_dtype_nbytes(spec->dtype);
    return f;
}

void rnl_factors_describe(rnl_back_worker *w)
{
    for (int j = 0; j < RNL_NUM_OPERANDS; j++)
        w->factors[j] = factor_of(w, j);
}

/* --------------------------------------------------------------------------------- products -- */

/* Copy the member's blocks of columns of a matrix to the panel. */
static void pack_columns(const rnl_back_worker *w, const rnl_factor *f)
{
    const rnl_going_back *const run = w->run;
    const int64_t lanes = run->kernels->lanes, width = f->K / f->parts;
    const int64_t blocks_of_part = f->in_blocks / f->parts;
    const int64_t block_nbytes = f->gates * f->units * lanes * run->real;
    for (int64_t block = rnl_mate_first(&w->mate, f->in_blocks);
         block < rnl_mate_last(&w->mate, f->in_blocks); block++) {
        char *const panel = f->panel + block * block_nbytes;
        const int64_t part = block / blocks_of_part, column = block % blocks_of_part * lanes;
        memset(panel, 0, (size_t)block_nbytes);
        for (int gate = 0; gate < f->gates; gate++) {
            rnl_job job = {.src_dtype = run->rnn->spec.dtype,
                           .dst_dtype = run->rnn->real,
                           .rows = f->operand.of.units,
                           .cols = rnl_min(lanes, width - column),
                           .src_grid = {f->operand.of.row, 1},
                           .dst = panel + f->slot[gate] * f->units * lanes * run->real,
                           .dst_grid = {lanes, 1}};
            if (f->operand.of.gates) {
                job.src = (const char *)f->operand.of.of_gate[gate] +
                          (part * width + column) * rnl_dtype_nbytes(job.src_dtype);
                rnl_copy(&job);
            } else { /* skip_input: an identity */
                job.dst = (char *)job.dst + column * lanes * run->real;
                job.rows = job.cols;
                rnl_fill_identity(&job);
            }
        }
    }
}

static rnl_product product_of(const rnl_back_worker *w, const rnl_matrices *of, int64_t num_blocks)
{
    return (rnl_product){.of = of,
                         .num_sums = 1,
                         .terms = TERMS,
                         .copied_sum = -1,
                         .first = rnl_mate_first(&w->mate, num_blocks),
                         .last = rnl_mate_last(&w->mate, num_blocks),
                         .start = w->run->zeros};
}

void rnl_factor_multiply(const rnl_back_worker *w, int j, int64_t row, int64_t rows, char *result,
                         int64_t result_row, bool adds)
{
    const rnl_going_back *const run = w->run;
    const rnl_factor *const f = &w->factors[j];
    const rnl_matrices of = {.K = f->gates * f->units, .gates = 1};
    rnl_product job = product_of(w, &of, f->in_blocks);
    job.panel = f->panel;
    job.rows = rows;
    job.x = f->dsums + (row * f->dsums_row + f->first_slot * f->units) * run->real;
    job.x_row = f->dsums_row;
    job.acc = result;
    job.acc_row = result_row;
    if (adds) {
        job.start = result;
        job.start_row = result_row;
    }
    rnl_mate_multiply(&w->mate, run->kernels, &job, run->real);
}

void rnl_factors_add(const rnl_back_worker *w, const rnl_step_group *steps)
{
    const rnl_going_back *const run = w->run;
    const rnl_matrices of = {.K = steps->rows, .gates = 1};
    for (const rnl_factor *f = w->factors; f < w->factors + RNL_NUM_OPERANDS; f++) {
        if (!f->gates)
            continue;
        const int64_t column = f->operand.of.gates ? 0 : f->K; /* absent: the bias alone */
        rnl_product job = product_of(w, &of, f->gates * f->units / run->kernels->lanes);
        job.panel = f->dsums_panel + f->first_slot * f->units * steps->rows * run->real;
        job.x = f->transposed + column * run->group * run->real;
        job.x_row = run->group;
        job.rows = f->K + 1 - column;
        job.start = job.acc = f->gradient + column * f->gradient_row * run->real;
        job.start_row = job.acc_row = f->gradient_row;
        rnl_mate_multiply(&w->mate, run->kernels, &job, run->real);
    }
}

/* -------------------------------------------------------------------------------- gradients -- */

void rnl_factors_begin(const rnl_back_worker *w)
{
    const rnl_going_back *const run = w->run;
    const rnl_gradients *const call = run->call;
    for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
        const rnl_factor *const f = &w->factors[j];
        if (f->gates && (j != RNL_OF_W || w->dinput))
            pack_columns(w, f);
        if (!f->gates || !call->dweights)
            continue;
        const int64_t first = rnl_mate_first(&w->mate, f->K + 1);
        const int64_t rows = rnl_mate_last(&w->mate, f->K + 1) - first, row = f->gradient_row;
        memset(f->gradient + first * row * run->real, 0, (size_t)(rows * row * run->real));
        const rnl_job ones = {.dst_dtype = run->rnn->real,
                              .rows = 1,
                              .cols = w->mate.member == 0 ? run->group : 0,
                              .shift = 1,
                              .dst = f->transposed + f->K * run->group * run->real,
                              .dst_grid = {0, 1}};
        rnl_shift(&ones);
    }
    if (w->mate.member == 0)
        memset(run->dpeepholes, 0, (size_t)(RNL_NUM_PEEPHOLES * run->units * run->real));
}

/* Copy the block of a gate from the weight space, or `back`. Element (unit, column) is
 * sums[unit + column * row]. */
static void copy_block(const rnl_back_worker *w, rnl_role role, int gate, char *sums, int64_t row,
                       bool back)
{
    const rnl_going_back *const run = w->run;
    const rnl_view view = rnl_forward_view(run->rnn, &run->cpu,
                                           (rnl_block){w->layer, w->direction, role, gate});
    if (view.tensor < 0)
        return;
    char *const weights = (char *)run->call->dweights + view.at * run->real;
    const rnl_grid of_sums = {1, row}, of_weights = {view.row_stride, view.col_stride};
    const rnl_job job = {.src_dtype = run->rnn->real,
                         .dst_dtype = run->rnn->real,
                         .rows = view.rows,
                         .cols = view.cols,
                         .src = back ? sums : weights,
                         .dst = back ? weights : sums,
                         .src_grid = back ? of_sums : of_weights,
                         .dst_grid = back ? of_weights : of_sums};
    rnl_copy(&job);
}

/* Copy the peepholes, [block][gate][lane], likewise. */
static void copy_peepholes(const rnl_back_worker *w, bool back)
{
    const rnl_going_back *const run = w->run;
    const int64_t H = run->rnn->spec.hidden_size, lanes = run->kernels->lanes;
    const rnl_view first = rnl_forward_view(run->rnn, &run->cpu,
                                            (rnl_block){w->layer, w->direction, RNL_PEEP, 0});
    char *const weights = (char *)run->call->dweights + first.at * run->real;
    for (int gate = 0; gate < RNL_NUM_PEEPHOLES; gate++)
        for (int64_t unit = 0; unit < H; unit += lanes) {
            char *const in_weights = weights + (gate * H + unit) * run->real;
            char *const sums = run->dpeepholes +
                               (unit * RNL_NUM_PEEPHOLES + gate * lanes) * run->real;
            memcpy(back ? in_weights : sums, back ? sums : in_weights,
                   (size_t)(rnl_min(lanes, H - unit) * run->real));
        }
}

void rnl_factors_copy(const rnl_back_worker *w, bool back)
{
    static const rnl_role roles[] = {RNL_W, RNL_R, RNL_R, RNL_P};
    static const rnl_role biases[] = {RNL_BW, RNL_BR, RNL_BR, RNL_NO_ROLE};
    const rnl_going_back *const run = w->run;
    for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
        const rnl_factor *const f = &w->factors[j];
        for (int gate = 0; gate < f->gates; gate++) {
            if (gate % w->mate.members != w->mate.member)
                continue;
            const int of_cell = gate + (j == RNL_OF_R_NEW ? 2 : 0);
            char *const sums = f->gradient + f->slot[gate] * f->units * run->real;
            if (f->operand.of.gates)
                copy_block(w, roles[j], of_cell, sums, f->gradient_row, back);
            if (biases[j])
                copy_block(w, biases[j], of_cell, sums + f->K * f->gradient_row * run->real,
                           f->gradient_row, back);
        }
    }
    if (run->rnn->kind == RNL_STEP_PEEPHOLES && w->mate.member == 0)
        copy_peepholes(w, back);
}
