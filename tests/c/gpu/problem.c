#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "gpu/fakes.h"
#include "gpu/problem.h"

static double uniform(void)
{
    return (double)(random_bits() >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

static void fill(rnl_dtype dtype, char *to, size_t nbytes, double size)
{
    const size_t unit = (size_t)rnl_dtype_nbytes(dtype);
    for (size_t k = 0; k < nbytes / unit; k++)
        rnl_store_bits(dtype, to + k * unit, rnl_from_double(dtype, size * uniform()));
}

static double at(rnl_dtype dtype, const char *from, size_t k)
{
    return rnl_to_double(dtype, rnl_load_bits(dtype, from + k * (size_t)rnl_dtype_nbytes(dtype)));
}

static int64_t directions(const rnl_spec *s)
{
    return s->bidirectional ? 2 : 1;
}

/* The magnitudes in a row sum to less than 1, so that errors do not grow from step to step. */
void fill_weights(problem *p)
{
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = 0};
    rnl_error err;
    const int64_t widest = p->spec.input_size > 2 * p->spec.hidden_size ? p->spec.input_size
                                                                        : 2 * p->spec.hidden_size;
    rnl_layout_named("cudnn", &layout, &err);
    rnl_layout_tensor(&layout, &p->spec, rnl_spec_has(&p->spec), 0, &tensor, &err);
    const size_t nbytes = (size_t)(tensor.nelems * rnl_dtype_nbytes(p->spec.dtype));
    CHECK(nbytes <= MOST, "%zu bytes of weights", nbytes);
    fill(p->spec.dtype, p->weights, nbytes, 2.0 / (double)widest);
}

static void measure(problem *p)
{
    const rnl_spec *s = &p->spec;
    const int64_t P = s->proj_size ? s->proj_size : s->hidden_size, D = directions(s);
    const int64_t elements[ARRAYS] = {p->T * p->N * s->input_size,
                                      s->num_layers * D * p->N * P,
                                      s->num_layers * D * p->N * s->hidden_size,
                                      p->T * p->N * D * P,
                                      s->num_layers * D * p->N * P,
                                      s->num_layers * D * p->N * s->hidden_size};
    for (int k = 0; k < ARRAYS; k++) {
        p->nbytes[k] = (size_t)(elements[k] * rnl_dtype_nbytes(s->dtype));
        CHECK(p->nbytes[k] <= MOST, "array %d", k);
    }
}

void set_lengths(problem *p, int kind)
{
    p->has_lengths = kind != FULL;
    for (int64_t n = 0; n < p->N; n++)
        p->lengths[n] = kind == RANDOM      ? 1 + random_below(p->T)
                        : kind == WITH_ZERO ? (n % 2 ? 0 : 1 + random_below(p->T))
                        : kind == ZEROS     ? 0
                        : kind == EQUAL     ? p->T - 1
                        : kind == SHORTER   ? 1 + random_below(p->T - 1)
                                            : p->T;
}

/* x past the end is NaN: it must not be read. */
void fill_arrays(problem *p)
{
    const rnl_dtype dtype = p->spec.dtype;
    const double most = p->options.clips ? 0.1
                                         : 1; /* cuDNN clamps c_0 too: keep it inside the bounds */
    measure(p);
    for (int k = 0; k < Y; k++)
        fill(dtype, p->host[k], p->nbytes[k], k == C0 ? most : 1);
    const size_t row = (size_t)(p->spec.input_size * rnl_dtype_nbytes(dtype));
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t n = 0; n < p->N; n++)
            if (p->has_lengths && t >= p->lengths[n])
                memset(p->host[X] + row * (size_t)(p->batch_first ? n * p->T + t : t * p->N + n),
                       0xff, row);
}

rnl_status on_cpu(problem *p, rnl_error *err)
{
    const rnl_spec *s = &p->spec;
    const int64_t I = s->input_size;
    const int64_t W = directions(s) * (s->proj_size ? s->proj_size : s->hidden_size);
    const rnl_rnn_options options = {.clips = p->options.clips,
                                     .clip_low = p->options.clip_low,
                                     .clip_high = p->options.clip_high};
    rnl_rnn *rnn;
    const rnl_status made = rnl_rnn_new(s, p->weights, &options, &rnn, err);
    if (made != RNL_OK)
        return made;
    const rnl_rnn_call call = {.T = p->T,
                               .N = p->N,
                               .dtype = s->dtype,
                               .x = p->host[X],
                               .x_time = p->batch_first ? I : p->N * I,
                               .x_batch = p->batch_first ? p->T * I : I,
                               .lengths = p->has_lengths ? p->lengths : NULL,
                               .h0 = p->no_state ? NULL : p->host[H0],
                               .c0 = p->no_state || s->cell != RNL_LSTM ? NULL : p->host[C0],
                               .y = p->host[Y],
                               .y_time = p->batch_first ? W : p->N * W,
                               .y_batch = p->batch_first ? p->T * W : W,
                               .hn = p->host[HN],
                               .cn = s->cell == RNL_LSTM ? p->host[CN] : NULL};
    const rnl_status status = rnl_rnn_run(rnn, &call, err);
    rnl_rnn_free(rnn);
    return status;
}

