#include "cpu/crowd.h"

#include "forward/team.h"
#include "system/system.h"

int64_t crowd_wait_ns, crowd_lost_ns;
static int crowded_calls;

static _Atomic int64_t now_ns = 1;
static _Thread_local int64_t stopped_at_ns; /* in a wait, so that the wait itself takes no time */

int64_t __wrap_rnl_now_ns(void);
int64_t __wrap_rnl_now_ns(void)
{
    return stopped_at_ns ? stopped_at_ns : atomic_load(&now_ns);
}

bool __real_rnl_barrier_wait(rnl_barrier *barrier, int members);
bool __wrap_rnl_barrier_wait(rnl_barrier *barrier, int members);
bool __wrap_rnl_barrier_wait(rnl_barrier *barrier, int members)
{
    if (members > 1) {
        atomic_fetch_add(&now_ns, crowd_wait_ns);
        atomic_fetch_add(&barrier->lost_ns, crowd_lost_ns);
    }
    stopped_at_ns = atomic_load(&now_ns);
    const bool all_exist = __real_rnl_barrier_wait(barrier, members);
    stopped_at_ns = 0;
    return all_exist;
}

/* Not passed on: the next call may share again. */
void __wrap_rnl_team_was_crowded(bool crowded);
void __wrap_rnl_team_was_crowded(bool crowded)
{
    crowded_calls += crowded;
}

int crowd_calls(void)
{
    const int calls = crowded_calls;
    crowded_calls = 0;
    return calls;
}
