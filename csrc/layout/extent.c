/* Numbers of elements: along an axis, along a dimension, in a repeated slot. */
#include <assert.h>
#include <string.h>

#include "layout/form.h"

int64_t rnl_axis_extent(const rnl_form *form, char axis, const rnl_piece *piece, int64_t layer)
{
    const rnl_spec *spec = &form->spec;
    const rnl_block block = {.layer = layer, .role = piece->role};
    int64_t rows, cols;
    rnl_block_shape(spec, &block, &rows, &cols);
    switch (axis) {
    case 'l': return 1;
    case 'd': return rnl_num_directions(spec);
    case 'g': return rnl_form_num_gates(form, piece);
    case 'o': return rows;
    default: return piece->role == RNL_PEEP ? rows : cols;
    }
}

/* Return the number of elements along the axes [from, to) of a shape. */
static int64_t extent(const rnl_form *form, const char *from, const char *to,
                      const rnl_piece *piece, int64_t layer)
{
    int64_t n = 1;
    for (const char *axis = from; axis < to; axis++)
        n *= rnl_axis_extent(form, *axis, piece, layer);
    return n;
}

int64_t rnl_fill_extent(const rnl_form *form, const rnl_piece *piece, int64_t layer)
{
    if (!rnl_form_has_piece(form, piece, layer))
        return 0;
    const char *fill = piece->fill ? piece->fill : "";
    return extent(form, fill, fill + strlen(fill), piece, layer);
}

int64_t rnl_slot_dimension(const rnl_form *form, const rnl_slot *slot, const char *from,
                           const char *to, int64_t layer)
{
    if (*from != '+')
        return extent(form, from, to, slot->pieces, layer);
    int64_t n = 0;
    for (int k = 0; k < rnl_num_pieces(slot); k++)
        n += rnl_fill_extent(form, rnl_form_piece(form, slot, k), layer);
    return n;
}

int rnl_slot_shape(const rnl_form *form, const rnl_slot *slot, int64_t layer, int64_t *shape)
{
    int ndim = 0;
    for (const char *from = slot->shape;; from++) {
        const char *to = from + strcspn(from, ",");
        assert(ndim < RNL_MAX_DIMS);
        shape[ndim++] = rnl_slot_dimension(form, slot, from, to, layer);
        if (!*to)
            return ndim;
        from = to;
    }
}

/* A repetition is one-dimensional and has the same size in all layers but the first. */
int64_t rnl_repeated_nelems(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                            int direction)
{
    const bool by_direction = strchr(slot->repeats, 'd') != NULL;
    const int D = by_direction ? rnl_num_directions(&form->spec) : 1;
    const int earlier = by_direction ? direction : 0; /* repetitions of the same layer */
    int64_t first[RNL_MAX_DIMS], deep[RNL_MAX_DIMS];
    rnl_slot_shape(form, slot, 0, first);
    rnl_slot_shape(form, slot, 1, deep);
    return layer == 0 ? earlier * first[0] : D * first[0] + ((layer - 1) * D + earlier) * deep[0];
}
