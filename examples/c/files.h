/* What the two example programs share: weights, files, arguments, and what is printed. Compiles as
 * C11 and as C++. */
#ifndef FILES_H
#define FILES_H

#include <limits.h>
#include <rnnlayout.h>
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

/* Return the weights of a .bin, and read their spec from the JSON beside it. options: receives the
 * clip of the cell state. The caller frees the weights. */
static inline char *read_weights(const char *path, rnl_spec *spec, rnl_rnn_options *options,
                                 size_t *nbytes)
{
    char json_path[4096];
    size_t json_nbytes;
    rnl_layout layout;
    rnl_tensor tensor; /* the weights are one tensor: cuDNN's weight space */
    rnl_error err;

    if (snprintf(json_path, sizeof json_path, "%s.json", path) >= (int)sizeof json_path)
        FAIL("%s: the name is too long", path);
    char *json = read_file(json_path, &json_nbytes), *weights = read_file(path, nbytes);
    if (rnl_spec_from_json(json, json_nbytes, spec, options, &err) != RNL_OK)
        FAIL("%s: %s", json_path, err.text);
    if (rnl_layout_named("cudnn", &layout, &err) != RNL_OK ||
        rnl_layout_tensor(&layout, spec, rnl_spec_optional(spec), 0, &tensor, &err) != RNL_OK)
        FAIL("%s", err.text);
    const size_t needed = (size_t)(tensor.nelems * rnl_dtype_nbytes(spec->dtype));
    if (*nbytes != needed)
        FAIL("%s has %zu bytes, but this RNN needs %zu: are weights and spec of the same model?",
             path, *nbytes, needed);
    if (rnl_weights_check(json, json_nbytes, weights, *nbytes, &err) != RNL_OK)
        FAIL("%s, %s: %s", path, json_path, err.text);
    free(json);
    return weights;
}

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

/* Print what the weights are. */
static inline void print_rnn(const char *path, const char *cell, int I, int H, int L, int D,
                             const char *dtype)
{
    printf("%s: %s, %d inputs, %d hidden units, %d layer%s, %s, %s\n", path, cell, I, H, L,
           L == 1 ? "" : "s", D == 2 ? "two directions" : "one direction", dtype);
}

/* Print what was run, and the last output of the first sequence if it is float32 or float64. */
static inline void print_result(char **argv, int T, int N, int width, size_t unit, const void *y)
{
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
