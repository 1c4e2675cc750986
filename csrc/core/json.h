/* A strict reader of JSON (RFC 8259). The reader allocates nothing, reads no byte after the text,
 * and walks through an object member by member; the values are slices of the text. */
#ifndef RNL_CORE_JSON_H
#define RNL_CORE_JSON_H

#include <stdbool.h>

#include "rnnlayout.h"

enum { RNL_WORD = 128 }; /* bytes; all keys and names are shorter */

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

void rnl_json_skip_spaces(rnl_json *r);

/* Read any value. */
rnl_status rnl_json_value(rnl_json *r, rnl_slice *value);

/* Read an object: call read_member for each member, which has to read the member's value. need: for
 * the error if the next value is not an object. */
typedef rnl_status rnl_json_member(rnl_json *r, const char *key, void *arg);
rnl_status rnl_json_object(rnl_json *r, const char *need, rnl_json_member *read_member, void *arg);

/* Read a whole text that is an object; the byte order mark of editors of Windows may precede it. */
rnl_status rnl_json_document(rnl_json *r, const char *need, rnl_json_member *read_member,
                             void *arg);

/* Read an array likewise: call read_element for each element. */
typedef rnl_status rnl_json_element(rnl_json *r, void *arg);
rnl_status rnl_json_array(rnl_json *r, const char *need, rnl_json_element *read_element, void *arg);

/* Return the value of a number; NAN if the value is not a number, or is as long as a word. */
double rnl_json_number(rnl_slice value);

static inline bool rnl_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Is `text` the text of a value? */
bool rnl_json_is(rnl_slice value, const char *text);

/* Copy text for a message or a comparison: cut to a word, with '?' for all but printable ASCII. */
void rnl_put_word(const char *from, size_t nbytes, char word[RNL_WORD]);

/* Copy the text of a string likewise. Of the escapes only printable ASCII is decoded. */
void rnl_json_word(rnl_slice string, char word[RNL_WORD]);

#endif
