/* Does a team do what team.h says, also with several callers, and can its threads use the library
 * at the same time? The linker replaces pthread_create (--wrap), so that threads cannot be started,
 * and the clock. */
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "forward/team.h"
#include "rnnlayout.h"
#include "system/system.h"
#include "team/parts.h"

enum { SECONDS_UNTIL_STUCK = 1200 }; /* for 0.3 s of work: other processes use the CPUs too */

/* By default, ThreadSanitizer ends a child that starts threads if its parent had threads. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

static int threads_left = 1 << 20;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    return threads_left-- > 0 ? __real_pthread_create(thread, attr, run, arg) : 11;
}

static _Atomic int64_t now_ns = 1, clock_readings;

int64_t __wrap_rnl_now_ns(void);
int64_t __wrap_rnl_now_ns(void)
{
    atomic_fetch_add(&clock_readings, 1);
    return atomic_load(&now_ns);
}

/* ------------------------------------------------------------------------------- one run -- */

/* The input of all members, and their outputs. */
typedef struct visit {
    int input;
    int calls[RNL_MAX_THREADS], members[RNL_MAX_THREADS], outputs[RNL_MAX_THREADS];
    pthread_t threads[RNL_MAX_THREADS];
} visit;

static void look_in(void *arg, int k, int members)
{
    visit *const v = arg;
    v->calls[k]++;
    v->members[k] = members;
    v->outputs[k] = v->input + k;
    v->threads[k] = pthread_self();
}

/* Run a team and return its number of members, or -1 if a result is wrong. It does not use CHECK(),
 * so that any thread can call it. */
static int members_of_run(int wanted, int input)
{
    visit v = {.input = input};
    const bool all_worked = rnl_team_run(wanted, look_in, &v);
    const int members = v.members[0];
    bool right = all_worked && members >= 1 && members <= RNL_MAX_THREADS &&
                 pthread_equal(v.threads[0], pthread_self());
    for (int k = 0; right && k < RNL_MAX_THREADS; k++) {
        if (k >= members)
            right = v.calls[k] == 0;
        else
            right = v.calls[k] == 1 && v.members[k] == members && v.outputs[k] == input + k;
        for (int other_k = 0; right && other_k < k && k < members; other_k++)
            right = !pthread_equal(v.threads[k], v.threads[other_k]);
    }
    return right ? members : -1;
}

static void check_run(int wanted, int expected)
{
    const int members = members_of_run(wanted, (int)random_below(1000));
    CHECK(members == expected, "%d wanted: %d, expected %d", wanted, members, expected);
}

static void check_members(void)
{
    static const int limits[] = {1, 2, 5, 2, 64, 3};
    static const int wanted[] = {-1, 0, 1, 2, 3, 5, 4, 7, 2};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        rnl_set_num_threads(limits[l]);
        for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
            const int n = wanted[w] < limits[l] ? wanted[w] : limits[l];
            check_run(wanted[w], n < 1 ? 1 : n);
        }
    }
    rnl_set_num_threads(0);
    check_run(1000, rnl_num_threads());
    rnl_set_num_threads(5);
}

/* Return the number of runs until a run has so many members, at most 10000. */
static int runs_until(int members, int wanted)
{
    int runs = 0;
    while (runs < 10000 && members_of_run(wanted, runs) != members)
        runs++;
    return runs;
}

/* A thread that cannot be started is tried again, but not at every run. */
static void check_refused_threads(void)
{
    rnl_set_num_threads(5);
    threads_left = 0;
    for (int k = 0; k < 100; k++)
        check_run(5, 1);
    CHECK(threads_left == -1, "asked for %d times", -threads_left);
    threads_left = 2;
    CHECK(runs_until(3, 5) < 10000, "two threads can be had");
    for (int k = 0; k < 100; k++)
        check_run(5, 3);
    CHECK(threads_left == -1, "asked for %d times", -threads_left);
    check_run(2, 2);
    threads_left = 1 << 20;
    CHECK(runs_until(5, 5) < 10000, "threads can be had");
}

/* Runs one after the other; then with pauses, so that helpers are falling asleep, or asleep. */
static void check_many_runs(void)
{
    for (int k = 0; k < check_turns(5000); k++)
        check_run(2, 2);
    for (int k = 0; k < check_turns(500); k++) {
        check_run(2 + k % 2, 2 + k % 2);
        const int64_t turns = random_below(4000);
        for (volatile int64_t turn = 0; turn < turns; turn++)
            continue;
        if (k % 10 == 0)
            usleep(200);
    }
}

/* ------------------------------------------------------------------------------ barriers -- */

