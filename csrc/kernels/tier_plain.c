/* Any CPU: the body compiled for the baseline instruction set. */
#include <string.h>

#include "core/dtype.h"

#define VECTOR_BYTES 16
#define TIER plain

static inline void stream_vector(void *to, const void *from)
{
    memcpy(to, from, VECTOR_BYTES);
}

static inline void stream_fence(void)
{
}

#include "kernels/tier_body.inc"
