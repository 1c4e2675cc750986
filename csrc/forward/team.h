/* A team of threads: the caller and helpers that live as long as the process. */
#ifndef RNL_FORWARD_TEAM_H
#define RNL_FORWARD_TEAM_H

#include <stdatomic.h>

/* Where the members of a team wait for each other; zero-initialized. */
typedef struct rnl_barrier {
    atomic_int arrived, round;
} rnl_barrier;

/* Spins, and yields where that takes long: all members must be running. */
void rnl_barrier_wait(rnl_barrier *barrier, int members);

/* Run member(arg, k, members) for k in 0 ... members - 1, k = 0 in the calling thread; returns when
 * all are done. At most `wanted` members, fewer where the threads are in use by another caller,
 * could not be started, or are limited by rnl_set_num_threads: then there are fewer members, at
 * least 1. */
void rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg);

#endif
