/* Complete unrolling of a loop, with gcc and with clang. */
#ifndef RNL_KERNELS_UNROLL_H
#define RNL_KERNELS_UNROLL_H

/* Put before a loop with a known number of turns, 16 at most, so that an array of vectors stays in
 * registers. clang silently ignores gcc's pragma. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
