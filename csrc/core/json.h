/* A strict reader of JSON (RFC 8259), which allocates nothing and reads no byte after the text. It
 * goes through one object, member by member; the values are slices of the text. */
#ifndef RNL_CORE_JSON_H
#define RNL_CORE_JSON_H

#include <stdbool.h>

#include "rnnlayout.h"

enum { RNL_WORD = 64 }; /* bytes; no key and no name is so long */

/* The text that is not read yet. Errors are RNL_E_SPEC. */
typedef struct rnl_json {
    const char *start, *at, *end;
    rnl_error *err;
} rnl_json;

/* One value, as it is in the text. */
typedef struct rnl_slice {
    const char *at;
    size_t nbytes;
} rnl_slice;

/* Fail because the next byte is not what is needed. */
rnl_status rnl_json_malformed(const rnl_json *r, const char *need);

/* Go on if the next byte is this one. */
bool rnl_json_take(rnl_json *r, char wanted);

void rnl_json_skip_spaces(rnl_json *r);

/* Go to the value of the next member of an object, whose bracket was taken. *more: there is one. */
rnl_status rnl_json_next(rnl_json *r, bool first, rnl_slice *key, bool *more);

/* Read any value. */
rnl_status rnl_json_value(rnl_json *r, rnl_slice *value);

/* Copy text for a message or a comparison: cut to a word, with '?' for all but printable ASCII. */
void rnl_put_word(const char *from, size_t nbytes, char word[RNL_WORD]);

/* The same of the text of a string. Of the escapes it knows those of printable ASCII. */
void rnl_json_word(rnl_slice string, char word[RNL_WORD]);

#endif
