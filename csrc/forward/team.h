/* A team of threads: the caller and helpers that live as long as the process. */
#ifndef RNL_FORWARD_TEAM_H
#define RNL_FORWARD_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>

/* Where the members of a team wait for each other; zero-initialized. */
typedef struct rnl_barrier {
    atomic_int arrived, round;
} rnl_barrier;

/* Spins, `patience` turns more than usual; then yields and naps, for the others to have a CPU.
 * Returns whether it came to that. All members must be running. */
bool rnl_barrier_wait(rnl_barrier *barrier, int members, int patience);

/* Where other processes want the CPUs too, members that wait for each other every few microseconds
 * wait for the scheduler, for milliseconds. A call that met this says so, and for a while, longer
 * each time, the others had better not share. */
void rnl_team_was_crowded(bool crowded);
bool rnl_team_is_crowded(void);

/* Turns that a wait usually has before it is a long one; a check sets it to 0. */
extern int rnl_team_patience;

/* Run member(arg, k, members) for k in 0 ... members - 1, k = 0 in the calling thread; returns when
 * all are done. At most `wanted` members, fewer where the threads are in use by another caller,
 * could not be started, or are limited by rnl_set_num_threads: then there are fewer members, at
 * least 1. */
void rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg);

#endif
