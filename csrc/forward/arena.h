/* A block of memory, handed out in pieces aligned to RNL_ALIGNMENT bytes. Without memory an arena
 * only adds up the sizes, so the same code computes the size of the block and the places of the
 * pieces. */
#ifndef RNL_FORWARD_ARENA_H
#define RNL_FORWARD_ARENA_H

#include <stddef.h>

#include "core/size.h"
#include "system/system.h"

typedef struct rnl_arena {
    char *memory;
    rnl_size used;
} rnl_arena;

/* Return a piece for a * b elements of nbytes each; NULL without memory. */
static inline char *rnl_arena_take(rnl_arena *arena, int64_t a, int64_t b, int64_t nbytes)
{
    char *const piece = arena->memory ? arena->memory + arena->used.n : NULL;
    rnl_size size = rnl_size_mul(rnl_size_mul(rnl_size_of(a), rnl_size_of(b)), rnl_size_of(nbytes));
    size = rnl_size_add(size, rnl_size_of(RNL_ALIGNMENT - 1));
    arena->used = rnl_size_add(arena->used, (rnl_size){size.n & -RNL_ALIGNMENT, size.overflow});
    return piece;
}

#endif
