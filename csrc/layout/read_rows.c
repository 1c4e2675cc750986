/* Read the rows of a layout from JSON: the fields of a row. read_slot.c reads the tensors. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "layout/user_rows.h"

enum { SCHEMA = 1 }; /* the only version of these texts */

typedef enum field {
    F_SCHEMA,
    F_NAME,
    F_ROWS,
    F_GATES,
    F_TENSORS,
    F_RESET,
    F_Z,
    F_RECURRENT_ACTIVATION,
    F_ACTIVATION,
    F_BIASES,
    F_FORGET_BIAS,
    NUM_FIELDS
} row_field;

static const char *const field_names[NUM_FIELDS] = {
    "schema",     "name",   "rows",       "gates", "tensors", "reset", "z", "recurrent_activation",
    "activation", "biases", "forget_bias"};

rnl_status rnl_wrong_field(const rnl_row_reader *reader, const char *format, ...)
{
    char text[700], row[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (reader->in_rows)
        snprintf(row, sizeof row, "rows[%d].", reader->num_rows - 1);
    return rnl_fail(reader->err, RNL_E_LAYOUT, "%s%s: %s", row, reader->place, text);
}

const char *rnl_keep_text(rnl_row_reader *reader, const char *text)
{
    rnl_user_rows *const user_rows = reader->user_rows;
    const size_t nbytes = strlen(text) + 1;
    assert(nbytes <= sizeof user_rows->texts - user_rows->used); /* see RNL_USER_TEXTS */
    char *const kept = user_rows->texts + user_rows->used;
    memcpy(kept, text, nbytes);
    user_rows->used += nbytes;
    return kept;
}

static void set_place(rnl_row_reader *reader, const char *name, const char *member)
{
    snprintf(reader->place, sizeof reader->place, "%s%s%s", name, *member ? "." : "", member);
}

/* Read a string of at most RNL_WORD - 2 bytes. need: for the error. */
static rnl_status read_word(rnl_row_reader *reader, rnl_json *r, const char *need, char *word)
{
    rnl_slice string;
    const rnl_status status = rnl_json_value(r, &string);
    if (status)
        return status;
    if (*string.at == '"')
        rnl_json_word(string, word);
    else
        rnl_put_word(string.at, string.nbytes, word);
    if (*string.at != '"' || strlen(word) == RNL_WORD - 1)
        return rnl_wrong_field(reader, "%.40s%s, need %s", word, strlen(word) > 40 ? " ..." : "",
                               need);
    return RNL_OK;
}

/* ------------------------------------------------------------------ gates, names, numbers -- */

/* Are the letters those of the cell's gates, each once? */
static bool are_gates(const char *letters, const char *gates)
{
    for (const char *g = gates; *g; g++)
        if (!strchr(letters, *g))
            return false;
    return strlen(letters) == strlen(gates);
}

static rnl_status read_gates(rnl_json *r, const char *key, void *arg)
{
    rnl_row_reader *const reader = arg;
    char letters[RNL_WORD];
    int cell = 0;
    set_place(reader, "gates", key);
    while (cell < RNL_NUM_CELLS && strcmp(rnl_name(RNL_NAMES_CELL, cell), key) != 0)
        cell++;
    if (cell == RNL_NUM_CELLS)
        return rnl_wrong_field(reader,
                               "no cell has this name, need lstm, gru, rnn_tanh or rnn_relu");
    if (reader->row->gates[cell])
        return rnl_wrong_field(reader, "occurs twice");
    const char *const gates = rnl_cell_facts_of((rnl_cell)cell)->gates;
    const rnl_status status = read_word(reader, r, "a string with the gates in memory order",
                                        letters);
    if (status)
        return status;
    if (!are_gates(letters, gates))
        return rnl_wrong_field(reader, "'%.20s', need the letters %s, each once, in memory order%s",
                               letters, gates,
                               cell == RNL_LSTM  ? "; g is the candidate, with tanh"
                               : cell == RNL_GRU ? "; n is the candidate, with tanh"
                                                 : "");
    reader->row->gates[cell] = rnl_keep_text(reader, letters);
    return RNL_OK;
}

/* A field whose values are names: one, or a list. */
typedef struct name_list {
    rnl_row_reader *reader;
    rnl_family family;
    unsigned bits; /* 1 << number of the name */
} name_list;

static rnl_status read_listed_name(rnl_json *r, void *arg)
{
    name_list *const list = arg;
    char word[RNL_WORD];
    rnl_error unknown;
    int number;
    const rnl_status status = read_word(list->reader, r, "a name, or a list of names", word);
    if (status)
        return status;
    if (rnl_parse(list->family, word, &number, &unknown) != RNL_OK)
        return rnl_fail(list->reader->err, RNL_E_LAYOUT, "%s", unknown.text);
    list->bits |= 1u << number;
    return RNL_OK;
}

static rnl_status read_names(rnl_row_reader *reader, rnl_json *r, rnl_family family, unsigned *bits)
{
    name_list list = {reader, family, 0};
    const rnl_status status = r->at < r->end && *r->at == '['
                                  ? rnl_json_array(r, "'['", read_listed_name, &list)
                                  : read_listed_name(r, &list);
    if (!status && !list.bits)
        return rnl_wrong_field(reader, "the list is empty");
    *bits = list.bits;
    return status;
}

static rnl_status read_choice(rnl_row_reader *reader, rnl_json *r, const char *const *choices,
                              const char *need, int *choice)
{
    char word[RNL_WORD];
    const rnl_status status = read_word(reader, r, need, word);
    if (status)
        return status;
    for (*choice = 0; choices[*choice]; ++*choice)
        if (strcmp(choices[*choice], word) == 0)
            return RNL_OK;
    return rnl_wrong_field(reader, "'%.40s', need %s", word, need);
}

static rnl_status read_number(rnl_row_reader *reader, rnl_json *r, double *number)
{
    rnl_slice slice;
    char text[RNL_WORD];
    const rnl_status status = rnl_json_value(r, &slice);
    if (status)
        return status;
    *number = rnl_json_number(slice);
    rnl_put_word(slice.at, slice.nbytes, text);
    return isfinite(*number) ? RNL_OK
                             : rnl_wrong_field(reader, "%.40s, need a finite number", text);
}

/* ----------------------------------------------------------------------------- the tensors -- */

/* A tensor that is read: the name, and the number of its parts so far. */
typedef struct tensor_parts {
    rnl_row_reader *reader;
    const char *name;
    int num_parts;
} tensor_parts;

static rnl_status read_part(rnl_json *r, void *arg)
{
    tensor_parts *const tensor = arg;
    rnl_row_reader *const reader = tensor->reader;
    char text[RNL_WORD];
    if (reader->num_slots == RNL_MAX_USER_SLOTS)
        return rnl_wrong_field(reader,
                               "a row has at most %d tensors; {gate} in a name stands for a"
                               " tensor per gate",
                               RNL_MAX_USER_SLOTS);
    rnl_status status = read_word(reader, r, "a string as \"W (G*H, I)\"", text);
    rnl_slot *const slot = &reader->row->slots[reader->num_slots];
    if (status || (status = rnl_read_slot(reader, text, slot)) ||
        (status = rnl_read_slot_name(reader, tensor->name, slot)))
        return status;
    slot->continues = tensor->num_parts++ > 0;
    if (slot->continues && (!slot->repeats || !slot[-1].repeats))
        return rnl_wrong_field(reader,
                               "several parts that follow one another: need \"per layer\" or"
                               " \"per layer and direction\" after the shape of each");
    reader->num_slots++;
    return RNL_OK;
}

static rnl_status read_tensor(rnl_json *r, const char *key, void *arg)
{
    tensor_parts tensor = {arg, key, 0};
    set_place(tensor.reader, "tensors", key);
    if (r->at == r->end || *r->at != '[')
        return read_part(r, &tensor);
    const rnl_status status = rnl_json_array(r, "'['", read_part, &tensor);
    return status || tensor.num_parts ? status
                                      : rnl_wrong_field(tensor.reader, "the list is empty");
}

/* --------------------------------------------------------------------------------- the row -- */

static rnl_status missing(rnl_row_reader *reader, row_field field, const char *need)
{
    set_place(reader, field_names[field], "");
    return rnl_wrong_field(reader, "missing, need %s", need);
}

static rnl_status check_fields(rnl_row_reader *reader)
{
    rnl_row *const row = reader->row;
    const bool gru = row->gates[RNL_GRU] != NULL;
    static const char z_forms[] = "\"state\" if h' = z h + (1 - z) n, or \"candidate\" if h' = (1 -"
                                  " z) h + z n";
    static const char resets[] = "\"after\" if the candidate is tanh(W x + r * (R h)), or"
                                 " \"before\" if it is tanh(W x + R (r * h))";
    if (!(row->gates[0] || row->gates[1] || row->gates[2] || row->gates[3]))
        return missing(reader, F_GATES,
                       "the gates of each cell in memory order, as in {\"lstm\":"
                       " \"ifgo\"}");
    if (!reader->num_slots)
        return missing(reader, F_TENSORS,
                       "the tensors, as in {\"weight_ih\": \"W (G*H, I)\", ...}");
    if (gru != (reader->fields >> F_Z & 1) || gru != (reader->fields >> F_RESET & 1)) {
        const row_field wrong = gru != (reader->fields >> F_Z & 1) ? F_Z : F_RESET;
        if (gru)
            return missing(reader, wrong, wrong == F_Z ? z_forms : resets);
        set_place(reader, field_names[wrong], "");
        return rnl_wrong_field(reader, "only a row with a gru has it");
    }
    const bool always = row->bias_always && rnl_row_has_role(row, RNL_BW);
    set_place(reader, "forget_bias", "");
    if (row->forget_bias != 0 && (!row->gates[RNL_LSTM] || !always))
        return rnl_wrong_field(reader,
                               "needs an lstm with a tensor of bW and \"biases\": \"always\","
                               " to which it is added at run time");
    set_place(reader, "biases", "");
    if ((row->bias_always || row->bias_by_mode) && !rnl_row_has_role(row, RNL_BW) &&
        !rnl_row_has_role(row, RNL_BR))
        return rnl_wrong_field(reader, "no tensor has bW or bR");
    return RNL_OK;
}

/* Complete the row that was read: derive `per` from the slots, and check. */
static rnl_status finish_row(rnl_row_reader *reader)
{
    static const char *const apart[] = {"", "l", "d", "ld"};
    char letters[2 * RNL_WORD];
    rnl_row *const row = reader->row;
    const rnl_slot *const slot = row->slots;
    row->layout = reader->user_rows->name;
    row->per = "";
    rnl_status status = check_fields(reader);
    if (status)
        return status;
    rnl_axes_of_piece(slot, slot->pieces, letters, sizeof letters);
    const bool repeats_d = slot->repeats && strchr(slot->repeats, 'd');
    row->per = apart[!slot->repeats + 2 * !(repeats_d || strchr(letters, 'd'))];
    return rnl_check_axes(reader);
}

static rnl_status lacks_default(rnl_row_reader *reader, const char *name)
{
    return rnl_wrong_field(reader, "need %s, or a list with it", name);
}

static rnl_status read_row(rnl_json *r, void *arg);

static rnl_status read_field(rnl_row_reader *reader, rnl_json *r, row_field field)
{
    static const char *const z_forms[] = {"state", "candidate", NULL};
    static const char *const biases[] = {"optional", "always", "by_mode", NULL};
    char word[RNL_WORD];
    rnl_row *const row = reader->row;
    rnl_status status;
    double number = 0;
    unsigned bits = 0;
    int choice = 0;
    switch (field) {
    case F_SCHEMA:
        status = read_number(reader, r, &number);
        return status || number == SCHEMA ? status
                                          : rnl_wrong_field(reader, "%g, rnnlayout %s reads %d",
                                                            number, rnl_version(), SCHEMA);
    case F_NAME:
        if ((status = read_word(reader, r, "a name", word)))
            return status;
        for (const char *c = word; *c; c++)
            if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
                *word = '\0';
        rnl_layout same;
        rnl_error unknown;
        if (!*word || strlen(word) >= RNL_MAX_USER_NAME ||
            rnl_layout_named(word, &same, &unknown) == RNL_OK)
            return rnl_wrong_field(reader,
                                   "need 1 to %d letters, digits, -, _ or ., and not the"
                                   " name of another layout",
                                   RNL_MAX_USER_NAME - 1);
        memcpy(reader->user_rows->name, word, strlen(word) + 1);
        return RNL_OK;
    case F_ROWS:
        status = rnl_json_array(r, "'[', as the rows are a list", read_row, reader);
        return status || reader->num_rows ? status : rnl_wrong_field(reader, "the list is empty");
    case F_GATES: return rnl_json_object(r, "'{', as gates is an object", read_gates, reader);
    case F_TENSORS: return rnl_json_object(r, "'{', as tensors is an object", read_tensor, reader);
    case F_RESET: return read_names(reader, r, RNL_NAMES_RESET, &row->resets);
    case F_Z:
        status = read_choice(reader, r, z_forms, "state or candidate", &choice);
        row->z = choice ? RNL_Z_TAKES_CANDIDATE : RNL_Z_KEEPS_STATE;
        return status;
    case F_RECURRENT_ACTIVATION:
        status = read_names(reader, r, RNL_NAMES_ACTIVATION, &row->activations);
        return status || row->activations >> RNL_SIGMOID & 1 ? status
                                                             : lacks_default(reader, "sigmoid");
    case F_ACTIVATION:
        status = read_names(reader, r, RNL_NAMES_STATE_ACTIVATION, &bits);
        if (!status && !(bits >> RNL_TANH & 1))
            return lacks_default(reader, "tanh");
        row->has_relu = !status && bits >> RNL_RELU & 1;
        return status;
    case F_BIASES:
        status = read_choice(reader, r, biases, "optional, always or by_mode", &choice);
        row->bias_always = choice == 1;
        row->bias_by_mode = choice == 2;
        return status;
    default: return read_number(reader, r, &row->forget_bias);
    }
}

static rnl_status read_member(rnl_json *r, const char *key, void *arg)
{
    rnl_row_reader *const reader = arg;
    char all[256] = "";
    int k = 0;
    while (k < NUM_FIELDS && strcmp(field_names[k], key) != 0)
        k++;
    for (int f = 0; f < NUM_FIELDS; f++)
        rnl_append_name(all, sizeof all, field_names[f]);
    set_place(reader, key, "");
    if (k == NUM_FIELDS)
        return rnl_wrong_field(reader, "unknown field, need one of: %s", all);
    if (reader->fields >> k & 1)
        return rnl_wrong_field(reader, "occurs twice");
    reader->fields |= 1u << k;
    if (reader->in_rows && k < F_GATES)
        return rnl_wrong_field(reader, "a field of the layout, not of a row");
    if (!reader->in_rows && reader->fields >> F_ROWS & 1 && reader->fields >> F_GATES)
        return rnl_wrong_field(reader, "beside rows: the fields of a row belong into a row");
    return read_field(reader, r, (row_field)k);
}

static rnl_status read_row(rnl_json *r, void *arg)
{
    rnl_row_reader *const reader = arg;
    const unsigned fields_of_layout = reader->fields;
    if (reader->num_rows == RNL_MAX_USER_ROWS)
        return rnl_wrong_field(reader, "more than %d rows", RNL_MAX_USER_ROWS);
    reader->row = &reader->user_rows->rows[reader->num_rows++];
    reader->in_rows = true;
    reader->fields = 0;
    reader->num_slots = 0;
    rnl_status status = rnl_json_object(r, "'{', as a row is an object", read_member, reader);
    if (!status)
        status = finish_row(reader);
    reader->in_rows = false;
    reader->fields = fields_of_layout;
    return status;
}

static rnl_status read_layout(rnl_json *r, rnl_row_reader *reader)
{
    const rnl_status status = rnl_json_document(r, "'{', as the layout is an object", read_member,
                                                reader);
    if (status || reader->num_rows)
        return status;
    reader->num_rows = 1;
    return finish_row(reader);
}

rnl_status rnl_layout_from_json(const char *text, size_t nbytes, rnl_layout *layout, rnl_error *err)
{
    if (nbytes > RNL_MAX_LAYOUT_JSON)
        return rnl_fail(err, RNL_E_LAYOUT, "the JSON of a layout has %zu bytes, need at most %d",
                        nbytes, RNL_MAX_LAYOUT_JSON);
    rnl_user_rows *const user_rows = calloc(1, sizeof *user_rows);
    if (!user_rows)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for the rows of a layout");
    strcpy(user_rows->name, RNL_UNNAMED);
    rnl_json r = {.start = text, .at = text, .end = text + nbytes, .err = err};
    rnl_row_reader reader = {.user_rows = user_rows, .row = user_rows->rows, .err = err};
    for (int k = 0; k < RNL_MAX_USER_ROWS; k++)
        user_rows->rows[k].activations = 1u << RNL_SIGMOID;
    rnl_status status = read_layout(&r, &reader);
    const rnl_layout result = {.name = user_rows->name,
                               .rows = user_rows->rows,
                               .num_rows = reader.num_rows,
                               .user_rows = user_rows};
    if (!status)
        status = rnl_check_tiles(&result, err);
    if (status)
        free(user_rows);
    else
        *layout = result;
    return status;
}

void rnl_layout_free(rnl_layout *layout)
{
    if (layout)
        free(layout->user_rows);
}
