/* Which tensors does an RNN have in a layout? Their number, order, names and shapes. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* Write the text that replaces a placeholder of a name. */
static void placeholder(const rnl_form *form, char which, int64_t layer, int direction, char gate,
                        char *text, size_t size)
{
    const bool single = form->spec.num_layers == 1 && !(per(form, 'd') && form->spec.bidirectional);
    const char *way = direction ? "backward/" : "forward/";
    *text = '\0';
    switch (which) {
    case 'l': snprintf(text, size, "%" PRId64, layer); break;
    case 'r': snprintf(text, size, "%s", direction ? "_reverse" : ""); break;
    case 'g': snprintf(text, size, "%c", gate); break;
    default:
        if (!single)
            snprintf(text, size, "%" PRId64 "/%s", layer,
                     per(form, 'd') && form->spec.bidirectional ? way : "");
    }
}

static void fill_name(const rnl_form *form, const char *pattern, int64_t layer, int direction,
                      char gate, char *name)
{
    char text[40];
    size_t n = 0;
    for (const char *c = pattern; *c; c++) {
        if (*c == '{') {
            placeholder(form, c[1], layer, direction, gate, text, sizeof text);
            c += 2;
        } else {
            text[0] = *c;
            text[1] = '\0';
        }
        n += (size_t)snprintf(name + n, RNL_MAX_NAME - n, "%s", text);
    }
}

static int64_t walked_nelems(const rnl_form *form, const rnl_slot *slot)
{
    int64_t n = 0;
    do
        n += rnl_walk_nelems(form, slot, form->spec.num_layers, 0);
    while ((++slot)->continues);
    return n;
}

void rnl_form_tensor(const rnl_form *form, int64_t k, rnl_tensor *tensor)
{
    const int each = tensors_before(form, NULL);
    const int D = per(form, 'd') ? rnl_num_directions(&form->spec) : 1;
    assert(each > 0); /* every row has tensors */
    const int64_t layer = k / each / D;
    const int direction = (int)(k / each % D);
    int within = (int)(k % each);
    const rnl_slot *slot = form->row->slots;
    while (within >= slot_tensors(form, slot))
        within -= slot_tensors(form, slot++);
    fill_name(form, slot->name, layer, direction, rnl_form_gate_letter(form, slot->pieces, within),
              tensor->name);
    if (slot->walks) {
        tensor->ndim = 1;
        tensor->shape[0] = walked_nelems(form, slot);
    } else {
        tensor->ndim = rnl_slot_shape(form, slot, layer, tensor->shape);
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
    if (!status)
        rnl_form_tensor(&form, k, tensor);
    return status;
}
