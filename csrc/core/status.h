/* Report an error: fill in the caller's rnl_error and return the status, in a single call. */
#ifndef RNL_CORE_STATUS_H
#define RNL_CORE_STATUS_H

#include "rnnlayout.h"

#if defined(__GNUC__)
#define RNL_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define RNL_PRINTF(format_at, first_at)
#endif

/* Fill err and return status, so that a caller can `return rnl_fail(...)`. */
rnl_status rnl_fail(rnl_error *err, rnl_status status, const char *format, ...) RNL_PRINTF(3, 4);

/* Append a name to a list for a message, in a buffer of nbytes: "a", then "a, b". */
void rnl_append_name(char *list, size_t nbytes, const char *name);

#endif