/* A round takes long if members share a CPU. */
static int rounds_of(int members)
{
    return check_turns(members < 3 ? 2000 : 200);
}

typedef struct meeting {
    rnl_barrier barrier;
    int at[RNL_MAX_THREADS]; /* the round of each member; not atomic, because the barrier orders
                                them */
    int count;               /* incremented by each member in turn */
    int wrong[RNL_MAX_THREADS];
} meeting;

static void meet(void *arg, int k, int members)
{
    meeting *const m = arg;
    for (int round = 0; round < rounds_of(members); round++) {
        m->at[k] = round;
        if (round % members == k)
            m->count++;
        m->wrong[k] += !rnl_barrier_wait(&m->barrier, members);
        for (int j = 0; j < members; j++)
            m->wrong[k] += m->at[j] != round;
        m->wrong[k] += m->count != round + 1;
        m->wrong[k] += !rnl_barrier_wait(&m->barrier, members);
    }
}

static void check_barriers(void)
{
    for (int wanted = 1; wanted <= 5; wanted++) {
        meeting m = {.count = 0};
        rnl_barrier_init(&m.barrier);
        rnl_team_run(wanted, meet, &m);
        const int rounds = rounds_of(wanted);
        CHECK(m.count == rounds, "%d", m.count);
        for (int k = 0; k < wanted; k++)
            CHECK(m.wrong[k] == 0 && m.at[k] == rounds - 1, "%d of %d: %d", k, wanted, m.wrong[k]);
    }
    /* the round goes past the largest int */
    meeting m = {.count = 0};
    rnl_barrier_init(&m.barrier);
    atomic_init(&m.barrier.round, INT32_MAX - rounds_of(2));
    rnl_team_run(2, meet, &m);
    CHECK(m.count == rounds_of(2) && !m.wrong[0] && !m.wrong[1], "%d", m.count);
}

/* Some members wait until all of them have stopped to spin, which they show by reading the clock;
 * then the last one comes, at 1000 ns. */
static void come_late(void *arg, int k, int members)
{
    rnl_barrier *const barrier = arg;
    while (k == members - 1 && atomic_load(&clock_readings) < members - 1)
        usleep(100);
    if (k == members - 1)
        atomic_fetch_add(&now_ns, 1000);
    (void)rnl_barrier_wait(barrier, members);
}

/* The loss of a round is that of one member, not of all that have waited. */
static void check_losses(void)
{
    for (int members = 2; members <= 4; members++) {
        rnl_barrier barrier;
        rnl_barrier_init(&barrier);
        for (int round = 1; round <= 3; round++) {
            atomic_store(&clock_readings, 0);
            rnl_team_run(members, come_late, &barrier);
            const int64_t lost = atomic_load(&barrier.lost_ns);
            CHECK(lost == 1000 * round, "%d members, round %d: %" PRId64, members, round, lost);
        }
    }
}

/* Calls share nothing for 10 ms after a crowded one, longer after the next. */
static void check_crowded(void)
{
    static const int ms[] = {10, 30, 70, 150, 310, 630, 1000, 1000};
    CHECK(!rnl_team_is_crowded(), "at first");
    for (size_t k = 0; k < sizeof ms / sizeof *ms; k++) {
        rnl_team_was_crowded(true);
        atomic_fetch_add(&now_ns, ms[k] * INT64_C(1000000) - 1);
        CHECK(rnl_team_is_crowded(), "%d ms", ms[k]);
        atomic_fetch_add(&now_ns, 1);
        CHECK(!rnl_team_is_crowded(), "%d ms", ms[k]);
    }
    rnl_team_was_crowded(true);
    rnl_team_was_crowded(false);
    CHECK(!rnl_team_is_crowded(), "after a call that was not");
    rnl_team_was_crowded(true);
    atomic_fetch_add(&now_ns, 10000000);
    CHECK(!rnl_team_is_crowded(), "10 ms again");
}

/* --------------------------------------------------------------------- more than one caller -- */

static void run_within(void *arg, int k, int members)
{
    int *const found = arg;
    found[k] = members_of_run(members + 1, k);
}

static void *run_often(void *arg)
{
    int *const wrong = arg;
    for (int k = 0; k < 500; k++) {
        const int members = members_of_run(3, k);
        *wrong += members != 1 && members != 3;
    }
    return NULL;
}

