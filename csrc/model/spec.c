/* Is a spec valid, and which sizes and blocks follow from the spec? */
#include "model/spec.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/size.h"
#include "core/status.h"

/* The table of cells. */
static const rnl_cell_facts table[RNL_NUM_CELLS] = {
    [RNL_LSTM] = {.gates = "ifgo",
                  .peepholes = "ifo",
                  .forget = 'f',
                  .candidate = 'g',
                  .has_c = 1,
                  .may_project = 1},
    [RNL_GRU] = {.gates = "rzn", .peepholes = "", .reset = 'r', .update = 'z', .candidate = 'n'},
    [RNL_RNN_TANH] = {.gates = "h", .peepholes = "", .candidate = 'h'},
    [RNL_RNN_RELU] = {.gates = "h", .peepholes = "", .candidate = 'h'},
};

const rnl_cell_facts *rnl_cell_facts_of(rnl_cell cell)
{
    return &table[cell];
}

int rnl_num_gates(rnl_cell cell)
{
    return (int)strlen(table[cell].gates);
}

char rnl_gate_letter(rnl_cell cell, int gate)
{
    assert(gate >= 0 && gate < rnl_num_gates(cell));
    return table[cell].gates[gate];
}

int rnl_num_directions(const rnl_spec *spec)
{
    return spec->bidirectional ? 2 : 1;
}

int64_t rnl_state_size(const rnl_spec *spec)
{
    return spec->proj_size ? spec->proj_size : spec->hidden_size;
}

int64_t rnl_layer_input(const rnl_spec *spec, int64_t layer)
{
    return layer == 0 ? spec->input_size : rnl_num_directions(spec) * rnl_state_size(spec);
}

void rnl_block_shape(const rnl_spec *spec, const rnl_block *block, int64_t *rows, int64_t *cols)
{
    *rows = block->role == RNL_P ? spec->proj_size : spec->hidden_size;
    switch (block->role) {
    case RNL_W: *cols = rnl_layer_input(spec, block->layer); break;
    case RNL_R: *cols = rnl_state_size(spec); break;
    case RNL_P: *cols = spec->hidden_size; break;
    default: *cols = 1; break;
    }
}

rnl_spec rnl_spec_default(rnl_cell cell, int64_t input_size, int64_t hidden_size)
{
    return (rnl_spec){.cell = cell,
                      .input_size = input_size,
                      .hidden_size = hidden_size,
                      .num_layers = 1,
                      .dtype = RNL_FLOAT32};
}

unsigned rnl_spec_optional(const rnl_spec *spec)
{
    return (spec->bias == RNL_BIAS_NONE ? 0u : RNL_HAS_BIAS) |
           (spec->peepholes ? RNL_HAS_PEEPHOLES : 0u);
}

static rnl_status check_size(const char *name, int64_t n, int64_t least, rnl_error *err)
{
    if (n >= least)
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC, "%s is %" PRId64 ", need at least %" PRId64, name, n, least);
}

static rnl_status check_enum(rnl_family family, int value, rnl_error *err)
{
    if (rnl_name(family, value))
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC, "%s has no value %d", rnl_family_key(family), value);
}

/* Bytes of all blocks that any layout may have: an upper bound of every offset. */
static rnl_size most_bytes(const rnl_spec *spec)
{
    const rnl_size H = rnl_size_of(spec->hidden_size);
    const rnl_size state = rnl_size_of(rnl_state_size(spec));
    const rnl_size D = rnl_size_of(rnl_num_directions(spec));
    const rnl_size GH = rnl_size_mul(rnl_size_of(rnl_num_gates(spec->cell)), H);
    /* besides W, each row has R, a share of the projection, two biases and a peephole */
    const rnl_size rest = rnl_size_add(rnl_size_add(state, state), rnl_size_of(3));
    const rnl_size first = rnl_size_add(rnl_size_of(spec->input_size), rest);
    const rnl_size deep = rnl_size_add(rnl_size_mul(D, state), rest);
    const rnl_size more = rnl_size_of(spec->num_layers - 1);
    const rnl_size widths = rnl_size_add(first, rnl_size_mul(deep, more));
    const rnl_size n = rnl_size_mul(rnl_size_mul(GH, D), widths);
    return rnl_size_mul(n, rnl_size_of(rnl_dtype_nbytes(RNL_FLOAT64)));
}

