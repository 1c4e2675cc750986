/* Prepare an RNN for the CPU: its matrices as panels, its biases as what sums begin with. */
#define _DEFAULT_SOURCE /* madvise; NOLINT(bugprone-reserved-identifier,cert-*) */
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/arena.h"
#include "forward/prepared.h"
#include "kernels/kernels.h"

/* ------------------------------------------------------------------------------- the memory -- */

/* Gates of the recurrent panel: those whose sums are over the state itself. */
static int gates_of_state(const rnl_rnn *rnn)
{
    return rnn->kind == RNL_STEP_GRU_BEFORE ? 2 : rnn->gates;
}

static void take_panels(const rnl_rnn *rnn, int64_t layer, rnl_arena *a, rnl_panels *panels)
{
    const rnl_spec *spec = &rnn->spec;
    const int64_t units = rnl_padded(rnn, rnn->blocks), state = rnl_state_size(spec);
    const int64_t nbytes = rnl_dtype_nbytes(spec->dtype), real = rnl_dtype_nbytes(rnn->real);
    if (layer > 0 || !spec->skip_input)
        panels->w = rnl_arena_take(a, rnn->gates * rnl_layer_input(spec, layer), units, nbytes);
    panels->r = rnl_arena_take(a, gates_of_state(rnn) * state, units, nbytes);
    if (rnn->kind == RNL_STEP_GRU_BEFORE)
        panels->r_new = rnl_arena_take(a, state, units, nbytes);
    if (spec->proj_size)
        panels->p = rnl_arena_take(a, spec->hidden_size, rnl_padded(rnn, rnn->state_blocks),
                                   nbytes);
    panels->start = rnl_arena_take(a, units, rnn->slots, real);
}

/* All of the RNN's memory, laid out; adds up only while there is none. */
static rnl_size lay_out(rnl_rnn *rnn, char *memory)
{
    rnl_arena a = {.memory = memory};
    const int64_t num_directions = rnl_num_directions(&rnn->spec);
    const int64_t n = rnn->spec.num_layers * num_directions;
    rnl_panels unused, *const panels = (rnl_panels *)(void *)rnl_arena_take(&a, n, 1,
                                                                            sizeof(rnl_panels));
    for (int64_t k = 0; k < n; k++) {
        if (panels)
            panels[k] = (rnl_panels){0};
        take_panels(rnn, k / num_directions, &a, panels ? &panels[k] : &unused);
    }
    rnn->panels = panels;
    rnn->zeros = rnl_arena_take(&a, rnl_padded(rnn, rnn->state_blocks), 1,
                                rnl_dtype_nbytes(rnn->real));
    rnn->biases = rnl_arena_take(&a, rnn->num_biases, 1, rnl_dtype_nbytes(rnn->spec.dtype));
    return a.used;
}

/* ------------------------------------------------------------------------ panels and back -- */

/* Where the weights are given: the one tensor of the layout "cpu". */
typedef struct given {
    rnl_layout layout;
    const char *read;
    char *write;
} given;

static rnl_view view_of(const rnl_rnn *rnn, const given *from, rnl_block block)
{
    rnl_error err;
    rnl_view view = {.tensor = -1};
    rnl_layout_locate(&from->layout, &rnn->spec, rnl_spec_has(&rnn->spec), &block, &view, &err);
    return view;
}

typedef struct matrix {
    rnl_block block; /* the first gate */
    char *panel;
    int gates;
    int64_t blocks;
} matrix;

/* One gate's vectors of one block of units: between memory, where the gate is at `view`, and panel.
 */
static void move_block(const rnl_rnn *rnn, const given *with, const matrix *m, const rnl_view *view,
                       int gate, int64_t block, bool to_panel)
{
    const int64_t lanes = rnn->kernels->lanes, nbytes = rnl_dtype_nbytes(rnn->spec.dtype);
    const int64_t unit = block * lanes, left = view->rows - unit;
    const int64_t in_weights = (view->at + unit * view->row_stride) * nbytes;
    char *const panel = m->panel + (block * view->cols * m->gates + gate) * lanes * nbytes;
    rnl_job job = {.src_dtype = rnn->spec.dtype, .dst_dtype = rnn->spec.dtype};
    if (to_panel) { /* rows are k, columns units: the target's lines are contiguous */
        job.rows = view->cols;
        job.cols = left < lanes ? left : lanes;
        job.src = with->read + in_weights;
        job.src_grid = (rnl_grid){view->col_stride, view->row_stride};
        job.dst = panel;
        job.dst_grid = (rnl_grid){m->gates * lanes, 1};
    } else {
        job.rows = left < lanes ? left : lanes;
        job.cols = view->cols;
        job.src = panel;
        job.src_grid = (rnl_grid){1, m->gates * lanes};
        job.dst = with->write + in_weights;
        job.dst_grid = (rnl_grid){view->row_stride, view->col_stride};
    }
    rnl_copy(&job);
}

