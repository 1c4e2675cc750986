/*
 * Numbers too small for a normal exponent (below 2^-126 as float, 2^-1022 as double) count as zero:
 * as operands and as results. Many CPUs take a hundred cycles for an instruction with such a
 * number, and decayed or pruned weights, or an RNN that fades out in silence, have many. The mode
 * is per thread: each computing thread sets the mode for the call and restores the mode afterwards.
 */
#ifndef RNL_KERNELS_SUBNORMALS_H
#define RNL_KERNELS_SUBNORMALS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t rnl_float_mode;

#if defined(__x86_64__)
/* MXCSR: results (bit 15) and operands (bit 6); the low bits are the exceptions so far */
enum { RNL_FLUSHES = 1 << 15 | 1 << 6, RNL_EXCEPTIONS = 0x3f };

static inline rnl_float_mode rnl_float_mode_get(void)
{
    return __builtin_ia32_stmxcsr();
}

static inline void rnl_float_mode_set(rnl_float_mode mode)
{
    __builtin_ia32_ldmxcsr((unsigned)mode);
}
#elif defined(__aarch64__)
/* FPCR: both (bit 24) */
enum { RNL_FLUSHES = 1 << 24, RNL_EXCEPTIONS = 0 };

static inline rnl_float_mode rnl_float_mode_get(void)
{
    rnl_float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)); /* NOLINT(portability-no-assembler) */
    return mode;
}

static inline void rnl_float_mode_set(rnl_float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode)); /* NOLINT(portability-no-assembler) */
}
#else
enum { RNL_FLUSHES = 0, RNL_EXCEPTIONS = 0 };

static inline rnl_float_mode rnl_float_mode_get(void)
{
    return 0;
}

static inline void rnl_float_mode_set(rnl_float_mode mode)
{
    (void)mode;
}
#endif

/* Does the thread flush subnormals? Two operations tell. A read of the mode would wait for all
 * earlier instructions: reads and restores take 5 to 10 ns per call of a stepper. */
static inline bool rnl_subnormals_are_flushed(void)
{
    static const volatile float operand = 0x1p-149F, normal = 0x1p-126F;
    const float half = normal * 0.5F;
    uint32_t result; /* a comparison of floats would flush the operand */
    memcpy(&result, &half, sizeof result);
    return operand == 0.0F && result == 0;
}

/* Flush subnormals from now on. Return the mode until now, for rnl_float_mode_restore(). */
static inline rnl_float_mode rnl_flush_subnormals(void)
{
    const rnl_float_mode before = rnl_float_mode_get();
    if ((before & RNL_FLUSHES) != RNL_FLUSHES) /* setting takes longer than reading */
        rnl_float_mode_set(before | RNL_FLUSHES);
    return before;
}

static inline void rnl_float_mode_restore(rnl_float_mode before)
{
    if ((before & RNL_FLUSHES) != RNL_FLUSHES)
        rnl_float_mode_set(before);
}

#endif
