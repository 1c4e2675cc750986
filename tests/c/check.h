/* All there is to a check program: count, say what failed, end; and numbers to check with. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

/* Of the process; whoever starts one adds its counts to these. */
extern long check_passed, check_failed;

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
int check_end(void);

/* splitmix64: the same numbers on every machine. One sequence for all files of a program. */
uint64_t random_bits(void);
int64_t random_below(int64_t n);

#endif
