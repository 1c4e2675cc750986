/* A clock for durations. */
#ifndef RNL_CORE_CLOCK_H
#define RNL_CORE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some moment; never goes back. */
int64_t rnl_now_ns(void);

#endif
