/* A strict reader of JSON (RFC 8259). The reader allocates nothing, reads no byte after the text,
 * and goes through an object member by member; the values are slices of the text. */
#ifndef RNL_CORE_JSON_H
#define RNL_CORE_JSON_H

#include <stdbool.h>

#include "rnnlayout.h"

enum { RNL_WORD = 64 }; /* bytes; all keys and names are shorter */

/* A text and the position of the reader. Errors are RNL_E_SPEC. */
typedef struct rnl_json {
    const char *start, *at, *end;
    rnl_error *err;
} rnl_json;

/* The text of a value. */
typedef struct rnl_slice {
    const char *at;
    size_t nbytes;
} rnl_slice;

/* Fail because the next byte is not `need`. */
rnl_status rnl_json_malformed(const rnl_json *r, const char *need);

/* Skip the next byte and return true, if the byte is `wanted`. */
bool rnl_json_take(rnl_json *r, char wanted);

void rnl_json_skip_spaces(rnl_json *r);

/* Go to the value of the next member of an object; the opening bracket has been read. *exists:
 * false at the closing bracket. */
rnl_status rnl_json_next(rnl_json *r, bool first, rnl_slice *key, bool *exists);

/* Read any value. */
rnl_status rnl_json_value(rnl_json *r, rnl_slice *value);

/* Copy text for a message or a comparison: cut to a word, with '?' for all but printable ASCII. */
void rnl_put_word(const char *from, size_t nbytes, char word[RNL_WORD]);

/* Copy the text of a string likewise. Of the escapes only printable ASCII is decoded. */
void rnl_json_word(rnl_slice string, char word[RNL_WORD]);

#endif
