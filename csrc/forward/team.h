/* A team of threads: the caller, and helpers that live as long as the process. */
#ifndef RNL_FORWARD_TEAM_H
#define RNL_FORWARD_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A point where the members of a team wait for each other. */
typedef struct rnl_barrier {
    atomic_int arrived, round;
    int num_forks;           /* that had led to this process when the barrier was made      */
    _Atomic int64_t lost_ns; /* sum over all rounds: how long the first to arrive waited after
                                it had spun                                                */
} rnl_barrier;

void rnl_barrier_init(rnl_barrier *barrier);

/* Wait until all members have arrived; all must be running. Spins, then yields and naps to leave
 * the CPU to others. False, at once: this is a forked child, which has no other members. */
bool rnl_barrier_wait(rnl_barrier *barrier, int members);

/* If other processes use the CPUs too, members that wait for each other every few microseconds wait
 * for the scheduler, for milliseconds. After a call that was slowed down like this, other calls
 * should not share their work for a while, longer after each such call. */
void rnl_team_was_crowded(bool crowded);
bool rnl_team_is_crowded(void);

/* Run member(arg, k, members) for k in 0 ... members - 1, k = 0 in the calling thread, and return
 * when all are done. 1 <= members <= wanted: fewer than wanted if another caller uses the threads,
 * if threads could not be started, or by rnl_set_num_threads. False: member(arg, 0, members) has
 * forked the process, and this is the child, in which the others were not run to their end. */
bool rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg);

#endif
