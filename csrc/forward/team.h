/* A team of threads: the caller, and helpers that live as long as the process. */
#ifndef RNL_FORWARD_TEAM_H
#define RNL_FORWARD_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>

/* A point where the members of a team wait for each other; zero-initialized. */
typedef struct rnl_barrier {
    atomic_int arrived, round;
} rnl_barrier;

/* Wait until all members have arrived; all must be running. Spins, `patience` turns more than
 * usual, then yields and naps to leave the CPU to others. Returns whether it yielded or napped. */
bool rnl_barrier_wait(rnl_barrier *barrier, int members, int patience);

/* If other processes use the CPUs too, members that wait for each other every few microseconds wait
 * for the scheduler, for milliseconds. A call that was slowed down like this reports it; for a
 * while, longer each time, other calls should not share their work. */
void rnl_team_was_crowded(bool crowded);
bool rnl_team_is_crowded(void);

/* Turns after which a wait usually counts as long; a check sets it to 0. */
extern int rnl_team_patience;

/* Run member(arg, k, members) for k in 0 ... members - 1, k = 0 in the calling thread, and return
 * when all are done. 1 <= members <= wanted: fewer than wanted if another caller uses the threads,
 * if threads could not be started, or by rnl_set_num_threads. */
void rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg);

#endif
