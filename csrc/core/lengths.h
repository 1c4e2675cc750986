/* Check the sizes and lengths of a call, in the same way on every device. */
#ifndef RNL_CORE_LENGTHS_H
#define RNL_CORE_LENGTHS_H

#include <inttypes.h>

#include "core/status.h"
#include "rnnlayout.h"

/* lengths: N lengths; NULL: every length is T. */
static inline rnl_status rnl_lengths_check(int64_t T, int64_t N, const int64_t *lengths,
                                           rnl_error *err)
{
    if (T < 0 || N < 0)
        return rnl_fail(err, RNL_E_SPEC, "T is %" PRId64 ", N is %" PRId64 ": need 0 or more", T,
                        N);
    for (int64_t n = 0; lengths && n < N; n++)
        if (lengths[n] < 0 || lengths[n] > T)
            return rnl_fail(err, RNL_E_LAYOUT,
                            "lengths[%" PRId64 "] is %" PRId64 ", need 0 to %" PRId64 " = T", n,
                            lengths[n], T);
    return RNL_OK;
}

#endif
