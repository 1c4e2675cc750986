/* The threads of a team: the number of threads, and the helpers. The first run that needs helpers
 * starts them. A helper spins for some tens of microseconds until the next run, then sleeps. */
#include <stdbool.h>
#include <stdlib.h>

#include "forward/team.h"
#include "kernels/subnormals.h"
#include "rnnlayout.h"
#include "system/min.h"
#include "system/system.h"

enum {
    SPINS = 300,       /* of 15 to 50 ns each, then ... */
    YIELDS = 2000,     /* ... of 500 ns, or as long as threads of the same CPU run, then ... */
                       /* ... naps, so that a member without a CPU gets this CPU; in a virtual
                          machine the first nap may take 1 ms, because the CPU falls asleep */
    IDLE_YIELDS = 100, /* of a helper without a run, which then sleeps */
    CROWDED_MS = 10,   /* without sharing after a crowded call; twice as long after the next */
    CROWDED_MOST_MS = 1000,
    RUNS_UNTIL_RETRY = 1000 /* after a thread could not be started */
};

/* --------------------------------------------------------------------------- the machine -- */

/* Tell the CPU that this is a spin, without the machine's headers for intrinsics. On most AArch64
 * CPUs "yield" returns at once; "isb" takes as long as x86's "pause". */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Return the floating-point control of the calling thread: rounding, and flushing of subnormals.
 * Results depend on this control, so a helper gets the control of the caller. */
static rnl_float_mode float_control(void)
{
    return rnl_float_mode_get() & ~(rnl_float_mode)RNL_EXCEPTIONS;
}

static void set_float_control(rnl_float_mode control)
{
    if (control != float_control())
        rnl_float_mode_set(control);
}

/* Wait a little, after many waits longer; return the new number of waits. */
static int wait_once(int num_waits)
{
    if (num_waits < SPINS) {
        relax();
    } else if (num_waits < SPINS + YIELDS) {
        rnl_yield();
    } else {
        rnl_nap();
    }
    return rnl_min_int(num_waits + 1, SPINS + YIELDS);
}

/* -------------------------------------------------------------------- the number of threads -- */

/* Return the number at the start of a variable; 0: no number, or not set. OMP_NUM_THREADS may be a
 * list: the first number is for threads that are not nested. */
static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    const long n = text ? strtol(text, NULL, 10) : 0;
    return n < 1 ? 0 : (int)rnl_min(n, RNL_MAX_THREADS);
}

static int default_num_threads(void)
{
    int n = number_in("RNNLAYOUT_NUM_THREADS");
    if (!n)
        n = number_in("OMP_NUM_THREADS");
    if (!n)
        n = rnl_num_cpus();
    return n < 1 ? 1 : rnl_min_int(n, RNL_MAX_THREADS);
}

static atomic_int num_threads; /* 0: not determined yet */

void rnl_set_num_threads(int n)
{
    atomic_store(&num_threads, n < 1 ? 0 : rnl_min_int(n, RNL_MAX_THREADS));
}

int rnl_num_threads(void)
{
    int n = atomic_load_explicit(&num_threads, memory_order_relaxed);
    if (n == 0) {
        const int default_n = default_num_threads();
        /* unless another thread has set num_threads meanwhile */
        if (atomic_compare_exchange_strong(&num_threads, &n, default_n))
            n = default_n;
    }
    return n;
}

/* ---------------------------------------------------------------------------- the helpers -- */

/* Values of a helper's `members` outside a run; in a run `members` is the number of members. */
enum { ASLEEP = -1, IDLE = 0 };

/* Only the first cache line of a helper moves between CPUs in a run. */
typedef struct helper {
    _Alignas(RNL_ALIGNMENT) atomic_int members;
    void (*member)(void *arg, int k, int members);
    void *arg;
    rnl_float_mode control;
    int callers_cpu;
    rnl_thread thread;
} helper;

static struct pool {
    atomic_bool taken; /* a caller uses the members below */
    int num_helpers;
    int runs_until_retry;
    helper helpers[RNL_MAX_THREADS - 1];
} pool;

static void sleep_until_wanted(helper *self)
{
    int idle = IDLE;
    if (atomic_compare_exchange_strong(&self->members, &idle, ASLEEP))
        rnl_thread_sleep(&self->thread, &self->members, ASLEEP);
}

/* A helper's thread. */
static void help(void *arg)
{
    helper *const self = arg;
    const int k = (int)(self - pool.helpers) + 1;
    for (int num_waits = 0;;) {
        const int members = atomic_load_explicit(&self->members, memory_order_acquire);
        if (members != IDLE) {
            rnl_leave_cpu(self->callers_cpu); /* on that CPU the helper would wait for the caller */
            set_float_control(self->control);
            self->member(self->arg, k, members);
            atomic_store_explicit(&self->members, IDLE, memory_order_release);
            num_waits = 0;
        } else if (num_waits < SPINS + IDLE_YIELDS) {
            num_waits = wait_once(num_waits);
        } else {
            sleep_until_wanted(self);
        }
    }
}

