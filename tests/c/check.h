/* What check programs share: count checks, print failures, end; and random numbers. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The counts of this process. A program that starts another one adds its counts to these. */
extern long check_passed, check_failed;

/* Count a condition. The first twenty failures are printed, with their values. */
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

/* Return how many random cases to try: most, or a sixth of them where CHECK_SHARE=6, as for slow
 * and for second builds. */
int check_turns(int most);

/* Is this one of the cases to try? All are, or a random sixth of them where CHECK_SHARE=6. */
bool check_is_drawn(void);

/* Print the last line of a check program and return the exit status for main. */
int check_end(void);

/* splitmix64: the same numbers on every machine. One sequence for all files of a program. */
uint64_t random_bits(void);
int64_t random_below(int64_t n);

#endif
