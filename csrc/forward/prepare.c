/* Prepare an RNN for the CPU: matrices as panels, biases as the start values of sums. */
#include <stdlib.h>
#include <string.h>

#include "core/clip.h"
#include "core/status.h"
#include "forward/prepared.h"
#include "kernels/kernels.h"
#include "system/min.h"
#include "system/system.h"

/* ------------------------------------------------------------------------------ the memory -- */

static int64_t num_weights(const rnl_rnn *rnn)
{
    return rnn->spec.num_layers * rnl_num_directions(&rnn->spec);
}

/* Place everything but the panels in memory and return the size; memory NULL: only the size. */
static rnl_size lay_out(rnl_rnn *rnn, char *memory)
{
    rnl_arena a = {.memory = memory};
    const int64_t n = num_weights(rnn), real = rnl_dtype_nbytes(rnn->real);
    const int64_t num_peepholes = rnn->kind == RNL_STEP_PEEPHOLES ? RNL_NUM_PEEPHOLES : 0;
    rnn->weights = (rnl_weights *)(void *)rnl_arena_take(&a, n, 1, sizeof(rnl_weights));
    for (int64_t k = 0; k < n; k++) {
        char *const start = rnl_arena_take(&a, rnl_padded(rnn, rnn->blocks), rnn->num_sums, real);
        char *const peepholes = rnl_arena_take(&a, rnl_padded(rnn, rnn->blocks), num_peepholes,
                                               real);
        if (memory) {
            rnn->weights[k].start = start;
            rnn->weights[k].peepholes = num_peepholes ? peepholes : NULL;
        }
    }
    rnn->zeros = rnl_arena_take(&a, rnl_padded(rnn, rnn->state_blocks), 1, real);
    rnn->vectors = rnl_arena_take(&a, rnn->num_vectors, 1, rnl_dtype_nbytes(rnn->spec.dtype));
    return a.used;
}

/* Place the panels likewise. */
static rnl_size lay_out_panels(const rnl_rnn *rnn, char *memory)
{
    rnl_arena a = {.memory = memory};
    const rnl_rnn_kernels *const kernels = rnn->kernels;
    const int64_t pair = kernels->pair, lanes = kernels->lanes, head = kernels->head;
    for (int64_t k = 0; k < num_weights(rnn); k++)
        for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
            rnl_operand *const operand = &rnn->weights[k].operands[j];
            const rnl_matrices *const of = &operand->of;
            if (of->gates) {
                const int64_t of_unit = ((of->K - 1) / pair + 1) * pair + head / kernels->nbytes;
                operand->panel = rnl_arena_take(&a, of_unit * of->gates,
                                                ((of->units - 1) / lanes + 1) * lanes,
                                                kernels->nbytes);
            }
        }
    return a.used;
}

/* -------------------------------------------------------------- places in the weights -- */

rnl_view rnl_forward_view(const rnl_rnn *rnn, const rnl_layout *cpu, rnl_block block)
{
    rnl_view view = {.tensor = -1};
    rnl_error err;
    rnl_layout_locate(cpu, &rnn->spec, rnl_spec_optional(&rnn->spec), &block, &view, &err);
    return view;
}

static rnl_operand operand_of(const rnl_rnn *rnn, const rnl_layout *cpu, rnl_block first, int gates)
{
    rnl_operand operand = {.of = {.gates = gates}};
    if (gates == 0)
        return operand;
    const rnl_view view = rnl_forward_view(rnn, cpu, first);
    operand.of.row = view.row_stride;
    operand.of.units = view.rows;
    operand.of.K = view.cols;
    for (int k = 0; k < gates; k++)
        operand.at[k] = view.at + k * view.rows * view.row_stride;
    return operand;
}

