/* Check a call before calling cuDNN: cuDNN checks no address, and a wrong address destroys the
 * context that the whole process shares. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/lengths.h"
#include "core/size.h"
#include "core/status.h"
#include "forward/cudnn/rnn.h"

static bool nbytes_of(int64_t a, int64_t b, int64_t c, size_t unit, size_t *nbytes)
{
    const rnl_size size = rnl_size_mul(rnl_size_mul(rnl_size_of(a), rnl_size_of(b)),
                                       rnl_size_mul(rnl_size_of(c), rnl_size_of((int64_t)unit)));
    *nbytes = (size_t)size.n;
    return !size.overflow && size.n < INT64_MAX / 8; /* six sizes are added up */
}

/* Check that a call with more steps than cuDNN describes can be made in parts: each part is
 * contiguous, and starts from the last state of the part before. */
static rnl_status check_steps(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err)
{
    const bool carries = call->hn && (call->cn || !rnl_cell_facts_of(rnn->spec.cell)->has_c);
    const char *const reason =
        rnn->spec.bidirectional
            ? "an RNN with two directions cannot be run in parts: use at most 65535 steps, or the CPU"
        : call->batch_first && call->N > 1
            ? "parts of batch-first arrays are not contiguous if N > 1: pass time-first arrays, or "
              "one sequence per call"
        : !carries ? "the parts of a longer call need hn, and cn of an LSTM, for the state"
                   : NULL;
    if (call->T <= RNL_CUDNN_MAX_STEPS || !reason)
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC, "T is %" PRId64 ", cuDNN supports %d at most, and %s", call->T,
                    RNL_CUDNN_MAX_STEPS, reason);
}

static rnl_status measure(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                          rnl_error *err)
{
    const rnl_spec *spec = &rnn->spec;
    const int64_t D = rnn->directions, layers = spec->num_layers * D;
    const int64_t T = call->T, N = call->N, most = INT_MAX;
    const size_t unit = rnn->unit;
    rnl_gpu_array *const a = job->arrays;
    if (N > most)
        return rnl_fail(err, RNL_E_SPEC, "N is %" PRId64 ": cuDNN supports %d at most", N, INT_MAX);
    const bool fits = nbytes_of(T, N, spec->input_size, unit, &a[RNL_X].nbytes) &&
                      nbytes_of(T, N, D * rnn->state_size, unit, &a[RNL_Y].nbytes) &&
                      nbytes_of(layers, N, rnn->state_size, unit, &a[RNL_H0].nbytes) &&
                      nbytes_of(layers, N, spec->hidden_size, unit, &a[RNL_C0].nbytes);
    a[RNL_HN].nbytes = a[RNL_H0].nbytes;
    a[RNL_CN].nbytes = a[RNL_C0].nbytes;
    if (fits && N <= most / spec->hidden_size) /* strides of the states are int */
        return RNL_OK;
    return rnl_fail(err, RNL_E_SPEC,
                    "T = %" PRId64 ", N = %" PRId64 " needs arrays larger than cuDNN supports: "
                    "split the batch",
                    T, N);
}

/* Choose how to pass the lengths to cuDNN: not at all, or with padding. */
static rnl_status choose_form(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                              rnl_error *err)
{
    const int version = rnn->device->version;
    int64_t longest = call->lengths ? 0 : call->T, shortest = call->T;
    for (int64_t n = 0; call->lengths && n < call->N; n++) {
        longest = call->lengths[n] > longest ? call->lengths[n] : longest;
        shortest = call->lengths[n] < shortest ? call->lengths[n] : shortest;
    }
    job->sizes.T = longest && call->N ? call->T : 0;
    job->sizes.N = call->N;
    job->sizes.batch_first = call->batch_first != 0;
    if (job->sizes.T == 0)
        return RNL_OK;
    if (shortest == 0 && version >= 90100 && version < 90200)
        return rnl_fail(
            err, RNL_E_SPEC,
            "a length is 0, which cuDNN 9.1.%d does not support: leave the sequence out, "
            "or install another cuDNN",
            version % 100);
    job->lengths = shortest == call->T ? NULL : call->lengths;
    job->sizes.padded = job->lengths || job->sizes.batch_first;
    return RNL_OK;
}

/* Names for messages: for outputs with the argument of the Python call in brackets. */
static const char *const NAMES[RNL_NUM_ARRAYS] = {
    "x", "h_0", "c_0", "y (out)", "h_n (h_out)", "c_n (c_out)",
};

static bool overlap(const rnl_gpu_array *a, const rnl_gpu_array *b)
{
    const uintptr_t first = (uintptr_t)a->argument, second = (uintptr_t)b->argument;
    return a->nbytes && b->nbytes && first < second + b->nbytes && second < first + a->nbytes;
}

/* An output must not overlap an array; but hn may be exactly h0, and cn exactly c0. */
static rnl_status check_overlap(const rnl_gpu_array *arrays, rnl_error *err)
{
    for (int i = RNL_Y; i < RNL_NUM_ARRAYS; i++)
        for (int k = 0; k < RNL_NUM_ARRAYS; k++) {
            const rnl_gpu_array *const a = &arrays[i], *const b = &arrays[k];
            const bool follows = i > RNL_Y && k == i - RNL_Y && a->argument == b->argument;
            if (i == k || !a->argument || !b->argument || follows || !overlap(a, b))
                continue;
            return rnl_fail(err, RNL_E_LAYOUT, "%s overlaps %s in memory: pass separate arrays",
                            NAMES[i], NAMES[k]);
        }
    return RNL_OK;
}

static rnl_status check_arrays(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job, rnl_error *err)
{
    if (!job->arrays[RNL_X].argument && job->arrays[RNL_X].nbytes)
        return rnl_fail(err, RNL_E_LAYOUT, "x is NULL");
    for (int k = 0; k < RNL_NUM_ARRAYS; k++) {
        const uintptr_t at = (uintptr_t)job->arrays[k].argument;
        if (at % rnn->unit)
            return rnl_fail(err, RNL_E_LAYOUT,
                            "%s begins at %p, which is not a multiple of the %zu bytes of an "
                            "element: pass an aligned copy",
                            NAMES[k], job->arrays[k].argument, rnn->unit);
        if (at && at > UINTPTR_MAX - job->arrays[k].nbytes)
            return rnl_fail(err, RNL_E_LAYOUT, "%s ends past the last address: its size is wrong",
                            NAMES[k]);
    }
    return check_overlap(job->arrays, err);
}

rnl_status rnl_gpu_job_new(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err)
{
    const bool has_c = rnl_cell_facts_of(rnn->spec.cell)->has_c;
    const void *const arguments[RNL_NUM_ARRAYS] = {call->x, call->h0, has_c ? call->c0 : NULL,
                                                   call->y, call->hn, has_c ? call->cn : NULL};
    memset(job, 0, sizeof *job);
    for (int k = 0; k < RNL_NUM_ARRAYS; k++)
        job->arrays[k].argument = arguments[k];
    job->on_host = call->on_host != 0;
    job->stream = job->on_host ? rnn->device->host_stream : call->stream;
    job->follower = call->then == (void *)1 ? NULL : call->then; /* both are the legacy stream */
    job->has_follower = !job->on_host && call->then && job->follower != job->stream;
    rnl_status status;
    if ((status = rnl_lengths_check(call->T, call->N, call->lengths, err)) ||
        (status = check_steps(rnn, call, err)) || (status = measure(rnn, call, job, err)) ||
        (status = check_arrays(rnn, job, err)))
        return status;
    return choose_form(rnn, call, job, err);
}
