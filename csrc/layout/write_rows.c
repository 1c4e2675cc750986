/* Write the rows of a layout as JSON: what rnl_layout_from_json() reads. */
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "layout/user_rows.h"

/* A text that is written; nbytes counts also what did not fit. */
typedef struct writer {
    char *text;
    size_t size, nbytes;
} writer;

static void put(writer *to, const char *format, ...) RNL_PRINTF(2, 3);

static void put(writer *to, const char *format, ...)
{
    va_list args;
    const size_t at = to->nbytes < to->size ? to->nbytes : to->size;
    va_start(args, format);
    const int nbytes = vsnprintf(to->text + at, to->size - at, format, args);
    va_end(args);
    to->nbytes += nbytes > 0 ? (size_t)nbytes : 0;
}

/* Write characters of a string of JSON. */
static void put_string(writer *to, const char *from, size_t nbytes)
{
    for (size_t k = 0; k < nbytes; k++)
        put(to, from[k] == '"' || from[k] == '\\' ? "\\%c" : "%c", from[k]);
}

/* ------------------------------------------------------------------------------- a tensor -- */

static void put_gate_names(writer *to, const char *names)
{
    const char *separator = ":";
    for (const char *c = names; *c; c += strspn(c, " ")) {
        const size_t word = strcspn(c, " ");
        put(to, "%s%c=", separator, *c);
        put_string(to, c + 2, word - 2);
        separator = " ";
        c += word;
    }
}

static void put_name(writer *to, const rnl_slot *slot)
{
    for (const char *c = slot->name; *c; c++) {
        const size_t braces = strcspn(c, "}");
        if (*c != '{') {
            put_string(to, c, 1);
            continue;
        }
        switch (c[1]) {
        case 's': break; /* follows from the other parts of the name */
        case 'l': put(to, "{layer}"); break;
        case 'p': put(to, "{pseudo_layer}"); break;
        case 'd':
            put(to, "{direction:");
            put_string(to, c + 3, braces - 3);
            put(to, "}");
            break;
        default:
            put(to, "{gate");
            put_gate_names(to, slot->gate_names ? slot->gate_names : "");
            put(to, "}");
            break;
        }
        c += braces;
    }
}

void rnl_slot_name_as_written(const rnl_slot *slot, char *text, size_t nbytes)
{
    writer to = {text, nbytes, 0};
    put_name(&to, slot);
}

/* Write the axes [from, to) of a piece as a product. */
static void put_product(writer *to, const rnl_row *row, const rnl_piece *piece, const char *from,
                        const char *end)
{
    const bool projects = rnl_row_has_role(row, RNL_P);
    if (from == end)
        put(to, "1");
    for (const char *c = from; c < end; c++) {
        const char *word = "H";
        switch (*c) {
        case 'l': word = "1"; break;
        case 'd': word = "D"; break;
        case 'g': word = "G"; break;
        case 'o': word = piece->role == RNL_P ? "P" : "H"; break;
        default:
            if (piece->role == RNL_W)
                word = "I";
            else if (piece->role == RNL_R)
                word = projects ? "P" : "H_in";
            break;
        }
        put(to, c > from ? "*%s" : "%s", word);
    }
}

static void put_shape(writer *to, const rnl_form *form, const rnl_slot *slot)
{
    const int num_pieces = rnl_num_pieces(slot);
    put(to, " (");
    for (const char *from = slot->shape;; from++) {
        const char *const end = from + strcspn(from, ",");
        for (int k = 0; *from == '+' && k < num_pieces; k++) {
            const rnl_piece *const piece = rnl_form_piece(form, slot, k);
            const char *const fill = piece->fill ? piece->fill : "";
            put(to, k ? " + " : "");
            put_product(to, form->row, piece, fill, fill + strlen(fill));
        }
        if (*from != '+')
            put_product(to, form->row, slot->pieces, from, end);
        from = end;
        if (!*from)
            break;
        put(to, ", ");
    }
    put(to, ")");
}

