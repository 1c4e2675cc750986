#include "core/json.h"

#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

enum { MOST_DEPTH = 32 }; /* of arrays and objects; rnnlayout writes at most 5 levels */

void rnl_put_word(const char *from, size_t nbytes, char word[RNL_WORD])
{
    size_t k = 0;
    for (; k < nbytes && k < RNL_WORD - 1; k++)
        word[k] = (char)(from[k] < ' ' || from[k] > '~' ? '?' : from[k]);
    word[k] = '\0';
}

rnl_status rnl_json_malformed(const rnl_json *r, const char *need)
{
    char text[RNL_WORD];
    rnl_put_word(r->at, r->at < r->end, text);
    if (r->at == r->end)
        return rnl_fail(r->err, RNL_E_SPEC, "the JSON ends after byte %td, need %s: is it cut off?",
                        r->at - r->start, need);
    return rnl_fail(r->err, RNL_E_SPEC, "the JSON is malformed: byte %td is %s, need %s",
                    r->at - r->start, text, need);
}

static char peek(const rnl_json *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(rnl_json *r, char wanted)
{
    if (r->at == r->end || *r->at != wanted)
        return false;
    r->at++;
    return true;
}

void rnl_json_skip_spaces(rnl_json *r)
{
    while (take(r, ' ') || take(r, '\n') || take(r, '\r') || take(r, '\t'))
        ;
}

/* Return the value of a hexadecimal digit; -1: c is not a hexadecimal digit. */
static int hex_value(char c)
{
    return rnl_is_digit(c)        ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static rnl_status skip_digits(rnl_json *r)
{
    if (!rnl_is_digit(peek(r)))
        return rnl_json_malformed(r, "a digit");
    while (rnl_is_digit(peek(r)))
        r->at++;
    return RNL_OK;
}

static rnl_status skip_number(rnl_json *r)
{
    rnl_status status = RNL_OK;
    (void)take(r, '-');
    if (!take(r, '0'))
        status = skip_digits(r);
    if (!status && take(r, '.'))
        status = skip_digits(r);
    if (!status && (take(r, 'e') || take(r, 'E'))) {
        if (!take(r, '-'))
            (void)take(r, '+');
        status = skip_digits(r);
    }
    return status;
}

static rnl_status skip_escape(rnl_json *r)
{
    if (!peek(r) || !strchr("\"\\/bfnrtu", peek(r)))
        return rnl_json_malformed(r, "a letter that JSON allows after a backslash");
    if (*r->at++ != 'u')
        return RNL_OK;
    for (int k = 0; k < 4; k++, r->at++)
        if (hex_value(peek(r)) < 0)
            return rnl_json_malformed(r, "a hexadecimal digit");
    return RNL_OK;
}

static rnl_status skip_string(rnl_json *r)
{
    rnl_status status = RNL_OK;
    if (!take(r, '"'))
        return rnl_json_malformed(r, "a string");
    while (!status && !take(r, '"')) {
        if (r->at == r->end || (unsigned char)*r->at < ' ')
            return rnl_json_malformed(r, "the end of a string");
        if (*r->at++ == '\\')
            status = skip_escape(r);
    }
    return status;
}

static rnl_status skip_literal(rnl_json *r, const char *literal)
{
    const size_t nbytes = strlen(literal);
    if ((size_t)(r->end - r->at) < nbytes || memcmp(r->at, literal, nbytes) != 0)
        return rnl_json_malformed(r, "a value");
    r->at += nbytes;
    return RNL_OK;
}

/* Go to the next member of an array or object; the opening bracket has been read. *exists: false at
 * the closing bracket. */
static rnl_status next_member(rnl_json *r, char close, bool first, bool *exists)
{
    rnl_json_skip_spaces(r);
    *exists = !take(r, close);
    if (*exists && !first) {
        if (!take(r, ','))
            return rnl_json_malformed(r, close == '}' ? "',' or '}'" : "',' or ']'");
        rnl_json_skip_spaces(r);
    }
    return RNL_OK;
}

/* Go to the value of the next member of an object. */
static rnl_status next_value(rnl_json *r, bool first, rnl_slice *key, bool *exists)
{
    rnl_status status = next_member(r, '}', first, exists);
    if (status || !*exists)
        return status;
    key->at = r->at;
    if ((status = skip_string(r)))
        return status;
    key->nbytes = (size_t)(r->at - key->at);
    rnl_json_skip_spaces(r);
    if (!take(r, ':'))
        return rnl_json_malformed(r, "':'");
    rnl_json_skip_spaces(r);
    return RNL_OK;
}

static rnl_status skip_value(rnl_json *r, int depth) /* NOLINT(misc-no-recursion): MOST_DEPTH */
{
    rnl_status status = RNL_OK;
    rnl_slice key;
    bool exists = true;
    switch (peek(r)) {
    case '"': return skip_string(r);
    case 't': return skip_literal(r, "true");
    case 'f': return skip_literal(r, "false");
    case 'n': return skip_literal(r, "null");
    case '[':
    case '{': break;
    default:
        return peek(r) == '-' || rnl_is_digit(peek(r)) ? skip_number(r)
                                                       : rnl_json_malformed(r, "a value");
    }
    if (depth == MOST_DEPTH)
        return rnl_json_malformed(r, "a value that is not in so many arrays and objects");
    const bool is_object = *r->at++ == '{';
    for (bool first = true; !status && exists; first = false) {
        status = is_object ? next_value(r, first, &key, &exists)
                           : next_member(r, ']', first, &exists);
        if (!status && exists)
            status = skip_value(r, depth + 1);
    }
    return status;
}

rnl_status rnl_json_value(rnl_json *r, rnl_slice *value)
{
    value->at = r->at;
    const rnl_status status = skip_value(r, 1);
    value->nbytes = (size_t)(r->at - value->at);
    return status;
}

rnl_status rnl_json_object(rnl_json *r, const char *need, rnl_json_member *read_member, void *arg)
{
    rnl_slice key;
    bool exists = true;
    char word[RNL_WORD];
    if (!take(r, '{'))
        return rnl_json_malformed(r, need);
    for (bool first = true;; first = false) {
        rnl_status status = next_value(r, first, &key, &exists);
        if (status || !exists)
            return status;
        rnl_json_word(key, word);
        if ((status = read_member(r, word, arg)))
            return status;
    }
}

rnl_status rnl_json_document(rnl_json *r, const char *need, rnl_json_member *read_member, void *arg)
{
    if (r->end - r->at >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0)
        r->at += 3;
    rnl_json_skip_spaces(r);
    const rnl_status status = rnl_json_object(r, need, read_member, arg);
    if (status)
        return status;
    rnl_json_skip_spaces(r);
    return r->at < r->end ? rnl_json_malformed(r, "the end after the object") : RNL_OK;
}

rnl_status rnl_json_array(rnl_json *r, const char *need, rnl_json_element *read_element, void *arg)
{
    bool exists = true;
    if (!take(r, '['))
        return rnl_json_malformed(r, need);
    for (bool first = true;; first = false) {
        rnl_status status = next_member(r, ']', first, &exists);
        if (status || !exists || (status = read_element(r, arg)))
            return status;
    }
}

/* strtod() expects the decimal point of the locale, and a NUL. */
double rnl_json_number(rnl_slice value)
{
    char text[RNL_WORD];
    rnl_put_word(value.at, value.nbytes, text);
    char *const point = strchr(text, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    const bool is_number = *text == '-' || rnl_is_digit(*text);
    return is_number && value.nbytes < RNL_WORD ? strtod(text, NULL) : NAN;
}

bool rnl_json_is(rnl_slice value, const char *text)
{
    return value.nbytes == strlen(text) && memcmp(value.at, text, value.nbytes) == 0;
}

void rnl_json_word(rnl_slice string, char word[RNL_WORD])
{
    char text[RNL_WORD];
    size_t n = 0;
    const char *const end = string.at + string.nbytes - 1;
    for (const char *at = string.at + 1; at < end && n < RNL_WORD; at++) {
        char c = *at;
        if (c == '\\' && *++at == 'u') {
            int code = 0;
            for (int k = 0; k < 4; k++)
                code = code * 16 + hex_value(*++at);
            c = (char)(code < 128 ? code : 0);
        } else if (c == '\\') {
            c = (char)(*at == '"' || *at == '\\' || *at == '/' ? *at : 0);
        }
        text[n++] = c;
    }
    rnl_put_word(text, n, word);
}
