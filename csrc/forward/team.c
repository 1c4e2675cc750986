/* The threads of a team: how many there may be, and helpers that are started when first needed,
 * spin for some tens of microseconds until the next run, then sleep. */
#define _GNU_SOURCE /* sched_getaffinity; NOLINT(bugprone-reserved-identifier,cert-*) */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "forward/team.h"
#include "rnnlayout.h"

enum {
    MOST_MEMBERS = 64,
    SPINS = 300,     /* of 15 to 50 ns each, then ... */
    YIELDS = 100,    /* ... of 500 ns, or as long as other threads run, then ... */
    NAP_NS = 20000,  /* ... naps, which give the CPU to a member that has none */
    CROWDED_MS = 10, /* without sharing after a crowded call; twice as long after the next */
    CROWDED_MOST_MS = 1000,
    STACK_NBYTES = 512 << 10, /* kernels use 64 KB of it, a sanitizer more; libc puts TLS there */
    RUNS_UNTIL_RETRY = 1000,  /* after a thread could not be started */
    MAX_PATH_NCHARS = 4096
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

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

/* How the calling thread rounds and whether it flushes subnormals. Results depend on it, so helpers
 * get their caller's settings. */
static uint64_t float_control(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fU; /* without the exception flags */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

static void set_float_control(uint64_t control)
{
    if (control == float_control())
        return;
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)control);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(control));
#endif
}

/* Wait a little, longer with each turn; return the number of the next turn. */
static int wait_turn(int turn)
{
    if (turn < SPINS) {
        relax();
    } else if (turn < SPINS + YIELDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return smaller(turn + 1, SPINS + YIELDS);
}

/* -------------------------------------------------------------------- how many there may be -- */

/* Read the first line of a file in a folder; false: no such file, or it is empty. */
static bool read_line(const char *folder, const char *name, char *line, int nchars)
{
    char path[MAX_PATH_NCHARS + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(line, nchars, file);
    if (file)
        fclose(file);
    return read;
}

/* The number of CPUs that a control group's quota allows, from cgroup v2's file or v1's two. */
static int quota_of(const char *folder)
{
    char line[64], *end;
    long long quota = 0, period = 0; /* "max" and "-1": no limit */
    if (read_line(folder, "cpu.max", line, sizeof line)) {
        quota = strtoll(line, &end, 10);
        period = strtoll(end, NULL, 10);
    } else if (read_line(folder, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtoll(line, NULL, 10);
        if (read_line(folder, "cpu.cfs_period_us", line, sizeof line))
            period = strtoll(line, NULL, 10);
    }
    if (quota < 1 || period < 1 || quota / period >= MOST_MEMBERS)
        return MOST_MEMBERS;
    return quota < period ? 1 : (int)(quota / period);
}

/* The mount point of the group's quota, NULL: none. v2 names no controllers, v1 has "cpu" or
 * "cpu,cpuacct". */
static const char *mounted_at(const char *controllers)
{
    if (*controllers == ':')
        return "/sys/fs/cgroup";
    for (; *controllers != ':'; controllers += *controllers == ',') {
        const size_t nchars = strcspn(controllers, ",:");
        if (nchars == 3 && strncmp(controllers, "cpu", 3) == 0)
            return "/sys/fs/cgroup/cpu";
        controllers += nchars;
    }
    return NULL;
}

/* The smallest quota of this group and its parents. In a container the group's path may not exist,
 * because the group itself is mounted: missing folders are skipped. line: "4:cpu,cpuacct:/path" */
static int quota_by(char *line)
{
    char folder[MAX_PATH_NCHARS + 32];
    char *const end = strchr(line, '\n');
    if (end)
        *end = '\0';
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    const char *mount = path ? mounted_at(controllers + 1) : NULL;
    if (!mount)
        return MOST_MEMBERS;
    snprintf(folder, sizeof folder, "%s%s", mount, path + 1);
    int least = quota_of(folder);
    for (char *cut; (cut = strrchr(folder, '/')) >= folder + strlen(mount);) {
        *cut = '\0';
        least = smaller(least, quota_of(folder));
    }
    return least;
}

static int quota(void)
{
    char line[MAX_PATH_NCHARS];
    int least = MOST_MEMBERS;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups))
        least = smaller(least, quota_by(line));
    if (groups)
        fclose(groups);
    return least;
}

static int cpus(void)
{
#if defined(__linux__)
    cpu_set_t sets[16]; /* each for 1024 CPUs; too small a set is an error */
    if (sched_getaffinity(0, sizeof sets, sets) == 0)
        return CPU_COUNT_S(sizeof sets, sets);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The number at the start of a variable; 0: none, or not set. OMP_NUM_THREADS may be a list, whose
 * first number is for threads that are not nested. */
static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    const long n = text ? strtol(text, NULL, 10) : 0;
    return n < 1 ? 0 : n < MOST_MEMBERS ? (int)n : MOST_MEMBERS;
}

static int default_num_threads(void)
{
    int n = number_in("RNNLAYOUT_NUM_THREADS");
    if (!n)
        n = number_in("OMP_NUM_THREADS");
    if (!n)
        n = smaller(cpus(), quota());
    return n < 1 ? 1 : smaller(n, MOST_MEMBERS);
}

static atomic_int num_threads; /* 0: not determined yet */

void rnl_set_num_threads(int n)
{
    atomic_store(&num_threads, n < 1 ? 0 : smaller(n, MOST_MEMBERS));
}

int rnl_num_threads(void)
{
    int n = atomic_load_explicit(&num_threads, memory_order_relaxed);
    if (n == 0) {
        const int found = default_num_threads();
        /* unless another thread has set it meanwhile */
        if (atomic_compare_exchange_strong(&num_threads, &n, found))
            n = found;
    }
    return n;
}

/* ---------------------------------------------------------------------------- the helpers -- */

/* Values of a helper's `members` outside a run; in a run it is the number of members. */
enum { ASLEEP = -1, IDLE = 0 };

/* Only its first cache line moves between CPUs in a run. */
typedef struct helper {
    _Alignas(64) atomic_int members;
    void (*member)(void *arg, int k, int members);
    void *arg;
    uint64_t control;
    pthread_mutex_t lock; /* for sleeping */
    pthread_cond_t woken;
} helper;

static struct pool {
    atomic_bool taken; /* by the caller that uses the members below */
    int num_helpers;
    int runs_until_retry;
    helper helpers[MOST_MEMBERS - 1];
} pool;

static void sleep_until_wanted(helper *self)
{
    int idle = IDLE;
    pthread_mutex_lock(&self->lock);
    atomic_compare_exchange_strong(&self->members, &idle, ASLEEP);
    while (atomic_load(&self->members) == ASLEEP)
        pthread_cond_wait(&self->woken, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

/* A helper's thread. */
static void *help(void *arg)
{
    helper *const self = arg;
    const int k = (int)(self - pool.helpers) + 1;
    for (int turn = 0;;) {
        const int members = atomic_load_explicit(&self->members, memory_order_acquire);
        if (members != IDLE) {
            set_float_control(self->control);
            self->member(self->arg, k, members);
            atomic_store_explicit(&self->members, IDLE, memory_order_release);
            turn = 0;
        } else if (turn < SPINS + YIELDS) {
            turn = wait_turn(turn);
        } else {
            sleep_until_wanted(self);
        }
    }
    return NULL;
}

static void set_to_work(helper *h, int members, void (*member)(void *, int, int), void *arg,
                        uint64_t control)
{
    h->member = member;
    h->arg = arg;
    h->control = control;
    if (atomic_exchange_explicit(&h->members, members, memory_order_acq_rel) == ASLEEP) {
        /* once the lock is free, the helper has seen the new value or waits for the signal */
        pthread_mutex_lock(&h->lock);
        pthread_mutex_unlock(&h->lock);
        pthread_cond_signal(&h->woken);
    }
}

static void wait_for(helper *h)
{
    for (int turn = 0; atomic_load_explicit(&h->members, memory_order_acquire) > IDLE;)
        turn = wait_turn(turn);
}

static bool start(helper *h)
{
    pthread_t thread;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr))
        return false;
    atomic_init(&h->members, IDLE);
    pthread_mutex_init(&h->lock, NULL); /* anew, in a forked child */
    pthread_cond_init(&h->woken, NULL);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_NBYTES);
    const bool started = pthread_create(&thread, &attr, help, h) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

/* Signals are left to the program's threads. Faults are not blocked: a fault whose signal is
 * blocked kills the process without a report. */
static void start_helpers(int wanted)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t signals, before;
    sigfillset(&signals);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
        sigdelset(&signals, faults[k]);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    while (pool.num_helpers < wanted && start(&pool.helpers[pool.num_helpers]))
        pool.num_helpers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool.runs_until_retry = pool.num_helpers < wanted ? RUNS_UNTIL_RETRY : 0;
}

