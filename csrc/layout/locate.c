/* Find the place of a block of weights in a layout. The same code serves every row. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/status.h"
#include "layout/form.h"

/* A search for the place of a block: the view is filled in step by step. */
typedef struct finder {
    const rnl_form *form;
    const rnl_slot *slot;
    const rnl_piece *piece;
    const rnl_block *block;
    rnl_view *view;
} finder;

/* Place the block along the axes [from, to) of a dimension, fastest axis first. `stride` is the
 * distance in elements between neighbours along the fastest axis. */
static void place_axes(const finder *at, const char *from, const char *to, int64_t stride)
{
    const rnl_block *block = at->block;
    for (const char *axis = to; axis-- > from;) {
        switch (*axis) {
        case 'l': break;
        case 'd': at->view->at += block->direction * stride; break;
        case 'g':
            at->view->at += rnl_form_gate_place(at->form, at->piece, block->gate) * stride;
            break;
        case 'o': at->view->row_stride = stride; break;
        default:
            *(block->role == RNL_PEEP ? &at->view->row_stride : &at->view->col_stride) = stride;
            break;
        }
        stride *= rnl_axis_extent(at->form, *axis, at->piece, block->layer);
    }
}

/* Place the block along the `+` of a slot: skip the pieces before the block's piece, then go along
 * the fill of this piece. */
static void place_piece(const finder *at, int64_t stride)
{
    for (int k = 0; k < rnl_num_pieces(at->slot); k++) {
        const rnl_piece *piece = rnl_form_piece(at->form, at->slot, k);
        if (piece == at->piece) {
            const char *fill = piece->fill ? piece->fill : "";
            place_axes(at, fill, fill + strlen(fill), stride);
            return;
        }
        at->view->at += rnl_fill_extent(at->form, piece, at->block->layer) * stride;
    }
}

static void place_in_slot(const finder *at)
{
    const char *shape = at->slot->shape;
    const char *to = shape + strlen(shape);
    int64_t stride = 1;
    for (;;) {
        const char *from = to;
        while (from > shape && from[-1] != ',')
            from--;
        if (*from == '+')
            place_piece(at, stride);
        else
            place_axes(at, from, to, stride);
        stride *= rnl_slot_dimension(at->form, at->slot, from, to, at->block->layer);
        if (from == shape)
            return;
        to = from - 1;
    }
}

/* Return the number of elements of the earlier slots in the same tensor. */
static int64_t nelems_before(const rnl_form *form, const rnl_slot *slot)
{
    int64_t n = 0;
    for (; slot->continues; slot--) {
        assert(slot > form->row->slots); /* the first slot does not continue another */
        n += rnl_repeated_nelems(form, slot - 1, form->spec.num_layers, 0);
    }
    return n;
}

void rnl_form_locate(const rnl_form *form, const rnl_block *block, rnl_view *view)
{
    *view = (rnl_view){.tensor = -1};
    const rnl_slot *slot;
    const rnl_piece *piece = rnl_form_find(form, block, &slot);
    if (!piece)
        return;
    const finder at = {form, slot, piece, block, view};
    view->tensor = rnl_form_tensor_index(form, slot, block->layer, block->direction, block->gate);
    if (slot->repeats)
        view->at = nelems_before(form, slot) +
                   rnl_repeated_nelems(form, slot, block->layer, block->direction);
    place_in_slot(&at);
    rnl_block_shape(&form->spec, block, &view->rows, &view->cols);
    if (slot->ravels) {
        const rnl_view matrix = *view;
        view->ravel = 1;
        view->rows = matrix.cols;
        view->cols = matrix.rows;
        view->row_stride = matrix.col_stride;
        view->col_stride = matrix.row_stride;
    }
}

static rnl_status check_block(const rnl_spec *spec, const rnl_block *block, rnl_error *err)
{
    const int D = rnl_num_directions(spec), role = (int)block->role;
    const int G = role == RNL_P ? 1 : rnl_num_gates(spec->cell);
    if (role <= RNL_NO_ROLE || role > RNL_PEEP)
        return rnl_fail(err, RNL_E_SPEC, "block: no role has the value %d", role);
    if (block->layer >= 0 && block->layer < spec->num_layers && block->direction >= 0 &&
        block->direction < D && block->gate >= 0 && block->gate < G)
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC,
                    "block: layer %" PRId64 ", direction %d, gate %d of %s, need less than %" PRId64
                    ", %d and %d, and at least 0",
                    block->layer, block->direction, block->gate, rnl_name(RNL_NAMES_ROLE, role),
                    spec->num_layers, D, G);
}

rnl_status rnl_layout_locate(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                             const rnl_block *block, rnl_view *view, rnl_error *err)
{
    rnl_form form;
    rnl_status status = rnl_form_init(layout, spec, optional, &form, err);
    if (!status)
        status = check_block(spec, block, err);
    if (!status)
        rnl_form_locate(&form, block, view);
    return status;
}
