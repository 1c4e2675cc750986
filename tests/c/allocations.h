/* Allocations are counted and can fail: the linker replaces the C library's functions by those of
 * allocations.c (--wrap). */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

enum { NEVER = -1 };

/* Blocks: current, total, to refuse. Volatile, because compilers know that malloc() changes
 * nothing. */
extern volatile long live, taken, fail_at;

#endif
