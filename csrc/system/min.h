/* The smaller of two numbers. In the lowest folder, so that all folders with code for the machine
 * can include this file. */
#ifndef RNL_SYSTEM_MIN_H
#define RNL_SYSTEM_MIN_H

#include <stdint.h>

static inline int64_t rnl_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int rnl_min_int(int a, int b)
{
    return a < b ? a : b;
}

#endif
