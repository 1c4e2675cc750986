/* Which tensors does an RNN have in a layout? Their number, order, names and shapes. */
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

/* The number of tensors of a slot in one layer and direction: one per gate if its name has {g}. */
static int slot_tensors(const rnl_form *form, const rnl_slot *slot)
{
    if (slot->continues || !rnl_form_has_slot(form, slot))
        return 0;
    return strstr(slot->name, "{g}") ? rnl_form_num_gates(form, slot->pieces) : 1;
}

/* The number of tensors of the slots before `end` (NULL: all) in one layer and direction. */
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

/* The layer, direction and gate of a tensor of a slot. */
typedef struct whose {
    const rnl_slot *slot;
    int64_t layer;
    int direction;
    char gate;
} whose;

/* Write the beginning of a text; snprintf with "%.*s" would take several times as long. */
static void write_start(const char *from, size_t length, char *text, size_t size)
{
    const size_t n = length < size ? length : size - 1;
    memcpy(text, from, n);
    text[n] = '\0';
}

/* Write the name of a gate: the one of the slot's list, or its letter. */
static void gate_name(const whose *of, char *text, size_t size)
{
    const char *name = &of->gate;
    size_t length = 1;
    for (const char *c = of->slot->gate_names; c && *c; c += strspn(c, " ")) {
        const size_t word = strcspn(c, " ");
        if (*c == of->gate) {
            name = c + strlen("g:");
            length = word - strlen("g:");
        }
        c += word;
    }
    write_start(name, length, text, size);
}

/* Write the prefix of a layer and direction in a stack: "1/forward/", or "1/" if the rest of the
 * name tells the directions apart; nothing if there is only one. */
static void stack_prefix(const rnl_form *form, const whose *of, char *text, size_t size)
{
    const bool sides = per(form, 'd') && form->spec.bidirectional && !strstr(of->slot->name, "{d:");
    const char *side = of->direction ? "backward/" : "forward/";
    *text = '\0';
    if (form->spec.num_layers > 1 || sides)
        snprintf(text, size, "%" PRId64 "/%s", of->layer, sides ? side : "");
}

/* Write the text that replaces a placeholder of a name: of `{d:a|b}`, a or b. */
static void placeholder(const rnl_form *form, const char *which, const whose *of, char *text,
                        size_t size)
{
    switch (*which) {
    case 'l': snprintf(text, size, "%" PRId64, of->layer); break;
    case 'p':
        snprintf(text, size, "%" PRId64,
                 of->layer * rnl_num_directions(&form->spec) + of->direction);
        break;
    case 'd':
        which += of->direction ? strcspn(which, "|") + 1 : strlen("d:");
        write_start(which, strcspn(which, "|}"), text, size);
        break;
    case 'g': gate_name(of, text, size); break;
    default: stack_prefix(form, of, text, size); break;
    }
}

static void fill_name(const rnl_form *form, const whose *of, char *name)
{
    size_t n = 0;
    for (const char *c = of->slot->name; *c; c++) {
        assert(n + 1 < RNL_MAX_NAME);
        if (*c == '{') {
            placeholder(form, c + 1, of, name + n, RNL_MAX_NAME - n);
            n += strlen(name + n);
            c = strchr(c, '}');
        } else {
            name[n++] = *c;
        }
    }
    name[n] = '\0';
}

static int64_t walked_nelems(const rnl_form *form, const rnl_slot *slot)
{
    int64_t n = 0;
    do
        n += rnl_walk_nelems(form, slot, form->spec.num_layers, 0);
    while ((++slot)->continues);
    return n;
}

/* The slot and the gate of a tensor, of those of one layer and direction. */
static whose whose_tensor(const rnl_form *form, int64_t layer, int direction, int within)
{
    const rnl_slot *slot = form->row->slots;
    while (within >= slot_tensors(form, slot))
        within -= slot_tensors(form, slot++);
    return (whose){slot, layer, direction, rnl_form_gate_letter(form, slot->pieces, within)};
}

void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor)
{
    const int each = tensors_before(form, NULL);
    const int D = per(form, 'd') ? rnl_num_directions(&form->spec) : 1;
    assert(each > 0); /* every row has tensors */
    const int64_t layer = k / each / D;
    const whose of = whose_tensor(form, layer, (int)(k / each % D), (int)(k % each));
    fill_name(form, &of, tensor->name);
    if (of.slot->walks) {
        tensor->ndim = 1;
        tensor->shape[0] = walked_nelems(form, of.slot);
    } else {
        tensor->ndim = rnl_slot_shape(form, of.slot, layer, tensor->shape);
    }
    tensor->nelems = 1;
    for (int d = 0; d < tensor->ndim; d++)
        tensor->nelems *= tensor->shape[d];
}

rnl_status rnl_layout_num_tensors(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                                  int64_t *n, rnl_error *err)
{
    rnl_form form;
    const rnl_status status = rnl_form_init(layout, spec, has, &form, err);
    if (!status)
        *n = rnl_form_num_tensors(&form);
    return status;
}

rnl_status rnl_layout_tensor(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                             int64_t k, rnl_tensor *tensor, rnl_error *err)
{
    rnl_form form;
    const rnl_status status = rnl_form_init(layout, spec, has, &form, err);
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
        const int each = row->gates[cell] ? tensors_before(&form, NULL) : 0;
        if (*k < 2 * each) {
            const whose of = whose_tensor(&form, 0, *k / each, *k % each);
            fill_name(&form, &of, name);
            return true;
        }
        *k -= 2 * each;
    }
    return false;
}

rnl_status rnl_layout_name_at(const rnl_layout *layout, int k, char *name, rnl_error *err)
{
    int left = k;
    for (int r = 0; left >= 0 && r < rnl_num_rows; r++)
        if (strcmp(rnl_rows[r].layout, layout->name) == 0 && find_name(&rnl_rows[r], &left, name))
            return RNL_OK;
    return rnl_fail(err, RNL_E_LAYOUT, "name %d does not exist in %s", k, layout->name);
}
