/* What the two example programs share: files, the spec that rnnlayout wrote beside the weights, and
 * what is printed. Compiles as C11 and as C++. */
#ifndef FILES_H
#define FILES_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fprintf(stderr, "error: " __VA_ARGS__);                                                    \
        fputc('\n', stderr);                                                                       \
        exit(1);                                                                                   \
    } while (0)

static inline void *memory_for(size_t nbytes)
{
    void *made = malloc(nbytes ? nbytes : 1);
    if (!made)
        FAIL("not enough memory for %zu bytes", nbytes);
    return made;
}

/* Return the bytes of a file, followed by a NUL. The caller frees them. */
static inline char *read_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0 || size == LONG_MAX)
        FAIL("%s: cannot be read", path);
    char *bytes = (char *)memory_for((size_t)size + 1);
    rewind(file);
    if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
        FAIL("%s: cannot be read", path);
    fclose(file);
    bytes[size] = '\0';
    *nbytes = (size_t)size;
    return bytes;
}

static inline void write_file(const char *prefix, const char *suffix, const void *bytes,
                              size_t nbytes)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", prefix, suffix) >= (int)sizeof path)
        FAIL("%s: the name is too long", prefix);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, nbytes, file) != nbytes || fclose(file) != 0)
        FAIL("%s: cannot be written", path);
}

/* ----------------------------------------------------------------------------------- the spec --
 */

/* Return the value of a key, or NULL. The first one counts: rnnlayout writes the spec before the
 * rest. */
static inline const char *find_value(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    at += strspn(at, " \t\r\n");
    return *at == ':' ? at + 1 + strspn(at + 1, " \t\r\n") : NULL;
}

static inline const char *value_of(const char *json, const char *key)
{
    const char *value = find_value(json, key);
    if (!value)
        FAIL("the spec has no \"%s\"", key);
    return value;
}

static inline int number_of(const char *json, const char *key, long least)
{
    const char *value = value_of(json, key);
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || !*end || !strchr(",} \t\r\n", *end) || number < least || number > INT_MAX)
        FAIL("the spec's \"%s\" must be a whole number, at least %ld", key, least);
    return (int)number;
}

/* Copy the value of a key, a word with or without quotes. */
static inline void word_of(const char *json, const char *key, char word[32])
{
    const char *value = value_of(json, key);
    value += *value == '"';
    int length = (int)strcspn(value, "\",} \t\r\n");
    snprintf(word, 32, "%.*s", length, value);
}

static inline int true_of(const char *json, const char *key)
{
    char word[32];
    word_of(json, key, word);
    if (strcmp(word, "true") != 0 && strcmp(word, "false") != 0)
        FAIL("the spec's \"%s\" must be true or false, not %s", key, word);
    return strcmp(word, "true") == 0;
}

/* Return the text of WEIGHTS.json, the spec of the weights. The caller frees it. */
static inline char *read_spec_text(const char *weights)
{
    char path[4096];
    size_t nbytes;
    if (snprintf(path, sizeof path, "%s.json", weights) >= (int)sizeof path)
        FAIL("%s: the name is too long", weights);
    char *json = read_file(path, &nbytes);
    while (nbytes && strchr(" \t\r\n", json[nbytes - 1]))
        nbytes--;
    if (!nbytes || json[0] != '{' || json[nbytes - 1] != '}')
        FAIL("%s: the spec is not a JSON object, or is truncated", path);
    if (number_of(json, "schema", 1) != 1)
        FAIL("%s: only schema 1 of the spec is supported", path);
    if (find_value(json, "config")) /* go_backwards, an initial state ... */
        FAIL("%s: this RNN has settings in \"config\", which this program does not apply", path);
    return json;
}

/* ------------------------------------------------------------------------------- the arguments --
 */

/* Return N. */
static inline int batch_of(const char *text)
{
    char *end;
    long N = strtol(text, &end, 10);
    if (end == text || *end || N < 1 || N > INT_MAX)
        FAIL("N is %s, need a whole number, at least 1", text);
    return (int)N;
}

/* Return T, which follows from the size of x (T, N, I). unit: bytes per number. */
static inline int steps_of(const char *path, size_t nbytes, int N, int I, size_t unit)
{
    if ((size_t)N > SIZE_MAX / 8 / (size_t)I)
        FAIL("N is %d, which is too large for I = %d", N, I);
    size_t step = (size_t)N * (size_t)I * unit;
    if (nbytes == 0 || nbytes % step || nbytes / step > INT_MAX)
        FAIL("%s has %zu bytes, need a positive multiple of %zu = N * I * %zu", path, nbytes, step,
             unit);
    return (int)(nbytes / step);
}

/* Print what was run, and the last output of the first sequence if it is float32 or float64. */
static inline void print_result(char **argv, const char *json, int T, int N, int width, size_t unit,
                                const void *y)
{
    char cell[32], dtype[32];
    word_of(json, "cell", cell);
    word_of(json, "dtype", dtype);
    printf("%s: %s, %d inputs, %d hidden units, %d layers, %s, %s\n", argv[1], cell,
           number_of(json, "input_size", 1), number_of(json, "hidden_size", 1),
           number_of(json, "num_layers", 1),
           true_of(json, "bidirectional") ? "two directions" : "one direction", dtype);
    printf("%s: %d steps of %d sequences\n", argv[2], T, N);
    printf("%s.y: %d x %d x %d outputs\n", argv[4], T, N, width);
    if (unit < 4)
        return;
    printf("last outputs of the first sequence:\n");
    for (int i = 0; i < width; i++) {
        const size_t at = (size_t)(T - 1) * (size_t)N * (size_t)width + (size_t)i;
        const double value = unit == 4 ? (double)((const float *)y)[at] : ((const double *)y)[at];
        printf("%7.3f%s", value, i + 1 == width || i % 8 == 7 ? "\n" : "");
    }
}

#endif
