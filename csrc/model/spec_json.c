/* Read an RNN from JSON: from what Spec.to_dict() returns in Python, and what `rnnlayout convert
 * model.pt lstm.bin` writes into lstm.bin.json. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/size.h"
#include "core/status.h"
#include "model/settings.h"
#include "model/spec.h"

enum { SCHEMA = 1 }; /* the only version of these texts */

static rnl_status wrong(rnl_error *err, const char *key, rnl_slice value, const char *need)
{
    char text[RNL_WORD];
    rnl_put_word(value.at, value.nbytes, text);
    return rnl_fail(err, RNL_E_SPEC, "%s is %s, need %s", key, text, need);
}

static rnl_status read_size(const char *key, rnl_slice value, int64_t *size, rnl_error *err)
{
    const bool negative = *value.at == '-';
    rnl_size n = rnl_size_of(0);
    for (size_t k = negative; k < value.nbytes; k++) {
        if (!rnl_is_digit(value.at[k]))
            return wrong(err, key, value, "a whole number");
        n = rnl_size_add(rnl_size_mul(n, rnl_size_of(10)), rnl_size_of(value.at[k] - '0'));
    }
    if (n.overflow)
        return wrong(err, key, value, "less than 2^63");
    *size = negative ? -n.n : n.n;
    return RNL_OK;
}

static rnl_status read_flag(const char *key, rnl_slice value, int *flag, rnl_error *err)
{
    *flag = rnl_json_is(value, "true") || rnl_json_is(value, "1");
    if (*flag || rnl_json_is(value, "false") || rnl_json_is(value, "0"))
        return RNL_OK;
    return wrong(err, key, value, "true or false");
}

static rnl_status read_name(rnl_family family, rnl_slice value, int *number, rnl_error *err)
{
    char word[RNL_WORD];
    if (family == RNL_NAMES_BIAS && (rnl_json_is(value, "true") || rnl_json_is(value, "false"))) {
        *number = rnl_json_is(value, "true") ? RNL_BIAS_DOUBLE : RNL_BIAS_NONE;
        return RNL_OK;
    }
    if (*value.at != '"')
        return wrong(err, rnl_family_key(family), value, "a name");
    rnl_json_word(value, word);
    return rnl_parse(family, word, number, err);
}

static rnl_status read_clip(rnl_slice value, rnl_rnn_options *options, rnl_error *err)
{
    const double clip = rnl_json_number(value);
    if (!(clip > 0))
        return wrong(err, "config has a cell_clip that", value, "a number greater than 0");
    options->clips = 1;
    options->clip_low = -clip;
    options->clip_high = clip;
    return RNL_OK;
}

/* ------------------------------------------------------------------------------- the object -- */

typedef enum kind { A_NAME, A_SIZE, A_FLAG } kind;

/* The fields of a spec. rnl_family_key() has the keys of names. */
static const struct field {
    const char *key;
    rnl_family family;
    kind kind;
    size_t at;
    bool required;
} fields[] = {
    {NULL, RNL_NAMES_CELL, A_NAME, offsetof(rnl_spec, cell), true},
    {"input_size", 0, A_SIZE, offsetof(rnl_spec, input_size), true},
    {"hidden_size", 0, A_SIZE, offsetof(rnl_spec, hidden_size), true},
    {"num_layers", 0, A_SIZE, offsetof(rnl_spec, num_layers), false},
    {"bidirectional", 0, A_FLAG, offsetof(rnl_spec, bidirectional), false},
    {"proj_size", 0, A_SIZE, offsetof(rnl_spec, proj_size), false},
    {NULL, RNL_NAMES_BIAS, A_NAME, offsetof(rnl_spec, bias), false},
    {NULL, RNL_NAMES_RESET, A_NAME, offsetof(rnl_spec, reset), false},
    {NULL, RNL_NAMES_ACTIVATION, A_NAME, offsetof(rnl_spec, recurrent_activation), false},
    {"skip_input", 0, A_FLAG, offsetof(rnl_spec, skip_input), false},
    {NULL, RNL_NAMES_DTYPE, A_NAME, offsetof(rnl_spec, dtype), false},
    {"peepholes", 0, A_FLAG, offsetof(rnl_spec, peepholes), false},
    {NULL, RNL_NAMES_STATE_ACTIVATION, A_NAME, offsetof(rnl_spec, activation), false},
};
enum { NUM_FIELDS = sizeof fields / sizeof *fields };

