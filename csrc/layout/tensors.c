/* The tensors of an RNN in a layout: number, order, names and shapes. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "layout/form.h"

static bool per(const rnl_form *form, char axis)
{
    return strchr(form->row->per, axis) != NULL;
}

/* Return the number of tensors of a slot per layer and direction: one per gate if the slot's name
 * has {g}. */
static int slot_tensors(const rnl_form *form, const rnl_slot *slot)
{
    if (slot->continues || !rnl_form_has_slot(form, slot))
        return 0;
    return strstr(slot->name, "{g}") ? rnl_form_num_gates(form, slot->pieces) : 1;
}

/* Return the number of tensors per layer and direction, of the slots before `end` or, with NULL, of
 * all slots. */
static int tensors_before(const rnl_form *form, const rnl_slot *end)
{
    int n = 0;
    for (const rnl_slot *slot = form->row->slots;
         slot != end && slot->name && slot < form->row->slots + RNL_MAX_SLOTS; slot++)
        n += slot_tensors(form, slot);
    return n;
}

int64_t rnl_form_num_tensors(const rnl_form *form)
{
    return (per(form, 'l') ? form->spec.num_layers : 1) *
           (per(form, 'd') ? rnl_num_directions(&form->spec) : 1) * tensors_before(form, NULL);
}

int64_t rnl_form_tensor_index(const rnl_form *form, const rnl_slot *slot, int64_t layer,
                              int direction, int gate)
{
    while (slot->continues)
        slot--;
    int64_t group = per(form, 'l') ? layer : 0;
    if (per(form, 'd'))
        group = group * rnl_num_directions(&form->spec) + direction;
    return group * tensors_before(form, NULL) + tensors_before(form, slot) +
           (slot_tensors(form, slot) > 1 ? rnl_form_gate_place(form, slot->pieces, gate) : 0);
}

/* A tensor of a slot. */
typedef struct slot_tensor {
    const rnl_slot *slot;
    int64_t layer;
    int direction;
    char gate;
} slot_tensor;

/* Write the beginning of a text; snprintf with "%.*s" would take several times as long. */
static void write_start(const char *from, size_t length, char *text, size_t size)
{
    const size_t n = length < size ? length : size - 1;
    memcpy(text, from, n);
    text[n] = '\0';
}

/* Write the name of the tensor's gate: from the slot's gate_names, or else the letter. */
static void gate_name(const slot_tensor *tensor, char *text, size_t size)
{
    const char *name = &tensor->gate;
    size_t length = 1;
    for (const char *c = tensor->slot->gate_names; c && *c; c += strspn(c, " ")) {
        const size_t word = strcspn(c, " ");
        if (*c == tensor->gate) {
            name = c + strlen("g:");
            length = word - strlen("g:");
        }
        c += word;
    }
    write_start(name, length, text, size);
}

/* Write the prefix of a layer and direction in a stack: "1/forward/", or "1/" if the rest of the
 * name has the direction; nothing without a stack. */
static void stack_prefix(const rnl_form *form, const slot_tensor *tensor, char *text, size_t size)
{
    const bool sides = per(form, 'd') && form->spec.bidirectional &&
                       !strstr(tensor->slot->name, "{d:");
    const char *side = tensor->direction ? "backward/" : "forward/";
    *text = '\0';
    if (form->spec.num_layers > 1 || sides)
        snprintf(text, size, "%" PRId64 "/%s", tensor->layer, sides ? side : "");
}

/* Write the text that replaces a placeholder of a name, for example `a` or `b` for `{d:a|b}`. */
static void placeholder(const rnl_form *form, const char *symbol, const slot_tensor *tensor,
                        char *text, size_t size)
{
    switch (*symbol) {
    case 'l': snprintf(text, size, "%" PRId64, tensor->layer); break;
    case 'p':
        snprintf(text, size, "%" PRId64,
                 tensor->layer * rnl_num_directions(&form->spec) + tensor->direction);
        break;
    case 'd':
        symbol += tensor->direction ? strcspn(symbol, "|") + 1 : strlen("d:");
        write_start(symbol, strcspn(symbol, "|}"), text, size);
        break;
    case 'g': gate_name(tensor, text, size); break;
    default: stack_prefix(form, tensor, text, size); break;
    }
}

