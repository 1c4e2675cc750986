/* Can a layout represent an RNN? The roles of the form, and the order of pieces and gates. */
#include "layout/form.h"

#include <inttypes.h>
#include <string.h>

#include "core/status.h"

int rnl_num_pieces(const rnl_slot *slot)
{
    int n = 0;
    while (slot->pieces[n].role != RNL_NO_ROLE)
        n++;
    return n;
}

bool rnl_row_has_role(const rnl_row *row, rnl_role role)
{
    for (int s = 0; s < RNL_MAX_SLOTS && row->slots[s].name; s++)
        for (int p = 0; p < rnl_num_pieces(&row->slots[s]); p++)
            if (row->slots[s].pieces[p].role == role)
                return true;
    return false;
}

const rnl_piece *rnl_form_piece(const rnl_form *form, const rnl_slot *slot, int k)
{
    const bool swapped = form->row->options & (1u << RNL_OPT_INPUTS) &&
                         form->layout.option[RNL_OPT_INPUTS] == 1;
    return &slot->pieces[swapped ? rnl_num_pieces(slot) - 1 - k : k];
}

/* Return the number of gates of a piece that come before a gate in memory. '\0': all gates. */
static int gates_before(const rnl_form *form, const rnl_piece *piece, char letter)
{
    int n = 0;
    for (const char *g = form->row->gates[form->spec.cell]; *g != letter; g++)
        n += !piece->gates || strchr(piece->gates, *g);
    return n;
}

int rnl_form_num_gates(const rnl_form *form, const rnl_piece *piece)
{
    return gates_before(form, piece, '\0');
}

int rnl_form_gate_place(const rnl_form *form, const rnl_piece *piece, int gate)
{
    return gates_before(form, piece, rnl_gate_letter(form->spec.cell, gate));
}

char rnl_form_gate_letter(const rnl_form *form, const rnl_piece *piece, int k)
{
    const char *g = form->row->gates[form->spec.cell];
    while (gates_before(form, piece, g[1]) <= k)
        g++;
    return *g;
}

/* Does any layer have the piece? */
static bool has_piece(const rnl_form *form, const rnl_piece *piece)
{
    return form->roles >> piece->role & 1 && rnl_form_num_gates(form, piece) > 0;
}

bool rnl_form_has_piece(const rnl_form *form, const rnl_piece *piece, int64_t layer)
{
    if (piece->role == RNL_W && layer == 0 && form->row->bias_by_mode && form->spec.skip_input)
        return false;
    return has_piece(form, piece);
}

bool rnl_form_has_slot(const rnl_form *form, const rnl_slot *slot)
{
    for (int k = 0; k < rnl_num_pieces(slot); k++)
        if (has_piece(form, &slot->pieces[k]))
            return true;
    return false;
}

const rnl_piece *rnl_form_find(const rnl_form *form, const rnl_block *block, const rnl_slot **slot)
{
    const char letter = rnl_gate_letter(form->spec.cell, block->gate);
    for (*slot = form->row->slots; *slot < form->row->slots + RNL_MAX_SLOTS && (*slot)->name;
         ++*slot)
        for (int k = 0; k < rnl_num_pieces(*slot); k++) {
            const rnl_piece *piece = &(*slot)->pieces[k];
            if (piece->role == block->role && (!piece->gates || strchr(piece->gates, letter)))
                return rnl_form_has_piece(form, piece, block->layer) ? piece : NULL;
        }
    return NULL;
}

/* --------------------------------------------------- why a layout cannot represent an RNN -- */

static const rnl_row *find_row(const rnl_layout *layout, const rnl_spec *spec)
{
    for (int k = 0; k < layout->num_rows; k++) {
        const rnl_row *row = &layout->rows[k];
        if (row->gates[spec->cell] &&
            (!rnl_cell_facts_of(spec->cell)->reset || row->resets >> spec->reset & 1))
            return row;
    }
    return NULL;
}

static bool holds_cell(const rnl_layout *layout, rnl_cell cell)
{
    for (int k = 0; k < layout->num_rows; k++)
        if (layout->rows[k].gates[cell])
            return true;
    return false;
}

static rnl_status fail_no_row(const rnl_layout *layout, const rnl_spec *spec, rnl_error *err)
{
    static const char before[] = "R (r * h)", after[] = "r * (R h)";
    if (!holds_cell(layout, spec->cell))
        return rnl_fail(err, RNL_E_LOSSY, "%s has no %s", layout->name,
                        rnl_name(RNL_NAMES_CELL, (int)spec->cell));
    return rnl_fail(err, RNL_E_LOSSY,
                    "%s has no reset-%s GRU: the candidate of this GRU is tanh(W x + %s),"
                    " that of %s is tanh(W x + %s), and no change of the weights makes them equal",
                    layout->name, rnl_name(RNL_NAMES_RESET, (int)spec->reset),
                    spec->reset == RNL_RESET_BEFORE ? before : after, layout->name,
                    spec->reset == RNL_RESET_BEFORE ? after : before);
}

