/* Choose the tier of kernels, once per process. RNNLAYOUT_CPU forces a lower tier, so that a
 * machine can test all tiers that the CPU supports. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tier.h"
#include "system/system.h"

typedef struct candidate {
    const rnl_tier *tier;
    bool runs_here;
    bool (*asks)(void); /* asks the system for permission; NULL: not needed */
} candidate;

#if defined(__x86_64__)
/* The instructions of the CPU, and the registers that the system saves for a thread: Intel's
 * manual, volume 1, 14.3 and 15.2. __builtin_cpu_supports() returns false for everything if the
 * compiler has a separate run-time library (zig), and some compilers do not know all names. */
typedef struct features {
    bool avx2, avx512, avx512vnni, avx512bf16, amx; /* with all that the tier of this name uses */
    bool dots_are_slow; /* of bfloats: multiply-adds of float take half the time    */
} features;

static features features_of_cpu(void)
{
    enum {
        FMA = 1 << 12,
        OSXSAVE = 1 << 27,
        F16C = 1 << 29,
        BF16 = 1 << 5,
        AVX2 = 1 << 5,
        VNNI = 1 << 11
    };
    enum { YMM = 0x6, ZMM = 0xe6, TILES = 0x60000 }; /* the states of XCR0 */
    const unsigned with_avx2 = FMA | OSXSAVE | F16C;
    const unsigned with_avx512 = 1u << 16 | 1u << 30 | 1u << 31; /* F, BW, VL */
    const unsigned with_amx = 1u << 22 | 1u << 24;               /* BF16, TILE */
    unsigned a, b, c, d, leaf_1, saved, high, vendor = 0;
    if (!__get_cpuid(0, &a, &vendor, &c, &d) || !__get_cpuid(1, &a, &b, &leaf_1, &d) ||
        (leaf_1 & with_avx2) != with_avx2 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return (features){.avx2 = false};
    /* The intrinsic would need -mxsave. NOLINTNEXTLINE(portability-no-assembler) */
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    features cpu = {.avx2 = (saved & YMM) == YMM && b & AVX2};
    cpu.avx512 = cpu.avx2 && (saved & ZMM) == ZMM && (b & with_avx512) == with_avx512;
    cpu.avx512vnni = cpu.avx512 && c & VNNI;
    const bool tiles = (saved & TILES) == TILES && (d & with_amx) == with_amx;
    cpu.avx512bf16 = cpu.avx512vnni && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & BF16;
    cpu.amx = cpu.avx512bf16 && tiles;
    cpu.dots_are_slow = vendor == signature_INTEL_ebx;
    return cpu;
}
#endif

static bool runs(const candidate *choice)
{
    return choice->runs_here && (!choice->asks || choice->asks());
}

static const rnl_tier *best(void)
{
    const char *wanted = getenv("RNNLAYOUT_CPU");
#if defined(__x86_64__)
    const features cpu = features_of_cpu();
#endif
    const candidate candidates[] = {
#if defined(__x86_64__)
        {&rnl_tier_amx, cpu.amx, rnl_allow_tiles},
        {&rnl_tier_avx512bf16, cpu.avx512bf16 && !cpu.dots_are_slow},
        {&rnl_tier_avx512vnni, cpu.avx512vnni},
        {&rnl_tier_avx512, cpu.avx512},
        {&rnl_tier_avx2, cpu.avx2},
#elif defined(__aarch64__)
        {&rnl_tier_neon, true},
#endif
        {&rnl_tier_plain, true},
/* The tiers below are chosen by name only. */
#if defined(__x86_64__)
        {&rnl_tier_avx512bf16, cpu.avx512bf16},
#endif
#if defined(RNL_TILES_IN_C) && defined(__x86_64__)
        {&rnl_tier_amx_in_c, cpu.avx2},
#elif defined(RNL_TILES_IN_C)
        {&rnl_tier_amx_in_c, true},
#endif
    };
    const int n = (int)(sizeof candidates / sizeof candidates[0]);
    for (int k = 0; wanted && k < n; k++)
        if (strcmp(candidates[k].tier->name, wanted) == 0 && runs(&candidates[k]))
            return candidates[k].tier;
    int k = 0;
    while (!runs(&candidates[k]))
        k++;
    return candidates[k].tier;
}

const rnl_tier *rnl_tier_get(void)
{
    static _Atomic(const rnl_tier *) chosen;
    const rnl_tier *tier = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!tier) { /* threads that get here together find the same tier */
        tier = best();
        atomic_store_explicit(&chosen, tier, memory_order_release);
    }
    return tier;
}

const char *rnl_cpu_tier(void)
{
    return rnl_tier_get()->name;
}

/* The tiers copy lines and squares if the target is contiguous along its columns, and other jobs
 * element by element: exchange rows and columns if it is contiguous along its rows. */
void rnl_copy(const rnl_job *job)
{
    if (job->dst_grid.row != 1 || job->dst_grid.col == 1) {
        rnl_tier_get()->copy(job);
        return;
    }
    rnl_job turned = *job;
    turned.rows = job->cols;
    turned.cols = job->rows;
    turned.src_grid = (rnl_grid){job->src_grid.col, job->src_grid.row};
    turned.dst_grid = (rnl_grid){job->dst_grid.col, job->dst_grid.row};
    rnl_tier_get()->copy(&turned);
}

int64_t rnl_find_overflow(const rnl_job *job)
{
    return rnl_tier_get()->find_overflow(job);
}

const rnl_rnn_kernels *rnl_rnn_kernels_get(int index, int64_t units)
{
    const rnl_tier *const tier = rnl_tier_get();
#if defined(__x86_64__)
    /* The kernels of AVX2 give the same bits as the kernels of AVX-512; half of a vector of AVX-512
     * would be empty. */
    const rnl_rnn_kernels *const narrow = &rnl_rnn_avx2[index];
    if (tier != &rnl_tier_plain && index < RNL_NUM_DTYPES && units <= narrow->lanes)
        return narrow;
#endif
    (void)units;
    return &tier->rnn[index];
}
