/* The steps of a call that count: find their times, and write the outputs of all others. */
#include <string.h>

#include "forward/running.h"

enum { BYTES_OF_A_POLL = 1 << 26 }; /* written between two calls of the caller's poll */

void rnl_mask_read(rnl_running *run)
{
    const rnl_rnn_call *const call = run->call;
    run->T = 0;
    for (int64_t n = 0; n < call->N; n++) {
        const unsigned char *const counts = call->mask + n * call->mask_batch;
        int64_t *const times = run->times + n * call->T;
        int64_t k = 0;
        for (int64_t t = 0; t < call->T; t++) {
            times[k] = t; /* overwritten if the step does not count */
            k += counts[t * call->mask_time] != 0;
        }
        run->counts[n] = k;
        run->T = k > run->T ? k : run->T;
    }
    run->lengths = run->counts;
}

bool rnl_mask_fill(const rnl_running *run)
{
    const rnl_rnn_call *const call = run->call;
    const rnl_spec *const spec = &run->rnn->spec;
    const int64_t nbytes = rnl_dtype_nbytes(call->dtype);
    const int64_t row_nbytes = rnl_num_directions(spec) * rnl_state_size(spec) * nbytes;
    int64_t since_poll = 0;
    for (int64_t n = 0; call->y && n < call->N; n++) {
        const int64_t *time = run->times + n * call->T, *const end = time + run->lengths[n];
        char *const y = (char *)call->y + n * call->y_batch * nbytes;
        const char *last = NULL;
        for (int64_t t = 0; t < call->T; t++) {
            char *const row = y + t * call->y_time * nbytes;
            if (time < end && *time == t) {
                last = call->repeats_masked ? row : NULL;
                time++;
                continue;
            }
            if (last)
                memcpy(row, last, (size_t)row_nbytes);
            else
                memset(row, 0, (size_t)row_nbytes);
            since_poll += row_nbytes;
            if (call->poll && since_poll >= BYTES_OF_A_POLL) {
                since_poll = 0;
                if (call->poll(call->poll_arg))
                    return false;
            }
        }
    }
    return true;
}
