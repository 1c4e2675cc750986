/* The peak of the multipliers: fused multiply-adds in the widest vectors, and nothing else. */
#include <stdint.h>

#if defined(__AVX512F__)
enum { NBYTES = 64 };
#elif defined(__AVX__)
enum { NBYTES = 32 };
#else
enum { NBYTES = 16 };
#endif
typedef float vector __attribute__((vector_size(NBYTES)));

/* An FMA takes 4 or 5 cycles, and two start in each cycle: 12 sums keep the units busy and fit into
 * 16 registers together with the factors. The sums converge to 1 and stay there. */
#define SUMS(X) X(a) X(b) X(c) X(d) X(e) X(f) X(g) X(h) X(i) X(j) X(k) X(l)
#define START(s) vector s = half + starts[n++];
#define ADD(s) s = s * half + half;
#define JOIN(s) all += s;

/* Return the number of floating-point operations. *sum is set so that the compiler must compute
 * them. starts: 12 values; if the compiler knew that they are equal, it would keep only one sum. */
int64_t fma_peak(int64_t times, const float *starts, float *sum)
{
    vector half = {0}, all = {0};
    int n = 0;
    half += 0.5F;
    SUMS(START)
    for (int64_t time = 0; time < times; time++) {
        SUMS(ADD)
    }
    SUMS(JOIN)
    *sum = all[0];
    return times * 12 * (NBYTES / 4) * 2;
}