static rnl_status check_projection(const rnl_spec *spec, rnl_error *err)
{
    if (spec->proj_size && !table[spec->cell].may_project)
        return rnl_fail(err, RNL_E_SPEC,
                        "proj_size is %" PRId64
                        ", but only an LSTM can have a projection; this is %s",
                        spec->proj_size, rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (spec->proj_size >= spec->hidden_size)
        return rnl_fail(err, RNL_E_SPEC,
                        "proj_size is %" PRId64 ", need less than hidden_size %" PRId64
                        " (0: no projection)",
                        spec->proj_size, spec->hidden_size);
    return RNL_OK;
}

rnl_status rnl_spec_check(const rnl_spec *spec, rnl_error *err)
{
    rnl_status status;
    if ((status = check_enum(RNL_NAMES_CELL, (int)spec->cell, err)) ||
        (status = check_enum(RNL_NAMES_BIAS, (int)spec->bias, err)) ||
        (status = check_enum(RNL_NAMES_RESET, (int)spec->reset, err)) ||
        (status = check_enum(RNL_NAMES_ACTIVATION, (int)spec->recurrent_activation, err)) ||
        (status = check_enum(RNL_NAMES_STATE_ACTIVATION, (int)spec->activation, err)) ||
        (status = check_enum(RNL_NAMES_DTYPE, (int)spec->dtype, err)) ||
        (status = check_size("input_size", spec->input_size, 1, err)) ||
        (status = check_size("hidden_size", spec->hidden_size, 1, err)) ||
        (status = check_size("num_layers", spec->num_layers, 1, err)) ||
        (status = check_size("proj_size", spec->proj_size, 0, err)) ||
        (status = check_projection(spec, err)))
        return status;
    if (spec->num_layers > RNL_MAX_LAYERS)
        return rnl_fail(err, RNL_E_SPEC, "num_layers is %" PRId64 ", need at most %d",
                        spec->num_layers, RNL_MAX_LAYERS);
    if (spec->reset != RNL_RESET_AFTER && !table[spec->cell].reset)
        return rnl_fail(err, RNL_E_SPEC,
                        "reset is 'before', but only a GRU has a reset gate; this is %s",
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (spec->peepholes && !*table[spec->cell].peepholes)
        return rnl_fail(err, RNL_E_SPEC,
                        "peepholes are set, but only an LSTM can have peepholes; this is %s",
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (spec->recurrent_activation != RNL_SIGMOID && rnl_num_gates(spec->cell) == 1)
        return rnl_fail(err, RNL_E_SPEC,
                        "recurrent_activation is '%s', but %s has no gates to apply it to",
                        rnl_name(RNL_NAMES_ACTIVATION, (int)spec->recurrent_activation),
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (spec->activation != RNL_TANH && rnl_num_gates(spec->cell) == 1)
        return rnl_fail(err, RNL_E_SPEC,
                        "activation is '%s', but the cell is %s, and a plain RNN's activation is in"
                        " the name of its cell: choose rnn_tanh or rnn_relu, without activation",
                        rnl_name(RNL_NAMES_STATE_ACTIVATION, (int)spec->activation),
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    if (spec->skip_input && spec->input_size != spec->hidden_size)
        return rnl_fail(err, RNL_E_SPEC,
                        "skip_input adds the input to every gate as it is, so it"
                        " needs input_size == hidden_size; found %" PRId64 " and %" PRId64
                        " (cuDNN itself does not check this)",
                        spec->input_size, spec->hidden_size);
    if (most_bytes(spec).overflow)
        return rnl_fail(err, RNL_E_SPEC,
                        "the weights would not fit into 2^63 bytes as float64: input_size %" PRId64
                        ", hidden_size %" PRId64 ", num_layers %" PRId64,
                        spec->input_size, spec->hidden_size, spec->num_layers);
    return RNL_OK;
}

/* ------------------------------------------------------------------- blocks, in one order -- */

/* The blocks come in three phases: all matrices of the network, then all biases, then all
 * peepholes. Inside a phase the order is layer, direction, role, gate. */
typedef struct phase {
    int nblocks; /* in one layer and direction */
    rnl_role first;
} phase;

static phase phase_at(const rnl_spec *spec, int k)
{
    const int G = rnl_num_gates(spec->cell);
    const int peepholes = (int)strlen(table[spec->cell].peepholes);
    const phase phases[] = {
        {2 * G + (spec->proj_size > 0), RNL_W}, {2 * G, RNL_BW}, {peepholes, RNL_PEEP}};
    assert(k >= 0 && k < 3); /* the caller asks for an existing block */
    return phases[k];
}

int64_t rnl_num_blocks(const rnl_spec *spec)
{
    int nblocks = 0; /* in one layer and direction */
    for (int k = 0; k < 3; k++)
        nblocks += phase_at(spec, k).nblocks;
    return spec->num_layers * rnl_num_directions(spec) * nblocks;
}

rnl_block rnl_block_at(const rnl_spec *spec, int64_t k)
{
    const int G = rnl_num_gates(spec->cell);
    const int D = rnl_num_directions(spec);
    const int64_t cells = spec->num_layers * D;
    int number = 0;
    while (k >= cells * phase_at(spec, number).nblocks)
        k -= cells * phase_at(spec, number++).nblocks;
    const phase here = phase_at(spec, number);
    assert(here.nblocks > 0); /* because k < here.nblocks */
    const int64_t cell = k / here.nblocks;
    const int within = (int)(k % here.nblocks);
    rnl_block block = {.layer = cell / D, .direction = (int)(cell % D)};
    if (here.first == RNL_PEEP) {
        const rnl_cell_facts *const facts = &table[spec->cell];
        block.role = RNL_PEEP;
        block.gate = (int)(strchr(facts->gates, facts->peepholes[within]) - facts->gates);
    } else {
        block.role = (rnl_role)((int)here.first + within / G);
        block.gate = within % G;
    }
    return block;
}

int rnl_lin_layer_id(rnl_cell cell, const rnl_block *block)
{
    const int G = rnl_num_gates(cell);
    switch (block->role) {
    case RNL_R:
    case RNL_BR: return G + block->gate;
    case RNL_P: return 2 * G;
    default: return block->gate;
    }
}
