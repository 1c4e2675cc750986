#define _DEFAULT_SOURCE /* clock_gettime; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "core/clock.h"

#include <time.h>

int64_t rnl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