static void find_operands(const rnl_rnn *rnn, const rnl_layout *cpu)
{
    const rnl_spec *spec = &rnn->spec;
    const int gates = rnn->gates, after = rnn->kind == RNL_STEP_GRU_BEFORE ? 2 : gates;
    for (int64_t k = 0; k < num_weights(rnn); k++) {
        const int64_t l = k / rnl_num_directions(spec);
        const int d = (int)(k % rnl_num_directions(spec));
        rnl_operand *const all = rnn->weights[k].operands;
        all[RNL_OF_W] = operand_of(rnn, cpu, (rnl_block){l, d, RNL_W, 0},
                                   l > 0 || !spec->skip_input ? gates : 0);
        all[RNL_OF_R] = operand_of(rnn, cpu, (rnl_block){l, d, RNL_R, 0}, after);
        all[RNL_OF_R_NEW] = operand_of(rnn, cpu, (rnl_block){l, d, RNL_R, after}, gates - after);
        all[RNL_OF_P] = operand_of(rnn, cpu, (rnl_block){l, d, RNL_P, 0}, spec->proj_size ? 1 : 0);
    }
}

/* ---------------------------------------------------------------------------- the weights -- */

/* Point the operands into weights. */
static void point_into(const rnl_rnn *rnn, const char *weights)
{
    const int64_t nbytes = rnl_dtype_nbytes(rnn->spec.dtype);
    for (int64_t k = 0; k < num_weights(rnn); k++)
        for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
            rnl_operand *const operand = &rnn->weights[k].operands[j];
            for (int gate = 0; gate < operand->of.gates; gate++)
                operand->of.of_gate[gate] = weights + operand->at[gate] * nbytes;
        }
}

/* Copy the weights into the panels and clear the pointers to the weights. */
static void pack(const rnl_rnn *rnn)
{
    for (int64_t k = 0; k < num_weights(rnn); k++)
        for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
            rnl_operand *const operand = &rnn->weights[k].operands[j];
            if (operand->of.gates)
                rnn->kernels->pack(&operand->of, operand->panel);
            memset(operand->of.of_gate, 0, sizeof operand->of.of_gate);
        }
}

/* Copy `half` of each pair of k of a gate back to the weights. */
static void unpack_half(const rnl_rnn *rnn, const rnl_operand *operand, int gate, int64_t half,
                        char *weights)
{
    const rnl_matrices *const of = &operand->of;
    const int64_t lanes = rnn->kernels->lanes, pair = rnn->kernels->pair;
    const int64_t nbytes = rnl_dtype_nbytes(rnn->spec.dtype), width = of->gates * lanes * pair;
    for (int64_t unit = 0; unit < of->units; unit += lanes) {
        const int64_t block = unit / lanes * ((of->K - 1) / pair + 1) * width;
        const rnl_job job = {
            .src_dtype = rnn->spec.dtype,
            .dst_dtype = rnn->spec.dtype,
            .rows = rnl_min(lanes, of->units - unit),
            .cols = (of->K - half + pair - 1) / pair,
            .src = operand->panel + (block + gate * lanes * pair + half) * nbytes,
            .src_grid = {pair, width},
            .dst = weights + (operand->at[gate] + unit * of->row + half) * nbytes,
            .dst_grid = {of->row, pair},
        };
        rnl_copy(&job);
    }
}

/* Copy a gate of a panel back to the weights. */
static void unpack_gate(const rnl_rnn *rnn, const rnl_operand *operand, int gate, char *weights)
{
    if (rnn->kernels->unpack)
        rnn->kernels->unpack(&operand->of, operand->panel, gate,
                             weights + operand->at[gate] * rnl_dtype_nbytes(rnn->spec.dtype));
    for (int64_t half = 0; !rnn->kernels->unpack && half < rnn->kernels->pair; half++)
        unpack_half(rnn, operand, gate, half, weights);
}

/* Return the bias in the weights that starts a sum; NULL: no bias, or the bias of another sum. */
static const void *bias_of(const rnl_rnn *rnn, const char *weights, const rnl_view *of_all, int sum,
                           bool belongs)
{
    const int64_t gate = sum == rnn->copied_sum ? sum - 1 : sum;
    const int64_t at = of_all->at + gate * rnn->spec.hidden_size;
    return of_all->tensor >= 0 && belongs ? weights + at * rnl_dtype_nbytes(rnn->spec.dtype) : NULL;
}