static void put_slot(writer *to, const rnl_form *form, const rnl_slot *slot)
{
    put(to, "\"");
    for (int k = 0; k < rnl_num_pieces(slot); k++) {
        const rnl_piece *const piece = rnl_form_piece(form, slot, k);
        put(to, "%s%s", k ? " + " : "", rnl_name(RNL_NAMES_ROLE, (int)piece->role));
        if (piece->gates)
            put(to, "[%s]", piece->gates);
    }
    put_shape(to, form, slot);
    put(to, "%s%s\"",
        !slot->repeats               ? ""
        : strchr(slot->repeats, 'd') ? " per layer and direction"
                                     : " per layer",
        slot->ravels ? " raveled" : "");
}

static void put_tensors(writer *to, const rnl_form *form)
{
    put(to, ", \"tensors\": {");
    for (const rnl_slot *slot = form->row->slots; slot->name; slot++) {
        put(to, slot == form->row->slots ? "\"" : ", \"");
        put_name(to, slot);
        put(to, slot[1].continues ? "\": [" : "\": ");
        put_slot(to, form, slot);
        for (; slot[1].continues; slot++) {
            put(to, ", ");
            put_slot(to, form, slot + 1);
            put(to, slot[2].continues ? "" : "]");
        }
    }
    put(to, "}");
}

/* ----------------------------------------------------------------------------------- a row -- */

/* Write a field with the names of the bits: one name, or a list. */
static void put_names(writer *to, rnl_family family, unsigned bits)
{
    const char *separator = bits & (bits - 1) ? "[" : "";
    put(to, ", \"%s\": ", rnl_family_key(family));
    for (int k = 0; bits >> k; k++)
        if (bits >> k & 1) {
            put(to, "%s\"%s\"", separator, rnl_name(family, k));
            separator = ", ";
        }
    put(to, bits & (bits - 1) ? "]" : "");
}

static void put_number(writer *to, const char *key, double number)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", number);
    char *const point = strstr(text, localeconv()->decimal_point);
    if (point)
        *point = '.';
    put(to, ", \"%s\": %s", key, text);
}

static void put_row(writer *to, const rnl_layout *layout, const rnl_row *row)
{
    const char *separator = "";
    const rnl_form form = rnl_form_of_row(layout, row);
    put(to, "\"gates\": {");
    for (int cell = 0; cell < RNL_NUM_CELLS; cell++)
        if (row->gates[cell]) {
            put(to, "%s\"%s\": \"%s\"", separator, rnl_name(RNL_NAMES_CELL, cell),
                row->gates[cell]);
            separator = ", ";
        }
    put(to, "}");
    if (row->gates[RNL_GRU]) {
        put_names(to, RNL_NAMES_RESET, row->resets);
        put(to, ", \"z\": \"%s\"", form.z == RNL_Z_TAKES_CANDIDATE ? "candidate" : "state");
    }
    put_tensors(to, &form);
    if (row->activations != 1u << RNL_SIGMOID)
        put_names(to, RNL_NAMES_ACTIVATION, row->activations);
    if (row->has_relu)
        put_names(to, RNL_NAMES_STATE_ACTIVATION, 1u << RNL_TANH | 1u << RNL_RELU);
    if (row->bias_always || row->bias_by_mode)
        put(to, ", \"biases\": \"%s\"", row->bias_always ? "always" : "by_mode");
    if (form.forget_bias != 0 && row->gates[RNL_LSTM])
        put_number(to, "forget_bias", form.forget_bias);
}

rnl_status rnl_layout_to_json(const rnl_layout *layout, char *text, size_t nbytes, rnl_error *err)
{
    writer to = {text, nbytes, 0};
    const bool is_list = layout->num_rows > 1;
    put(&to, "{");
    if (layout->user_rows && strcmp(layout->name, RNL_UNNAMED) != 0)
        put(&to, "\"name\": \"%s\", ", layout->name);
    for (int k = 0; k < layout->num_rows; k++) {
        if (is_list)
            put(&to, "%s{", k ? ", " : "\"rows\": [");
        put_row(&to, layout, &layout->rows[k]);
        if (is_list)
            put(&to, "}");
    }
    put(&to, "%s}", is_list ? "]" : "");
    if (to.nbytes < nbytes)
        return RNL_OK;
    return rnl_fail(err, RNL_E_LAYOUT, "the rows of %s have %zu bytes as JSON, the buffer has %zu",
                    layout->name, to.nbytes, nbytes);
}