static rnl_status check_row(const rnl_row *row, const rnl_layout *layout, const rnl_spec *spec,
                            rnl_error *err)
{
    if (!(row->activations >> spec->recurrent_activation & 1))
        return rnl_fail(err, RNL_E_LOSSY,
                        "%s has no recurrent_activation '%s': its gates are sigmoids", layout->name,
                        rnl_name(RNL_NAMES_ACTIVATION, (int)spec->recurrent_activation));
    if (spec->activation != RNL_TANH && !row->has_relu)
        return rnl_fail(err, RNL_E_LOSSY,
                        "%s has no %s with activation '%s': its candidate%s tanh, which no change"
                        " of the weights turns into %s",
                        layout->name, rnl_name(RNL_NAMES_CELL, (int)spec->cell),
                        rnl_name(RNL_NAMES_STATE_ACTIVATION, (int)spec->activation),
                        rnl_cell_facts_of(spec->cell)->has_c ? " and output have" : " has",
                        rnl_name(RNL_NAMES_STATE_ACTIVATION, (int)spec->activation));
    if (spec->proj_size && !rnl_row_has_role(row, RNL_P))
        return rnl_fail(err, RNL_E_LOSSY,
                        "%s has no projection (proj_size is %" PRId64 "). To remove it by hand, use"
                        " R' = R P (%" PRId64 ", %" PRId64 ") as recurrent matrices and, in each"
                        " layer but the first, W' = W P per direction, and multiply the outputs by"
                        " P (%" PRId64 ", %" PRId64 "); this rounds, and the network trains"
                        " differently",
                        layout->name, spec->proj_size, spec->hidden_size, spec->hidden_size,
                        spec->proj_size, spec->hidden_size);
    if (spec->peepholes && !rnl_row_has_role(row, RNL_PEEP))
        return rnl_fail(err, RNL_E_LOSSY,
                        "%s has no peepholes: they multiply the cell state in the gates i, f and o,"
                        " which no other weights do; only peepholes that are all zero can be left"
                        " out, with peepholes=False",
                        layout->name);
    for (int k = 0; k < RNL_NUM_OPTIONS; k++)
        if (row->options >> k & 1 && rnl_options[k].lacks[layout->option[k]] >> spec->dtype & 1)
            return rnl_fail(err, RNL_E_SPEC, "%s with %s %s has no %s RNNs; with %s %s it has",
                            layout->name, rnl_options[k].name,
                            rnl_options[k].values[layout->option[k]],
                            rnl_name(RNL_NAMES_DTYPE, (int)spec->dtype), rnl_options[k].name,
                            rnl_options[k].values[0]);
    return RNL_OK;
}

static unsigned bias_roles(const rnl_row *row, const rnl_spec *spec, unsigned optional)
{
    static const unsigned by_mode[] = {[RNL_BIAS_DOUBLE] = 1u << RNL_BW | 1u << RNL_BR,
                                       [RNL_BIAS_INPUT] = 1u << RNL_BW,
                                       [RNL_BIAS_RECURRENT] = 1u << RNL_BR,
                                       [RNL_BIAS_NONE] = 0};
    if (row->bias_by_mode)
        return by_mode[spec->bias];
    return optional & RNL_HAS_BIAS || row->bias_always ? by_mode[RNL_BIAS_DOUBLE] : 0;
}

rnl_form rnl_form_of_row(const rnl_layout *layout, const rnl_row *row)
{
    rnl_form form = {.row = row, .layout = *layout, .z = row->z, .forget_bias = row->forget_bias};
    if (row->options >> RNL_OPT_Z & 1)
        form.z = (rnl_z)layout->option[RNL_OPT_Z];
    if (row->options >> RNL_OPT_FORGET_BIAS & 1 && layout->option[RNL_OPT_FORGET_BIAS])
        form.forget_bias = layout->forget_bias;
    return form;
}

rnl_status rnl_form_init(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                         rnl_form *form, rnl_error *err)
{
    rnl_status status = rnl_spec_check(spec, err);
    if (status)
        return status;
    const rnl_row *row = find_row(layout, spec);
    if (!row)
        return fail_no_row(layout, spec, err);
    if ((status = check_row(row, layout, spec, err)))
        return status;
    unsigned wanted = 1u << RNL_W | 1u << RNL_R | bias_roles(row, spec, optional);
    if (spec->proj_size)
        wanted |= 1u << RNL_P;
    if (optional & RNL_HAS_PEEPHOLES && *rnl_cell_facts_of(spec->cell)->peepholes)
        wanted |= 1u << RNL_PEEP;
    *form = rnl_form_of_row(layout, row);
    form->spec = *spec;
    for (rnl_role role = RNL_W; role <= RNL_PEEP; role++)
        if (wanted >> role & 1 && rnl_row_has_role(row, role))
            form->roles |= 1u << role;
    return RNL_OK;
}

rnl_status rnl_layout_check(const rnl_layout *layout, const rnl_spec *spec, rnl_error *err)
{
    rnl_form form;
    return rnl_form_init(layout, spec, rnl_spec_optional(spec), &form, err);
}