/* The other keys. To run the RNN, the keys from "layout" on are not needed. */
static const char *const other_keys[] = {"schema", "config",  "crc32", "layout",
                                         "nbytes", "regions", "entry", "batch_first"};
enum {
    KEY_SCHEMA = NUM_FIELDS,
    KEY_CONFIG = NUM_FIELDS + 1,
    KEY_CRC32 = NUM_FIELDS + 2,
    KEY_LAYOUT = NUM_FIELDS + 3,
    NUM_KEYS = NUM_FIELDS + sizeof other_keys / sizeof *other_keys
};

static const char *key_of(int k)
{
    return k >= NUM_FIELDS            ? other_keys[k - NUM_FIELDS]
           : fields[k].kind == A_NAME ? rnl_family_key(fields[k].family)
                                      : fields[k].key;
}

static rnl_status unknown_key(const char *key, rnl_error *err)
{
    char known[256] = "";
    for (int k = 0; k < NUM_FIELDS; k++)
        rnl_append_name(known, sizeof known, key_of(k));
    return rnl_fail(err, RNL_E_SPEC, "unknown field '%s'; a spec has %s", key, known);
}

static rnl_status read_field(const struct field *field, rnl_slice value, rnl_spec *spec,
                             rnl_error *err)
{
    char *const to = (char *)spec + field->at;
    int64_t size = 0;
    int number = 0;
    rnl_status status;
    switch (field->kind) {
    case A_SIZE:
        status = read_size(field->key, value, &size, err);
        memcpy(to, &size, sizeof size);
        return status;
    case A_FLAG: status = read_flag(field->key, value, &number, err); break;
    default: status = read_name(field->family, value, &number, err); break;
    }
    memcpy(to, &number, sizeof number); /* enums are as large as int */
    return status;
}

/* The values of the object, and the keys: bits 1 << k. */
typedef struct members {
    rnl_spec spec;
    rnl_rnn_options options;
    int64_t schema;
    rnl_slice config, crc32; /* nbytes 0: none */
    unsigned keys;
} members;

static rnl_status read_member(rnl_json *r, const char *key, void *arg)
{
    members *const to = arg;
    int k = 0;
    while (k < NUM_KEYS && strcmp(key, key_of(k)) != 0)
        k++;
    if (k == NUM_KEYS)
        return unknown_key(key, r->err);
    if (to->keys >> k & 1)
        return rnl_fail(r->err, RNL_E_SPEC, "%s occurs twice", key);
    to->keys |= 1U << k;
    rnl_slice value;
    const rnl_status status = rnl_json_value(r, &value);
    if (status || k >= KEY_LAYOUT)
        return status;
    switch (k) {
    case KEY_CONFIG: to->config = value; return RNL_OK;
    case KEY_CRC32: to->crc32 = value; return RNL_OK;
    case KEY_SCHEMA: return read_size(key, value, &to->schema, r->err);
    default: return read_field(&fields[k], value, &to->spec, r->err);
    }
}

static rnl_status check_members(const members *of, rnl_error *err)
{
    if (!(of->keys >> KEY_SCHEMA & 1))
        return rnl_fail(err, RNL_E_SPEC,
                        "schema is missing: neither rnnlayout convert nor Spec.to_dict() wrote"
                        " this text");
    if (of->schema != SCHEMA)
        return rnl_fail(err, RNL_E_SPEC, "schema is %" PRId64 "; rnnlayout %s reads %d", of->schema,
                        rnl_version(), SCHEMA);
    for (int k = 0; k < NUM_FIELDS; k++)
        if (fields[k].required && !(of->keys >> k & 1))
            return rnl_fail(err, RNL_E_SPEC, "%s is missing", key_of(k));
    return rnl_spec_check(&of->spec, err);
}