/* The number of helpers for a run, at most `wanted`. A failed start of a thread takes long: it is
 * not tried again at each run. */
static int find_helpers(int wanted)
{
    if (pool.num_helpers < wanted && --pool.runs_until_retry < 0)
        start_helpers(wanted);
    return smaller(pool.num_helpers, wanted);
}

/* ------------------------------------------------------------------------------- the pool -- */

static bool forks_are_watched;
static atomic_int num_forks; /* that have led to this process */

/* A forked child has no helpers, and no other thread that could have taken the pool. */
static void forget_helpers(void)
{
    atomic_fetch_add(&num_forks, 1);
    pool.num_helpers = pool.runs_until_retry = 0;
    atomic_store(&pool.taken, false);
}

static void watch_forks(void)
{
    forks_are_watched = pthread_atfork(NULL, NULL, forget_helpers) == 0;
}

static bool take_pool(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return forks_are_watched && !atomic_exchange_explicit(&pool.taken, true, memory_order_acquire);
}

bool rnl_team_run(int wanted, void (*member)(void *arg, int k, int members), void *arg)
{
    const int most = wanted > 1 ? smaller(wanted, rnl_num_threads()) : 1;
    if (most < 2 || !take_pool()) {
        member(arg, 0, 1);
        return true;
    }
    const uint64_t control = float_control();
    const int num_helpers = find_helpers(most - 1), forks_before = atomic_load(&num_forks);
    for (int k = 0; k < num_helpers; k++)
        set_to_work(&pool.helpers[k], num_helpers + 1, member, arg, control);
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
    /* cannot change before this member has arrived */
    const int round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    const int before = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (before == members - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&barrier->round, 1, memory_order_release);
        return true;
    }
    int64_t since_ns = 0;
    for (int turn = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round;) {
        if (turn == SPINS)
            since_ns = rnl_now_ns();
        turn = wait_turn(turn);
    }
    if (since_ns && before == 0)
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
        ms = smaller(CROWDED_MS + 2 * atomic_load(&crowded_ms), CROWDED_MOST_MS);
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