rnl_gpu_call call_of(problem *p, int way, void *stream)
{
    void *array[ARRAYS];
    for (int k = 0; k < ARRAYS; k++)
        array[k] = way == ON_HOST ? (k < Y ? p->host[k] : p->got[k])
                                  : (void *)(uintptr_t)p->device[k];
    return (rnl_gpu_call){.T = p->T,
                          .N = p->N,
                          .on_host = way == ON_HOST,
                          .batch_first = p->batch_first,
                          .x = array[X],
                          .lengths = p->has_lengths ? p->lengths : NULL,
                          .h0 = p->no_state ? NULL : array[H0],
                          .c0 = p->no_state ? NULL : array[C0],
                          .y = p->no_y ? NULL : array[Y],
                          .hn = array[way == IN_PLACE ? H0 : HN],
                          .cn = array[way == IN_PLACE ? C0 : CN],
                          .stream = stream};
}

void give_memory(problem *p)
{
    for (int k = 0; k < ARRAYS; k++)
        p->device[k] = fake.alloc(MOST, 0, 0);
}

void take_memory(problem *p)
{
    for (int k = 0; k < ARRAYS; k++)
        fake.free_(p->device[k]);
}

void upload(problem *p)
{
    for (int k = 0; k < ARRAYS; k++) {
        if (k >= Y)
            memset(p->got[k], 0xff, p->nbytes[k]);
        if (p->nbytes[k])
            fake.write(p->device[k], k < Y ? p->host[k] : p->got[k], p->nbytes[k]);
    }
}

void download(problem *p, int way)
{
    for (int k = Y; k < ARRAYS; k++)
        if (p->nbytes[k])
            fake.read(p->device[way == IN_PLACE && k > Y ? k - Y : k], p->got[k], p->nbytes[k]);
}

/* Each step of each layer adds the rounding of sums of I + H + 2 terms of magnitude 4 at most, some
 * units for the activations, and on the GPU the rounding of the stored states; on both paths. */
static double tolerance(const rnl_spec *s, int64_t T)
{
    const double unit = s->dtype == RNL_FLOAT64 ? ldexp(1, -53) : ldexp(1, -24);
    const double stored = s->dtype == RNL_FLOAT16    ? ldexp(1, -11)
                          : s->dtype == RNL_BFLOAT16 ? ldexp(1, -8)
                                                     : unit;
    const double terms = (double)(s->input_size + 2 * s->hidden_size + 3);
    return (double)(T * s->num_layers) * (2 * unit * (4 * terms + 16) + 2 * stored);
}

void compare(const problem *p, const char *what)
{
    static const char *const names[] = {"x", "h_0", "c_0", "y", "h_n", "c_n"};
    const rnl_dtype dtype = p->spec.dtype;
    const double most = tolerance(&p->spec, p->T);
    for (int k = Y; k < ARRAYS; k++) {
        if ((k == CN && p->spec.cell != RNL_LSTM) || (k == Y && p->no_y))
            continue;
        double worst = 0;
        for (size_t i = 0; i < p->nbytes[k] / (size_t)rnl_dtype_nbytes(dtype); i++) {
            const double off = fabs(at(dtype, p->host[k], i) - at(dtype, p->got[k], i));
            worst = off <= worst ? worst : off; /* a NaN counts */
        }
        CHECK(worst <= most,
              "%s, cell %d bias %d D %d L %d P %d skip %d dtype %d clip %d batch_first %d: %s is "
              "off by %g, %g allowed",
              what, (int)p->spec.cell, (int)p->spec.bias, (int)directions(&p->spec),
              (int)p->spec.num_layers, (int)p->spec.proj_size, p->spec.skip_input, (int)dtype,
              p->options.clips, p->batch_first, names[k], worst, most);
    }
}

void run_and_compare(rnl_gpu_rnn *rnn, problem *p, int way, void *stream, const char *what)
{
    rnl_error err = {.text = ""};
    rnl_gpu_call call = call_of(p, way, stream);
    call.located = (int)random_below(2);
    CHECK(on_cpu(p, &err) == RNL_OK, "%s", err.text);
    upload(p);
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s: %s", what, err.text);
    CHECK(fake.live("pushed") == pushed, "%s: the context is left current", what);
    if (way != ON_HOST) {
        sync_all();
        download(p, way);
    }
    compare(p, what);
}

problem *lstm(void)
{
    problem *p = calloc(1, sizeof *p);
    p->spec = rnl_spec_default(RNL_LSTM, 3, 5);
    p->T = 4;
    p->N = 3;
    fill_weights(p);
    fill_arrays(p);
    give_memory(p);
    return p;
}

rnl_gpu_rnn *new_rnn(problem *p)
{
    rnl_gpu_rnn *rnn = NULL;
    rnl_error err;
    CHECK(rnl_gpu_rnn_new(&p->spec, p->weights, &p->options, &rnn, &err) == RNL_OK, "%s", err.text);
    return rnn;
}

void refuse(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_status wanted, const char *word)
{
    rnl_error err = {.text = ""};
    const rnl_status status = rnl_gpu_rnn_run(rnn, call, &err);
    CHECK(status == wanted && strstr(err.text, word), "%s: status %d, %s", word, (int)status,
          err.text);
    CHECK(fake.live("pushed") == pushed, "%s: the context is left current", word);
}
