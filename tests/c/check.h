/* All there is to a check program: count, say what failed, end; and numbers to check with. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

static long check_passed, check_failed;

/* Count a condition. What failed is printed with its values, the first twenty times. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (condition) {                                                                           \
            check_passed++;                                                                        \
        } else if (check_failed++ < 20) {                                                          \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

/* The last line of a check program, and what main returns. */
static inline int check_end(void)
{
    printf("%ld passed, %ld failed\n", check_passed, check_failed);
    return check_failed > 0;
}

/* splitmix64: the same numbers on every machine. */
static inline uint64_t random_bits(void)
{
    static uint64_t state;
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

#endif
