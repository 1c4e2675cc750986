#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/dtype.h"
#include "cpu/fast.h"

void *packed(const double *from, int64_t n, rnl_dtype dtype)
{
    const int64_t nbytes = rnl_dtype_nbytes(dtype);
    char *to = malloc((size_t)(n * nbytes + !n)); /* a byte beyond it is seen by the sanitizers */
    for (int64_t k = 0; to && k < n; k++)
        rnl_store_bits(dtype, to + k * nbytes, rnl_from_double(dtype, from[k]));
    if (!to)
        abort();
    return to;
}

rnl_rnn *prepared(const problem *p)
{
    rnl_error err;
    rnl_rnn *rnn = NULL;
    void *weights = packed(p->weights, p->num_weights, p->spec.dtype);
    CHECK(!rnl_rnn_new(&p->spec, weights, &p->options, &rnn, &err), "%s", err.text);
    void *back = malloc((size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype)));
    rnl_rnn_weights(rnn, back);
    if (p->options.math == RNL_CPU_MATH_INT8) { /* what was rounded is not rounded again */
        memcpy(weights, back, (size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype)));
        rnl_rnn_update(rnn, back);
        rnl_rnn_weights(rnn, back);
    }
    CHECK(!memcmp(back, weights, (size_t)(p->num_weights * rnl_dtype_nbytes(p->spec.dtype))), "%s",
          "weights come back");
    free(back);
    free(weights);
    return rnn;
}

answer fast(const problem *p, rnl_rnn *rnn, slice s)
{
    const int64_t I = p->spec.input_size, wide = p->D * p->S, nbytes = rnl_dtype_nbytes(p->dtype);
    const int64_t layers = p->spec.num_layers * p->D;
    const int64_t gap = 3; /* NaNs between the rows */
    char *x = calloc((size_t)(s.T * s.N * (I + gap) + 1), (size_t)nbytes);
    char *y = malloc((size_t)((s.T * s.N * wide + 1) * nbytes));
    char *hn = calloc((size_t)(layers * s.N * p->S + 1), (size_t)nbytes);
    char *cn = calloc((size_t)(layers * s.N * p->H + 1), (size_t)nbytes);
    int64_t lengths[MOST_ROWS];
    rnl_rnn_call call = {.T = s.T, .N = s.N, .dtype = p->dtype, .x = x, .y = y, .hn = hn, .cn = cn};
    call.x_time = p->batch_first ? I + gap : s.N * (I + gap);
    call.x_batch = p->batch_first ? s.T * (I + gap) : I + gap;
    call.y_time = p->batch_first ? wide : s.N * wide;
    call.y_batch = p->batch_first ? s.T * wide : wide;
    memset(y, 0xa5, (size_t)((s.T * s.N * wide + 1) * nbytes));
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < I + gap; k++)
                rnl_store_bits(
                    p->dtype, x + (t * call.x_time + n * call.x_batch + k) * nbytes,
                    rnl_from_double(p->dtype,
                                    k < I ? p->x[((s.from + t) * p->N + s.first + n) * I + k]
                                          : (double)NAN));
    const double *h0 = s.states ? s.states->hn : p->h0, *c0 = s.states ? s.states->cn : p->c0;
    for (int64_t l = 0; (p->has_states || s.states) && l < layers; l++)
        for (int64_t n = 0; n < s.N; n++) {
            const int64_t from = l * (s.states ? s.N : p->N) + (s.states ? n : s.first + n);
            for (int64_t k = 0; k < p->S; k++)
                rnl_store_bits(p->dtype, hn + ((l * s.N + n) * p->S + k) * nbytes,
                               rnl_from_double(p->dtype, h0[from * p->S + k]));
            for (int64_t k = 0; k < p->H; k++)
                rnl_store_bits(p->dtype, cn + ((l * s.N + n) * p->H + k) * nbytes,
                               rnl_from_double(p->dtype, c0[from * p->H + k]));
        }
    if (p->has_states || s.states) { /* in place */
        call.h0 = hn;
        call.c0 = cn;
    }
    for (int64_t n = 0; n < s.N; n++) {
        const int64_t left = p->lengths[s.first + n] - s.from;
        lengths[n] = left < 0 ? 0 : left > s.T ? s.T : left;
    }
    if (p->has_lengths)
        call.lengths = lengths;
    rnl_error err;
    CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
    problem shape = *p;
    shape.T = s.T;
    shape.N = s.N;
    answer a = answer_new(&shape);
    for (int64_t t = 0; t < s.T; t++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < wide; k++)
                a.y[(t * s.N + n) * wide + k] = rnl_to_double(
                    p->dtype,
                    rnl_load_bits(p->dtype, y + (t * call.y_time + n * call.y_batch + k) * nbytes));
    for (int64_t k = 0; k < layers * s.N * p->S; k++)
        a.hn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, hn + k * nbytes));
    for (int64_t k = 0; k < layers * s.N * p->H; k++)
        a.cn[k] = rnl_to_double(p->dtype, rnl_load_bits(p->dtype, cn + k * nbytes));
    free(x);
    free(y);
    free(hn);
    free(cn);
    return a;
}