/* Write the start values of the sums: the sum of a gate's two biases. In a GRU with the reset gate
 * after the matrix, the two biases of n start separate sums. */
static void put_starts(const rnl_rnn *rnn, const rnl_layout *cpu, const char *weights)
{
    for (int64_t k = 0; k < num_weights(rnn); k++) {
        const int64_t l = k / rnl_num_directions(&rnn->spec);
        const int d = (int)(k % rnl_num_directions(&rnn->spec));
        const rnl_view w = rnl_forward_view(rnn, cpu, (rnl_block){l, d, RNL_BW, 0});
        const rnl_view r = rnl_forward_view(rnn, cpu, (rnl_block){l, d, RNL_BR, 0});
        for (int sum = 0; sum < rnn->num_sums; sum++) {
            const bool copied = sum == rnn->copied_sum;
            const bool apart = rnn->copied_sum >= 0 && sum == rnn->copied_sum - 1;
            const rnl_start start = {.biases = {bias_of(rnn, weights, &w, sum, !copied),
                                                bias_of(rnn, weights, &r, sum, !apart)},
                                     .units = rnn->spec.hidden_size,
                                     .num_sums = rnn->num_sums,
                                     .sum = sum,
                                     .start = rnn->weights[k].start};
            rnn->kernels->start(&start);
        }
    }
}

static void put_peepholes(const rnl_rnn *rnn, const rnl_layout *cpu, const char *weights)
{
    for (int64_t k = 0; rnn->kind == RNL_STEP_PEEPHOLES && k < num_weights(rnn); k++) {
        const int64_t l = k / rnl_num_directions(&rnn->spec);
        const int d = (int)(k % rnl_num_directions(&rnn->spec));
        const rnl_view first = rnl_forward_view(rnn, cpu, (rnl_block){l, d, RNL_PEEP, 0});
        for (int gate = 0; gate < RNL_NUM_PEEPHOLES; gate++) {
            const rnl_start start = {.biases = {bias_of(rnn, weights, &first, gate, true)},
                                     .units = rnn->spec.hidden_size,
                                     .num_sums = RNL_NUM_PEEPHOLES,
                                     .sum = gate,
                                     .start = rnn->weights[k].peepholes};
            rnn->kernels->start(&start);
        }
    }
}

/* ------------------------------------------------------------------------------ the calls -- */

rnl_layout rnl_forward_layout(void)
{
    rnl_layout layout;
    rnl_error err;
    rnl_layout_named(RNL_FORWARD_LAYOUT, &layout, &err);
    return layout;
}

int64_t rnl_num_weights(const rnl_rnn *rnn, const rnl_layout *cpu)
{
    rnl_tensor tensor = {0};
    rnl_error err;
    rnl_layout_tensor(cpu, &rnn->spec, rnl_spec_optional(&rnn->spec), 0, &tensor, &err);
    return tensor.nelems;
}

/* Return the offset of the biases and peepholes, which come last, in bytes. */
static int64_t vectors_at(const rnl_rnn *rnn)
{
    const rnl_layout cpu = rnl_forward_layout();
    return (rnl_num_weights(rnn, &cpu) - rnn->num_vectors) * rnl_dtype_nbytes(rnn->spec.dtype);
}

/* Read the biases and peepholes, and point to the matrices. */
static void read_weights(rnl_rnn *rnn, const char *weights)
{
    const rnl_layout cpu = rnl_forward_layout();
    point_into(rnn, weights);
    put_starts(rnn, &cpu, weights);
    put_peepholes(rnn, &cpu, weights);
    if (rnn->num_vectors)
        memcpy(rnn->vectors, weights + vectors_at(rnn),
               (size_t)(rnn->num_vectors * rnl_dtype_nbytes(rnn->spec.dtype)));
}

void rnl_rnn_update(rnl_rnn *rnn, const void *weights)
{
    read_weights(rnn, weights);
    if (rnn->panels)
        pack(rnn);
}

