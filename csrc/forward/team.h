/* A team of threads: the caller, and helpers that live as long as the process. */
#ifndef RNL_FORWARD_TEAM_H
#define RNL_FORWARD_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* A point where the members of a team wait for each other. */
typedef struct rnl_barrier {
    atomic_int arrived, round;
    int num_forks;           /* forks that had led to this process at rnl_barrier_init()    */
    _Atomic int64_t lost_ns; /* sum over all rounds of the time from the end of spinning to
                                the end of the wait, of the member that arrived first      */
} rnl_barrier;

void rnl_barrier_init(rnl_barrier *barrier);

/* Wait until all members have arrived; all members must be running. The wait spins, then yields and
 * naps to leave the CPU to more urgent work. False, at once: the process is a forked child, without
 * the threads of the team. */
bool rnl_barrier_wait(rnl_barrier *barrier, int members);

/* On CPUs shared with busy processes, members that wait for each other every few microseconds wait
 * for the scheduler, for milliseconds. Report whether a call was crowded, that is, slowed down like
 * this; and return whether calls should not share work now. The pause after a crowded call doubles
 * with each further crowded call. */
void rnl_team_was_crowded(bool crowded);
bool rnl_team_is_crowded(void);

/* Run member(arg, k, members) for k in 0 ... members - 1, k = 0 in the calling thread, and return
 * when all members are done. 1 <= members <= wanted: fewer than wanted if another caller uses the
 * threads, if threads could not be started, or by rnl_set_num_threads(). False: member(arg, 0,
 * members) has forked the process, and this is the child, where only member 0 has run to the end.
 */
bool rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg);

/* Return the status of a call: all_worked from rnl_team_run(); stopped: the caller's poll said
 * stop.
 */
rnl_status rnl_team_status(bool all_worked, bool stopped, rnl_error *err);

#endif
