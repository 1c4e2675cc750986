/* Which tier of kernels is run? Decided once. RNNLAYOUT_CPU forces a lower tier, so that one
 * machine can test all. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tier.h"

typedef struct candidate {
    const rnl_tier *tier;
    bool runs_here;
} candidate;

#if defined(__x86_64__)
/* Some compilers' __builtin_cpu_supports() does not know these two. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static bool has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1U << 5;
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

static const rnl_tier *best(void)
{
    const char *wanted = getenv("RNNLAYOUT_CPU");
    const candidate candidates[] = {
#if defined(__x86_64__)
        {&rnl_tier_avx512bf16, has_avx512() && has_avx512bf16()},
        {&rnl_tier_avx512, has_avx512()},
        {&rnl_tier_avx2,
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()},
#elif defined(__aarch64__)
        {&rnl_tier_neon, true},
#endif
        {&rnl_tier_plain, true},
    };
    const int n = (int)(sizeof candidates / sizeof candidates[0]);
    for (int k = 0; wanted && k < n; k++)
        if (candidates[k].runs_here && strcmp(candidates[k].tier->name, wanted) == 0)
            return candidates[k].tier;
    int k = 0;
    while (!candidates[k].runs_here)
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

void rnl_copy(const rnl_job *job)
{
    rnl_tier_get()->copy(job);
}

int64_t rnl_find_overflow(const rnl_job *job)
{
    return rnl_tier_get()->find_overflow(job);
}

const rnl_rnn_kernels *rnl_rnn_kernels_get(int which)
{
    return &rnl_tier_get()->rnn[which];
}