rnl_status rnl_rnn_pack(rnl_rnn *rnn, rnl_error *err)
{
    const rnl_size size = lay_out_panels(rnn, NULL);
    rnn->panels = size.overflow ? NULL : rnl_memory_new(size.n);
    if (!rnn->panels)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the weights");
    lay_out_panels(rnn, rnn->panels);
    pack(rnn);
    return RNL_OK;
}

void rnl_rnn_weights(const rnl_rnn *rnn, void *weights)
{
    for (int64_t k = 0; k < num_weights(rnn); k++)
        for (int j = 0; j < RNL_NUM_OPERANDS; j++) {
            const rnl_operand *const operand = &rnn->weights[k].operands[j];
            for (int gate = 0; gate < operand->of.gates; gate++)
                unpack_gate(rnn, operand, gate, weights);
        }
    if (rnn->num_vectors)
        memcpy((char *)weights + vectors_at(rnn), rnn->vectors,
               (size_t)(rnn->num_vectors * rnl_dtype_nbytes(rnn->spec.dtype)));
}

rnl_status rnl_rnn_check_dtype(const rnl_rnn *rnn, rnl_dtype dtype, rnl_error *err)
{
    const rnl_dtype weights = rnn->spec.dtype;
    if (dtype == weights || (dtype == RNL_FLOAT32 && weights < RNL_FLOAT32))
        return RNL_OK;
    const char *const name = rnl_name(RNL_NAMES_DTYPE, (int)dtype);
    const char *const needed = rnl_name(RNL_NAMES_DTYPE, (int)weights);
    if (!name)
        return rnl_fail(err, RNL_E_SPEC, "dtype is %d, need a value of rnl_dtype", (int)dtype);
    return rnl_fail(err, RNL_E_SPEC, "x is %s, the weights are %s: need %s%s", name, needed, needed,
                    weights < RNL_FLOAT32 ? " or float32" : "");
}

static rnl_step_kind kind_of(const rnl_spec *spec)
{
    switch (spec->cell) {
    case RNL_LSTM: return spec->peepholes ? RNL_STEP_PEEPHOLES : RNL_STEP_LSTM;
    case RNL_GRU: return spec->reset == RNL_RESET_AFTER ? RNL_STEP_GRU : RNL_STEP_GRU_BEFORE;
    case RNL_RNN_TANH: return RNL_STEP_TANH;
    default: return RNL_STEP_RELU;
    }
}

static int kernels_of(const rnl_spec *spec, const rnl_rnn_options *options)
{
    switch (options->math) {
    case RNL_CPU_MATH_BFLOAT16: return RNL_ROUNDED;
    case RNL_CPU_MATH_INT8: return RNL_BYTES;
    default: return (int)spec->dtype;
    }
}

static rnl_rnn describe(const rnl_spec *spec, const rnl_rnn_options *options)
{
    rnl_rnn rnn = {.spec = *spec,
                   .options = options ? *options : (rnl_rnn_options){0},
                   .real = spec->dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32,
                   .kind = kind_of(spec),
                   .gates = rnl_num_gates(spec->cell),
                   .copied_sum = -1};
    rnn.num_sums = rnn.gates;
    if (rnn.kind == RNL_STEP_GRU)
        rnn.copied_sum = rnn.num_sums++;
    rnn.kernels = rnl_rnn_kernels_get(kernels_of(spec, &rnn.options), spec->hidden_size);
    const int64_t lanes = rnn.kernels->lanes;
    rnn.blocks = (spec->hidden_size - 1) / lanes + 1;
    rnn.state_blocks = (rnl_state_size(spec) - 1) / lanes + 1;
    const int64_t vectors = spec->bias == RNL_BIAS_NONE ? 0 : spec->bias == RNL_BIAS_DOUBLE ? 2 : 1;
    const int64_t peepholes = spec->peepholes ? RNL_NUM_PEEPHOLES : 0;
    rnn.num_vectors = (vectors * rnn.gates + peepholes) * spec->hidden_size * spec->num_layers *
                      rnl_num_directions(spec);
    return rnn;
}

