/* Is every element of a tensor in exactly one block? Counted in small RNNs of every kind. */
#include <inttypes.h>
#include <string.h>

#include "core/status.h"
#include "layout/user_rows.h"

/* Small sizes, all different: of two layers and two directions, with a width of 2 * 3 or 2 * 2 for
 * the second layer. The weights of the largest, an LSTM, are below MAX_NELEMS. */
enum { I = 5, H = 3, P = 2, L = 2, MAX_NELEMS = 2048, MAX_TENSORS = 2 * L * 4 * RNL_MAX_SLOTS };

/* The tensors of an RNN laid out one after another, and how many weights are in each element. */
typedef struct tiles {
    const rnl_form *form;
    const char *cell;
    rnl_tensor tensors[MAX_TENSORS];
    int64_t num_tensors, starts[MAX_TENSORS + 1];
    uint8_t counts[MAX_NELEMS];
} tiles;

static const char outside[] =
    "some elements are in no weight; if each direction has a tensor, its name"
    " needs {direction:fwd|bwd}";

static rnl_status wrong(const tiles *of, rnl_error *err, int64_t tensor, const char *text)
{
    return rnl_fail(err, RNL_E_LAYOUT, "tensors: in '%s' of the %s %s", of->tensors[tensor].name,
                    of->cell, text);
}

static rnl_status list_tensors(tiles *of, rnl_error *err)
{
    int64_t nelems = 0;
    of->num_tensors = rnl_form_num_tensors(of->form);
    for (int64_t k = 0; k < of->num_tensors; k++) {
        rnl_form_tensor(of->form, k, &of->tensors[k]);
        of->starts[k] = nelems;
        nelems += of->tensors[k].nelems;
        for (int64_t j = 0; j < k; j++)
            if (strcmp(of->tensors[j].name, of->tensors[k].name) == 0)
                return rnl_fail(err, RNL_E_LAYOUT,
                                "tensors: two tensors of the %s would be called '%s': the names"
                                " need {gate} if each gate has a tensor, and {direction:|_reverse}"
                                " if they have {layer}",
                                of->cell, of->tensors[k].name);
        if (nelems > MAX_NELEMS)
            return wrong(of, err, k, outside);
    }
    of->starts[of->num_tensors] = nelems;
    memset(of->counts, 0, sizeof of->counts);
    return RNL_OK;
}

static rnl_status count_block(tiles *of, const rnl_block *block, rnl_error *err)
{
    rnl_view view;
    rnl_form_locate(of->form, block, &view);
    if (view.tensor < 0)
        return RNL_OK;
    if (view.tensor >= of->num_tensors)
        return rnl_fail(err, RNL_E_LAYOUT, "tensors: %s of gate %c of the %s is in no tensor",
                        rnl_name(RNL_NAMES_ROLE, (int)block->role),
                        rnl_gate_letter(of->form->spec.cell, block->gate), of->cell);
    for (int64_t k = 0; k < view.rows * view.cols; k++) {
        const int64_t at = of->starts[view.tensor] + view.at + k / view.cols * view.row_stride +
                           k % view.cols * view.col_stride;
        if (at >= of->starts[view.tensor + 1] || of->counts[at]++)
            return wrong(of, err, view.tensor, "two weights would be the same element");
    }
    return RNL_OK;
}

/* Does the row contain W and R of every gate? */
static rnl_status check_matrices(const rnl_form *form, const char *cell, rnl_error *err)
{
    for (int gate = 0; gate < rnl_num_gates(form->spec.cell); gate++)
        for (int role = RNL_W; role <= RNL_R; role++) {
            const rnl_block block = {.role = (rnl_role)role, .gate = gate};
            const rnl_slot *slot;
            if (!rnl_form_find(form, &block, &slot))
                return rnl_fail(err, RNL_E_LAYOUT,
                                "tensors: %s of gate %c of the %s is in no"
                                " tensor",
                                rnl_name(RNL_NAMES_ROLE, role),
                                rnl_gate_letter(form->spec.cell, gate), cell);
        }
    return RNL_OK;
}

static rnl_status check_rnn(const rnl_layout *layout, const rnl_row *row, const rnl_spec *spec,
                            rnl_error *err)
{
    rnl_form form;
    tiles of = {.form = &form, .cell = rnl_name(RNL_NAMES_CELL, (int)spec->cell)};
    rnl_status status = rnl_form_init(layout, spec, rnl_spec_optional(spec), &form, err);
    if (status)
        return status;
    if (form.row != row)
        return rnl_fail(err, RNL_E_LAYOUT, "rows[%td]: rows[%td] has this %s already",
                        row - layout->rows, form.row - layout->rows, of.cell);
    status = check_matrices(&form, of.cell, err);
    if (!status)
        status = list_tensors(&of, err);
    for (int64_t k = 0; !status && k < rnl_num_blocks(spec); k++) {
        const rnl_block block = rnl_block_at(spec, k);
        status = count_block(&of, &block, err);
    }
    for (int64_t k = 0; !status && k < of.num_tensors; k++)
        for (int64_t at = of.starts[k]; !status && at < of.starts[k + 1]; at++)
            if (!of.counts[at])
                status = wrong(&of, err, k, outside);
    return status;
}

/* Check the RNNs of a cell with one and two directions, with all optional tensors and with none. */
static rnl_status check_cell(const rnl_layout *layout, const rnl_row *row, rnl_cell cell,
                             rnl_reset reset, rnl_error *err)
{
    rnl_status status = RNL_OK;
    const rnl_cell_facts *const facts = rnl_cell_facts_of(cell);
    for (int kind = 0; !status && kind < 4; kind++) {
        rnl_spec spec = rnl_spec_default(cell, I, H);
        spec.num_layers = L;
        spec.bidirectional = kind & 1;
        spec.bias = kind & 2 ? RNL_BIAS_DOUBLE : RNL_BIAS_NONE;
        spec.reset = reset;
        spec.peepholes = kind & 2 && *facts->peepholes && rnl_row_has_role(row, RNL_PEEP);
        spec.proj_size = kind & 2 && facts->may_project && rnl_row_has_role(row, RNL_P) ? P : 0;
        status = check_rnn(layout, row, &spec, err);
    }
    return status;
}

rnl_status rnl_check_tiles(const rnl_layout *layout, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = 0; k < layout->num_rows; k++)
        for (int cell = 0; cell < RNL_NUM_CELLS; cell++) {
            const rnl_row *const row = &layout->rows[k];
            const bool has_reset = rnl_cell_facts_of((rnl_cell)cell)->reset;
            for (int reset = RNL_RESET_AFTER; !status && reset <= RNL_RESET_BEFORE; reset++)
                if (row->gates[cell] &&
                    (has_reset ? row->resets >> reset & 1 : reset == RNL_RESET_AFTER))
                    status = check_cell(layout, row, (rnl_cell)cell, (rnl_reset)reset, err);
        }
    return status;
}
