/* The slow twin of the forward pass: a plain recurrence in double. It shares nothing with it except
 * the order of cuDNN's weight space, and also computes for the fake cuDNN. */
#ifndef CPU_SLOW_H
#define CPU_SLOW_H

#include "cpu/problem.h"

answer slow(const problem *p);

/* An answer of the problem's sizes, all zero. */
answer answer_new(const problem *p);
void answer_free(answer *a);

#endif