static rnl_status check_options(const rnl_spec *spec, const rnl_rnn_options *options,
                                rnl_error *err)
{
    if (!options)
        return RNL_OK;
    if ((unsigned)options->math > RNL_CPU_MATH_INT8)
        return rnl_fail(err, RNL_E_SPEC, "math is %d, need a value of rnl_cpu_math",
                        (int)options->math);
    const rnl_dtype needed = options->math == RNL_CPU_MATH_BFLOAT16 ? RNL_BFLOAT16 : RNL_FLOAT32;
    if (options->math && spec->dtype != needed)
        return rnl_fail(err, RNL_E_SPEC, "arithmetic in %s needs %s weights, these are %s",
                        needed == RNL_BFLOAT16 ? "bfloat16" : "int8",
                        rnl_name(RNL_NAMES_DTYPE, (int)needed),
                        rnl_name(RNL_NAMES_DTYPE, (int)spec->dtype));
    if (!options->clips)
        return RNL_OK;
    return rnl_clip_check(spec, options->clip_low, options->clip_high, err);
}

rnl_status rnl_rnn_new(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options,
                       rnl_rnn **rnn, rnl_error *err)
{
    rnl_status status = rnl_spec_check(spec, err);
    if (!status)
        status = check_options(spec, options, err);
    if (status)
        return status;
    rnl_rnn description = describe(spec, options);
    const rnl_size size = lay_out(&description, NULL);
    rnl_rnn *const result = malloc(sizeof *result);
    void *const memory = result && !size.overflow ? rnl_memory_new(size.n) : NULL;
    if (!memory) {
        free(result);
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the weights");
    }
    memset(memory, 0, (size_t)size.n);
    *result = description;
    result->memory = memory;
    lay_out(result, memory);
    for (int k = 0; k < RNL_NUM_WORKSPACES; k++)
        atomic_init(&result->workspaces[k], NULL);
    const rnl_layout cpu = rnl_forward_layout();
    find_operands(result, &cpu);
    read_weights(result, weights);
    if (!result->options.borrows || !result->kernels->direct)
        status = rnl_rnn_pack(result, err);
    if (status)
        rnl_rnn_free(result);
    else
        *rnn = result;
    return status;
}

void rnl_rnn_free(rnl_rnn *rnn)
{
    if (!rnn)
        return;
    for (int k = 0; k < RNL_NUM_WORKSPACES; k++)
        rnl_memory_free(atomic_load(&rnn->workspaces[k]));
    rnl_memory_free(rnn->panels);
    rnl_memory_free(rnn->memory);
    free(rnn);
}

/* ----------------------------------------------------------------------------- workspaces -- */

/* The largest workspace that is kept. Larger workspaces would occupy hundreds of megabytes of a
 * process, and save only the 0.1 ms per megabyte in which the system provides large pages. */
enum { MAX_KEPT_NBYTES = 4 << 20 };

rnl_workspace *rnl_workspace_take(rnl_rnn *rnn, int64_t nbytes)
{
    rnl_workspace *workspace = NULL;
    for (int k = 0; nbytes <= MAX_KEPT_NBYTES && k < RNL_NUM_WORKSPACES && !workspace; k++)
        workspace = atomic_exchange(&rnn->workspaces[k], NULL);
    if (workspace && workspace->nbytes >= nbytes)
        return workspace;
    rnl_memory_free(workspace);
    const rnl_size size = rnl_size_add(rnl_size_of(sizeof *workspace), rnl_size_of(nbytes));
    workspace = size.overflow ? NULL : rnl_memory_new(size.n);
    if (workspace)
        workspace->nbytes = nbytes;
    return workspace;
}

void rnl_workspace_give(rnl_rnn *rnn, rnl_workspace *workspace)
{
    for (int k = 0; workspace->nbytes <= MAX_KEPT_NBYTES && k < RNL_NUM_WORKSPACES; k++) {
        rnl_workspace *empty = NULL;
        if (atomic_compare_exchange_strong(&rnn->workspaces[k], &empty, workspace))
            return;
    }
    rnl_memory_free(workspace);
}