/* Read a setting of the RNN. */
static rnl_status read_setting(rnl_json *r, const char *key, void *arg)
{
    members *const to = arg;
    rnl_slice value;
    char text[RNL_WORD];
    const rnl_setting *const setting = rnl_setting_named(key);
    const rnl_status status = rnl_json_value(r, &value);
    if (status)
        return status;
    if (strcmp(key, "cell_clip") == 0)
        return read_clip(value, &to->options, r->err);
    if (setting && !rnl_setting_changes(setting, value, &to->spec))
        return RNL_OK;
    rnl_put_word(value.at, value.nbytes, text);
    return rnl_fail(r->err, RNL_E_LOSSY,
                    "the RNN is used with %s %s, which rnl_rnn_run() does not apply: delete it from"
                    " \"config\" if your program does, or if you want the RNN without it",
                    key, text);
}

/* Read the settings after all other members: settings need the spec. */
static rnl_status read_config(rnl_json r, members *to)
{
    if (to->config.nbytes == 0)
        return RNL_OK;
    r.at = to->config.at;
    return rnl_json_object(&r, "an object, which \"config\" is", read_setting, to);
}

/* Read the members, except for the settings. Leaves the reader at the end. */
static rnl_status read_members(rnl_json *r, members *to)
{
    const rnl_status status = rnl_json_document(r, "'{', as the spec is an object", read_member,
                                                to);
    return status ? status : check_members(to, r->err);
}

rnl_status rnl_spec_from_json(const char *text, size_t nbytes, rnl_spec *spec,
                              rnl_rnn_options *options, rnl_error *err)
{
    rnl_json r = {.start = text, .at = text, .end = text + nbytes, .err = err};
    members all = {.spec = rnl_spec_default(RNL_LSTM, 0, 0)};
    rnl_status status;
    if ((status = read_members(&r, &all)) || (status = read_config(r, &all)))
        return status;
    *spec = all.spec;
    *options = all.options;
    return RNL_OK;
}

/* ------------------------------------------------------------------------------ the weights -- */

/* The CRC-32 of zlib, gzip and zip. */
static uint32_t crc32_of(const unsigned char *bytes, size_t nbytes)
{
    enum { POLYNOMIAL = 0xedb88320 };
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t k = 0; k < 256; k++) {
        table[k] = k;
        for (int bit = 0; bit < 8; bit++)
            table[k] = table[k] >> 1 ^ (table[k] & 1 ? POLYNOMIAL : 0);
    }
    for (size_t k = 0; k < nbytes; k++)
        crc = crc >> 8 ^ table[(crc ^ bytes[k]) & 255];
    return ~crc;
}

rnl_status rnl_weights_check(const char *text, size_t text_nbytes, const void *weights,
                             size_t nbytes, rnl_error *err)
{
    rnl_json r = {.start = text, .at = text, .end = text + text_nbytes, .err = err};
    members all = {.spec = rnl_spec_default(RNL_LSTM, 0, 0)};
    char actual[RNL_WORD], recorded[RNL_WORD];
    const rnl_status status = read_members(&r, &all);
    if (status || all.crc32.nbytes == 0)
        return status;
    snprintf(actual, sizeof actual, "\"%08" PRIx32 "\"", crc32_of(weights, nbytes));
    if (rnl_json_is(all.crc32, actual))
        return RNL_OK;
    rnl_put_word(all.crc32.at, all.crc32.nbytes, recorded);
    return rnl_fail(err, RNL_E_LAYOUT,
                    "the CRC-32 of the weights is %s, and their JSON has %s: two programs wrote"
                    " these files at the same time, or one of the files is an old copy: write both"
                    " again",
                    actual, recorded);
}