static void set_to_work(helper *h, int members, void (*member)(void *, int, int), void *arg,
                        rnl_float_mode control, int cpu)
{
    h->member = member;
    h->arg = arg;
    h->control = control;
    h->callers_cpu = cpu;
    if (atomic_exchange_explicit(&h->members, members, memory_order_acq_rel) == ASLEEP)
        rnl_thread_wake(&h->thread);
}

static void wait_for(helper *h)
{
    for (int num_waits = 0; atomic_load_explicit(&h->members, memory_order_acquire) > IDLE;)
        num_waits = wait_once(num_waits);
}

static bool start(helper *h)
{
    atomic_init(&h->members, IDLE);
    return rnl_thread_start(&h->thread, help, h);
}

static void start_helpers(int wanted)
{
    while (pool.num_helpers < wanted && start(&pool.helpers[pool.num_helpers]))
        pool.num_helpers++;
    pool.runs_until_retry = pool.num_helpers < wanted ? RUNS_UNTIL_RETRY : 0;
}

/* Return the number of helpers for a run, at most `wanted`. A failed start of a thread takes long,
 * so the next attempt is RUNS_UNTIL_RETRY runs later. */
static int find_helpers(int wanted)
{
    if (pool.num_helpers < wanted && --pool.runs_until_retry < 0)
        start_helpers(wanted);
    return rnl_min_int(pool.num_helpers, wanted);
}

/* ------------------------------------------------------------------------------- the pool -- */

static atomic_int num_forks; /* forks that have led to this process */

/* A forked child has no helpers, and no thread that could have taken the pool. */
static void forget_helpers(void)
{
    atomic_fetch_add(&num_forks, 1);
    pool.num_helpers = pool.runs_until_retry = 0;
    atomic_store(&pool.taken, false);
}

static bool take_pool(void)
{
    return rnl_watch_forks(forget_helpers) &&
           !atomic_exchange_explicit(&pool.taken, true, memory_order_acquire);
}

bool rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg)
{
    const int most = wanted > 1 ? rnl_min_int(wanted, rnl_num_threads()) : 1;
    if (most < 2 || !take_pool()) {
        member(arg, 0, 1);
        return true;
    }
    const rnl_float_mode control = float_control();
    const int num_helpers = find_helpers(most - 1), forks_before = atomic_load(&num_forks);
    const int cpu = rnl_current_cpu();
    for (int k = 0; k < num_helpers; k++)
        set_to_work(&pool.helpers[k], num_helpers + 1, member, arg, control, cpu);
    member(arg, 0, num_helpers + 1);
    if (atomic_load(&num_forks) != forks_before)
        return num_helpers == 0;
    for (int k = 0; k < num_helpers; k++)
        wait_for(&pool.helpers[k]);
    atomic_store_explicit(&pool.taken, false, memory_order_release);
    return true;
}

/* ------------------------------------------------------------------------------- barriers -- */

void rnl_barrier_init(rnl_barrier *barrier)
{
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->round, 0);
    atomic_init(&barrier->lost_ns, 0);
    barrier->num_forks = atomic_load(&num_forks);
}

bool rnl_barrier_wait(rnl_barrier *barrier, int members)
{
    if (members == 1)
        return true;
    if (barrier->num_forks != atomic_load_explicit(&num_forks, memory_order_relaxed))
        return false;
    /* round cannot change before this member has arrived */
    const int round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    const int earlier = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (earlier == members - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&barrier->round, 1, memory_order_release);
        return true;
    }
    int64_t since_ns = 0;
    for (int num_waits = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round;) {
        if (num_waits == SPINS)
            since_ns = rnl_now_ns();
        num_waits = wait_once(num_waits);
    }
    if (since_ns && earlier == 0)
        atomic_fetch_add_explicit(&barrier->lost_ns, rnl_now_ns() - since_ns, memory_order_relaxed);
    return true;
}

/* ------------------------------------------------------------------------------- crowded -- */

static _Atomic int64_t crowded_until_ns; /* on rnl_now_ns()'s clock */
static atomic_int crowded_ms;            /* without sharing after the last call; 0: not crowded */

void rnl_team_was_crowded(bool crowded)
{
    int ms = 0;
    if (crowded) {
        ms = rnl_min_int(CROWDED_MS + 2 * atomic_load(&crowded_ms), CROWDED_MOST_MS);
        atomic_store(&crowded_until_ns, rnl_now_ns() + ms * INT64_C(1000000));
    }
    if (ms != atomic_load_explicit(&crowded_ms, memory_order_relaxed))
        atomic_store(&crowded_ms, ms);
}

bool rnl_team_is_crowded(void)
{
    return atomic_load_explicit(&crowded_ms, memory_order_relaxed) > 0 &&
           rnl_now_ns() < atomic_load(&crowded_until_ns);
}

rnl_status rnl_team_status(bool all_worked, bool stopped, rnl_error *err)
{
    if (!all_worked)
        return rnl_fail(err, RNL_E_INTERRUPTED,
                        "the process was forked during this call, by a signal handler: this is the"
                        " child, and the threads that shared the call exist in the parent only;"
                        " repeat the call");
    return stopped ? rnl_fail(err, RNL_E_INTERRUPTED, "interrupted") : RNL_OK;
}
