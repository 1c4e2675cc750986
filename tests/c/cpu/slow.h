/* The slow twin of the forward pass: a plain recurrence in double. It shares nothing with it except
 * the order of cuDNN's weight space. */
#ifndef CPU_SLOW_H
#define CPU_SLOW_H

#include "cpu/problem.h"

answer slow(const problem *p);

/* Check that b, an answer of the fast one, is within the rounding bound of a, the slow one's. */
void check_close(const problem *p, const answer *a, const answer *b);

/* Check one step from the fast one's states: this bound is tight. */
void check_one_step(const problem *p, int64_t t, const answer *states, const answer *next);

#endif