static void fill_name(const rnl_form *form, const slot_tensor *tensor, char *name)
{
    size_t n = 0;
    for (const char *c = tensor->slot->name; *c; c++) {
        assert(n + 1 < RNL_MAX_NAME);
        if (*c == '{') {
            placeholder(form, c + 1, tensor, name + n, RNL_MAX_NAME - n);
            n += strlen(name + n);
            c = strchr(c, '}');
        } else {
            name[n++] = *c;
        }
    }
    name[n] = '\0';
}

static int64_t nelems_of_tensor(const rnl_form *form, const rnl_slot *slot)
{
    int64_t n = 0;
    do
        n += rnl_repeated_nelems(form, slot, form->spec.num_layers, 0);
    while ((++slot)->continues);
    return n;
}

/* Find the slot and the gate of tensor `within` of a layer and direction. */
static slot_tensor place_of_tensor(const rnl_form *form, int64_t layer, int direction, int within)
{
    const rnl_slot *slot = form->row->slots;
    while (within >= slot_tensors(form, slot))
        within -= slot_tensors(form, slot++);
    return (slot_tensor){slot, layer, direction, rnl_form_gate_letter(form, slot->pieces, within)};
}

void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor)
{
    const int group_size = tensors_before(form, NULL);
    const int D = per(form, 'd') ? rnl_num_directions(&form->spec) : 1;
    assert(group_size > 0); /* every row has tensors */
    const int64_t layer = k / group_size / D;
    const int direction = (int)(k / group_size % D);
    const slot_tensor place = place_of_tensor(form, layer, direction, (int)(k % group_size));
    fill_name(form, &place, tensor->name);
    if (place.slot->repeats) {
        tensor->ndim = 1;
        tensor->shape[0] = nelems_of_tensor(form, place.slot);
    } else {
        tensor->ndim = rnl_slot_shape(form, place.slot, layer, tensor->shape);
    }
    tensor->nelems = 1;
    for (int d = 0; d < tensor->ndim; d++)
        tensor->nelems *= tensor->shape[d];
}

rnl_status rnl_layout_num_tensors(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                                  int64_t *n, rnl_error *err)
{
    rnl_form form;
    const rnl_status status = rnl_form_init(layout, spec, optional, &form, err);
    if (!status)
        *n = rnl_form_num_tensors(&form);
    return status;
}

rnl_status rnl_layout_tensor(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                             int64_t k, rnl_tensor *tensor, rnl_error *err)
{
    rnl_form form;
    const rnl_status status = rnl_form_init(layout, spec, optional, &form, err);
    if (status)
        return status;
    const int64_t n = rnl_form_num_tensors(&form);
    if (k < 0 || k >= n)
        return rnl_fail(err, RNL_E_LAYOUT,
                        "tensor %" PRId64 " does not exist: this RNN has %" PRId64 " tensors in %s",
                        k, n, layout->name);
    rnl_form_tensor(&form, k, tensor);
    return RNL_OK;
}

/* Write name *k of the tensors of one layer, of every cell of a row and both directions; or
 * subtract their number from *k. */
static bool find_name(const rnl_row *row, int *k, char *name)
{
    for (int cell = 0; cell < RNL_NUM_CELLS; cell++) {
        const rnl_form form = {row, {.cell = (rnl_cell)cell}, .roles = ~0u};
        const int group_size = row->gates[cell] ? tensors_before(&form, NULL) : 0;
        if (group_size > 0 && *k < 2 * group_size) {
            const slot_tensor place = place_of_tensor(&form, 0, *k / group_size, *k % group_size);
            fill_name(&form, &place, name);
            return true;
        }
        *k -= 2 * group_size;
    }
    return false;
}

rnl_status rnl_layout_name_at(const rnl_layout *layout, int k, char *name, rnl_error *err)
{
    int left = k;
    for (int r = 0; left >= 0 && r < layout->num_rows; r++)
        if (find_name(&layout->rows[r], &left, name))
            return RNL_OK;
    return rnl_fail(err, RNL_E_LAYOUT, "name %d does not exist in %s", k, layout->name);
}