static void check_callers(void)
{
    int found[RNL_MAX_THREADS] = {0};
    rnl_team_run(3, run_within, found);
    for (int k = 0; k < 3; k++)
        CHECK(found[k] == 1, "within %d: %d", k, found[k]);
    pthread_t threads[3];
    int wrong[3] = {0};
    for (int k = 0; k < 3; k++)
        if (pthread_create(&threads[k], NULL, run_often, &wrong[k]))
            abort();
    for (int k = 0; k < 3; k++) {
        pthread_join(threads[k], NULL);
        CHECK(wrong[k] == 0, "thread %d: %d", k, wrong[k]);
    }
    check_run(3, 3);
}

/* --------------------------------------------------------------------- state of a helper -- */

typedef struct setting {
    double third[RNL_MAX_THREADS];
    sigset_t blocked[RNL_MAX_THREADS];
} setting;

static void look_around(void *arg, int k, int members)
{
    (void)members;
    setting *const s = arg;
    const volatile double one = 1, three = 3;
    s->third[k] = one / three;
    pthread_sigmask(SIG_BLOCK, NULL, &s->blocked[k]);
}

static void check_settings(void)
{
    static const int roundings[] = {FE_UPWARD, FE_TONEAREST};
    const volatile double one = 1, three = 3;
    const double nearest = one / three;
    for (size_t r = 0; r < 2; r++) {
        setting s;
        fesetround(roundings[r]);
        rnl_team_run(3, look_around, &s);
        fesetround(FE_TONEAREST);
        for (int k = 0; k < 3; k++) {
            CHECK((s.third[k] > nearest) == (r == 0), "%d rounds otherwise", k);
            CHECK(sigismember(&s.blocked[k], SIGINT) == (k > 0), "%d", k);
            CHECK(sigismember(&s.blocked[k], SIGPROF) == (k > 0), "%d", k);
            CHECK(sigismember(&s.blocked[k], SIGSEGV) == 0, "%d", k);
        }
    }
}

/* --------------------------------------------------------------------------------- forks -- */

/* Run the checks in a child. Return whether it ends, and without a failure. */
static bool well_in_child(void (*check)(void))
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS_UNTIL_STUCK / 2);
        check_passed = check_failed = 0;
        check();
        _exit(check_failed > 0); /* leaks at exit do not matter here */
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static void *do_nothing(void *arg)
{
    return arg;
}

static void start_thread(void)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, do_nothing, NULL) && !pthread_join(thread, NULL), "no");
}

static void check_child(void)
{
    check_run(3, 3);
    check_barriers();
}

static pid_t forked_within;
static int rounds_after[RNL_MAX_THREADS];

/* The first member forks in the middle of a run. */
static void fork_within(void *arg, int k, int members)
{
    rnl_barrier *const barrier = arg;
    (void)rnl_barrier_wait(barrier, members);
    if (k == 0 && members > 1)
        forked_within = fork();
    rounds_after[k] = 0;
    while (rounds_after[k] < 100 && rnl_barrier_wait(barrier, members))
        rounds_after[k]++;
}

/* The run ends in the parent as usual, and in the child at the next wait. Later runs are as
 * usual in both. */
static void check_fork_within(void)
{
    rnl_barrier barrier;
    rnl_barrier_init(&barrier);
    const bool all_worked = rnl_team_run(3, fork_within, &barrier);
    const bool is_child = forked_within == 0;
    if (is_child) {
        alarm(SECONDS_UNTIL_STUCK / 2);
        check_failed = 0;
    }
    CHECK(forked_within >= 0, "%s", "the process cannot be forked");
    CHECK(all_worked == !is_child && rounds_after[0] == (is_child ? 0 : 100), "%d rounds in the %s",
          rounds_after[0], is_child ? "child" : "parent");
    check_child();
    if (is_child)
        _exit(check_failed > 0);
    int status = -1;
    CHECK(waitpid(forked_within, &status, 0) == forked_within && WIFEXITED(status) &&
              WEXITSTATUS(status) == 0,
          "the child: %d", status);
}

static void check_forks(void)
{
    if (!well_in_child(start_thread)) { /* qemu's user mode */
        printf(
            "forks are not checked: the child of a process with threads cannot start a thread\n");
        return;
    }
    CHECK(well_in_child(check_child), "forked while helpers spin");
    usleep(20000);
    CHECK(well_in_child(check_child), "forked while helpers sleep");
    check_fork_within();
}

int main(void)
{
    alarm(SECONDS_UNTIL_STUCK);
    check_variables();
    check_cpus();
    check_refused_threads();
    check_members();
    check_moves();
    check_many_runs();
    check_barriers();
    check_losses();
    check_crowded();
    check_callers();
    check_conversions();
    check_settings();
    check_forks();
    return check_end();
}