static void move_matrix(const rnl_rnn *rnn, const given *with, matrix m, bool to_panel)
{
    for (int gate = 0; m.panel && gate < m.gates; gate++) {
        const rnl_block at = {m.block.layer, m.block.direction, m.block.role, m.block.gate + gate};
        const rnl_view view = view_of(rnn, with, at);
        for (int64_t block = 0; block < m.blocks; block++)
            move_block(rnn, with, &m, &view, gate, block, to_panel);
    }
}

static void move_matrices(const rnl_rnn *rnn, const given *with, int64_t layer, int direction,
                          bool to_panels)
{
    const rnl_panels *p = rnl_panels_of(rnn, layer, direction);
    const matrix all[] = {
        {{layer, direction, RNL_W, 0}, p->w, rnn->gates, rnn->blocks},
        {{layer, direction, RNL_R, 0}, p->r, gates_of_state(rnn), rnn->blocks},
        {{layer, direction, RNL_R, 2}, p->r_new, 1, rnn->blocks},
        {{layer, direction, RNL_P, 0}, p->p, 1, rnn->state_blocks},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        move_matrix(rnn, with, all[k], to_panels);
}

/* ------------------------------------------------------------------------------- biases -- */

/* An element of a bias, 0 where there is none. */
static double bias_at(const rnl_rnn *rnn, const given *from, const rnl_view *view, int64_t unit)
{
    if (view->tensor < 0)
        return 0;
    const int64_t at = (view->at + unit * view->row_stride) * rnl_dtype_nbytes(rnn->spec.dtype);
    return rnl_to_double(rnn->spec.dtype, rnl_load_bits(rnn->spec.dtype, from->read + at));
}

static void store_start(const rnl_rnn *rnn, char *start, int64_t unit, int slot, double value)
{
    const int64_t lanes = rnn->kernels->lanes;
    const int64_t at = (unit / lanes * rnn->slots + slot) * lanes + unit % lanes;
    rnl_store_bits(rnn->real, start + at * rnl_dtype_nbytes(rnn->real),
                   rnl_from_double(rnn->real, value));
}

/* The two biases of a gate are added, once rounded; but those of n in a GRU whose reset gate is
 * applied after the matrix stand apart. */
static void put_start(const rnl_rnn *rnn, const given *from, int64_t layer, int direction)
{
    char *const start = rnl_panels_of(rnn, layer, direction)->start;
    for (int gate = 0; gate < rnn->gates; gate++) {
        const rnl_view w = view_of(rnn, from, (rnl_block){layer, direction, RNL_BW, gate});
        const rnl_view r = view_of(rnn, from, (rnl_block){layer, direction, RNL_BR, gate});
        const bool apart = rnn->copied >= 0 && gate == rnn->gates - 1;
        for (int64_t unit = 0; unit < rnn->spec.hidden_size; unit++) {
            const double of_w = bias_at(rnn, from, &w, unit), of_r = bias_at(rnn, from, &r, unit);
            store_start(rnn, start, unit, gate, apart ? of_w : of_w + of_r);
            if (apart)
                store_start(rnn, start, unit, rnn->copied, of_r);
        }
    }
}

/* ------------------------------------------------------------------------------ the calls -- */

static given given_by(const void *read, void *write)
{
    rnl_error err;
    given by = {.read = read, .write = write};
    rnl_layout_named("cpu", &by.layout, &err);
    return by;
}

static int64_t num_matrix_elements(const rnl_rnn *rnn)
{
    rnl_error err;
    rnl_tensor tensor = {0};
    const given from = given_by(NULL, NULL);
    rnl_layout_tensor(&from.layout, &rnn->spec, rnl_spec_has(&rnn->spec), 0, &tensor, &err);
    return tensor.nelems - rnn->num_biases;
}

void rnl_rnn_update(rnl_rnn *rnn, const void *weights)
{
    const given from = given_by(weights, NULL);
    const int64_t nbytes = rnl_dtype_nbytes(rnn->spec.dtype);
    for (int64_t layer = 0; layer < rnn->spec.num_layers; layer++)
        for (int direction = 0; direction < rnl_num_directions(&rnn->spec); direction++) {
            move_matrices(rnn, &from, layer, direction, true);
            put_start(rnn, &from, layer, direction);
        }
    if (rnn->num_biases)
        memcpy(rnn->biases, from.read + num_matrix_elements(rnn) * nbytes,
               (size_t)(rnn->num_biases * nbytes));
}

void rnl_rnn_weights(const rnl_rnn *rnn, void *weights)
{
    const given to = given_by(NULL, weights);
    const int64_t nbytes = rnl_dtype_nbytes(rnn->spec.dtype);
    for (int64_t layer = 0; layer < rnn->spec.num_layers; layer++)
        for (int direction = 0; direction < rnl_num_directions(&rnn->spec); direction++)
            move_matrices(rnn, &to, layer, direction, false);
    if (rnn->num_biases)
        memcpy(to.write + num_matrix_elements(rnn) * nbytes, rnn->biases,
               (size_t)(rnn->num_biases * nbytes));
}

static rnl_step_kind kind_of(const rnl_spec *spec)
{
    switch (spec->cell) {
    case RNL_LSTM: return RNL_STEP_LSTM;
    case RNL_GRU: return spec->reset == RNL_RESET_AFTER ? RNL_STEP_GRU : RNL_STEP_GRU_BEFORE;
    case RNL_RNN_TANH: return RNL_STEP_TANH;
    default: return RNL_STEP_RELU;
    }
}

static rnl_rnn described(const rnl_spec *spec, const rnl_rnn_options *options)
{
    rnl_rnn rnn = {.spec = *spec,
                   .options = options ? *options : (rnl_rnn_options){0},
                   .kernels = rnl_rnn_kernels_get(spec->dtype),
                   .real = spec->dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32,
                   .kind = kind_of(spec),
                   .gates = rnl_num_gates(spec->cell),
                   .copied = -1};
    rnn.slots = rnn.gates;
    if (rnn.kind == RNL_STEP_GRU)
        rnn.copied = rnn.slots++;
    const int64_t lanes = rnn.kernels->lanes;
    rnn.blocks = (spec->hidden_size - 1) / lanes + 1;
    rnn.state_blocks = (rnl_state_size(spec) - 1) / lanes + 1;
    const int64_t vectors = spec->bias == RNL_BIAS_NONE ? 0 : spec->bias == RNL_BIAS_DOUBLE ? 2 : 1;
    rnn.num_biases = vectors * rnn.gates * spec->hidden_size * spec->num_layers *
                     rnl_num_directions(spec);
    return rnn;
}

static rnl_status check_options(const rnl_spec *spec, const rnl_rnn_options *options,
                                rnl_error *err)
{
    if (!options || !options->clips)
        return RNL_OK;
    if (spec->cell != RNL_LSTM)
        return rnl_fail(err, RNL_E_SPEC, "a cell clip needs a cell state: lstm, not %s",
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (!(options->clip_low <= options->clip_high))
        return rnl_fail(err, RNL_E_SPEC, "the cell clip is (%g, %g), need low <= high",
                        options->clip_low, options->clip_high);
    return RNL_OK;
}

/* Zeros, aligned to 64: lanes past the last unit weigh nothing. Large memory in large pages, where
 * there are some: every step reads all of it. */
static void *new_memory(int64_t nbytes)
{
    enum { LARGE_PAGE = 2 << 20, SOME_PAGES = 2 * LARGE_PAGE };
    const bool large = nbytes >= SOME_PAGES;
    void *memory;
    if (posix_memalign(&memory, large ? LARGE_PAGE : RNL_ALIGNMENT, (size_t)nbytes))
        return NULL;
#if defined(__linux__)
    if (large)
        (void)madvise(memory, (size_t)nbytes, MADV_HUGEPAGE);
#endif
    memset(memory, 0, (size_t)nbytes);
    return memory;
}

rnl_status rnl_rnn_new(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options,
                       rnl_rnn **rnn, rnl_error *err)
{
    rnl_status status = rnl_spec_check(spec, err);
    if (!status)
        status = check_options(spec, options, err);
    if (status)
        return status;
    rnl_rnn plan = described(spec, options);
    const rnl_size size = lay_out(&plan, NULL);
    rnl_rnn *const made = malloc(sizeof *made);
    void *memory = NULL;
    if (made && !size.overflow)
        memory = new_memory(size.n);
    if (!memory) {
        free(made);
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the weights");
    }
    *made = plan;
    made->memory = memory;
    lay_out(made, memory);
    for (int k = 0; k < RNL_NUM_ROOMS; k++)
        atomic_init(&made->rooms[k], NULL);
    rnl_rnn_update(made, weights);
    *rnn = made;
    return RNL_OK;
}

static void room_free(rnl_room *room)
{
    if (room)
        free(room->data);
    free(room);
}

void rnl_rnn_free(rnl_rnn *rnn)
{
    if (!rnn)
        return;
    for (int k = 0; k < RNL_NUM_ROOMS; k++)
        room_free(atomic_load(&rnn->rooms[k]));
    free(rnn->memory);
    free(rnn);
}

/* --------------------------------------------------------------------------------- rooms -- */

rnl_room *rnl_room_take(rnl_rnn *rnn, int64_t nbytes)
{
    rnl_room *room = NULL;
    for (int k = 0; k < RNL_NUM_ROOMS && !room; k++)
        room = atomic_exchange(&rnn->rooms[k], NULL);
    if (room && room->nbytes >= nbytes)
        return room;
    room_free(room);
    room = malloc(sizeof *room);
    if (!room)
        return NULL;
    room->nbytes = nbytes;
    void *data;
    if (!posix_memalign(&data, RNL_ALIGNMENT, (size_t)nbytes)) {
        room->data = data;
        return room;
    }
    free(room);
    return NULL;
}

void rnl_room_give(rnl_rnn *rnn, rnl_room *room)
{
    for (int k = 0; k < RNL_NUM_ROOMS; k++) {
        rnl_room *none = NULL;
        if (atomic_compare_exchange_strong(&rnn->rooms[k], &none, room))
            return;
    }
    room_free(room);
}
