/* The forward pass's slow twin: a recurrence in double, one sum after the other, that shares
 * nothing with it but the order of cuDNN's weight space. */
#ifndef CPU_SLOW_H
#define CPU_SLOW_H

#include "cpu/problem.h"

answer slow(const problem *p);

/* Is b, an answer of the fast one, as close to a, the slow one's, as it can be? */
void check_close(const problem *p, const answer *a, const answer *b);

/* One step from the states that the fast one had: here the bound is a tight one. */
void check_one_step(const problem *p, int64_t t, const answer *states, const answer *next);

#endif
