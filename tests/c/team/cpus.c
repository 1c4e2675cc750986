/* Imitate other machines: the linker replaces the C library's functions by those below (--wrap). */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "forward/team.h"
#include "rnnlayout.h"
#include "system/system.h"
#include "team/parts.h"

/* -------------------------------------------------------------------- another machine -- */

typedef struct machine {
    int num_cpus; /* -1: cannot be determined */
    const char *files[6][2];
} machine;

static const machine *other; /* NULL: this machine */

int __real_sched_getaffinity(pid_t pid, size_t nbytes, cpu_set_t *set);
FILE *__real_fopen(const char *path, const char *how);
int __wrap_sched_getaffinity(pid_t pid, size_t nbytes, cpu_set_t *set);
FILE *__wrap_fopen(const char *path, const char *how);

int __wrap_sched_getaffinity(pid_t pid, size_t nbytes, cpu_set_t *set)
{
    if (!other)
        return __real_sched_getaffinity(pid, nbytes, set);
    CPU_ZERO_S(nbytes, set);
    for (int k = 0; k < other->num_cpus; k++)
        CPU_SET_S((size_t)(3 * k), nbytes, set);
    return other->num_cpus < 0 ? -1 : 0;
}

FILE *__wrap_fopen(const char *path, const char *how)
{
    if (!other)
        return __real_fopen(path, how);
    for (size_t k = 0; k < 6 && other->files[k][0]; k++)
        if (strcmp(other->files[k][0], path) == 0)
            return fmemopen((void *)(uintptr_t)other->files[k][1], strlen(other->files[k][1]), "r");
    return NULL;
}

/* The CPU of all threads, less than 0: the real one; and the moves that they ask for. */
static atomic_int shared_cpu = -1;
static atomic_int moves;
static cpu_set_t moved_to[2];

int __real_sched_getcpu(void);
int __wrap_sched_getcpu(void);
int __real_sched_setaffinity(pid_t pid, size_t nbytes, const cpu_set_t *set);
int __wrap_sched_setaffinity(pid_t pid, size_t nbytes, const cpu_set_t *set);

int __wrap_sched_getcpu(void)
{
    const int cpu = atomic_load(&shared_cpu);
    return cpu < 0 ? __real_sched_getcpu() : cpu;
}

/* Like Linux, refuse an empty set. */
int __wrap_sched_setaffinity(pid_t pid, size_t nbytes, const cpu_set_t *set)
{
    if (atomic_load(&shared_cpu) < 0)
        return __real_sched_setaffinity(pid, nbytes, set);
    const int move = atomic_fetch_add(&moves, 1);
    if (pid == 0 && move < 2 && nbytes >= sizeof *set)
        moved_to[move] = *set;
    return CPU_COUNT_S(nbytes, set) > 0 ? 0 : -1;
}

/* -------------------------------------------------------------------- number of threads -- */

#define GROUPS "/proc/self/cgroup"
#define V1 "/sys/fs/cgroup/cpu"
#define V2 "/sys/fs/cgroup"

void check_cpus(void)
{
    static const struct {
        int expected;
        machine machine;
    } rows[] = {
        {6, {6}},
        {1, {1}},
        {RNL_MAX_THREADS, {500}},
        {6, {6, {{GROUPS, ""}}}},
        {6, {6, {{GROUPS, "0::/\n"}}}},
        {6, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "max 100000\n"}}}},
        {6, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "700000 100000\n"}}}},
        {6, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "9000000000000 1\n"}}}},
        {3, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "399999 100000\n"}}}},
        {1, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "50000 100000\n"}}}},
        {6, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", "nonsense\n"}}}},
        {6, {6, {{GROUPS, "0::/\n"}, {V2 "/cpu.max", ""}}}},
        /* the smallest of this group and its parents */
        {2, {6, {{GROUPS, "0::/a/b\n"}, {V2 "/a/b/cpu.max", "2 1\n"}, {V2 "/a/cpu.max", "4 1\n"}}}},
        {4, {6, {{GROUPS, "0::/a/b\n"}, {V2 "/a/b/cpu.max", "5 1\n"}, {V2 "/a/cpu.max", "4 1\n"}}}},
        {5, {6, {{GROUPS, "0::/not/seen\n"}, {V2 "/cpu.max", "5 1\n"}}}},
        /* v1, with the other lines of such a machine */
        {2,
         {6,
          {{GROUPS, "5:cpuset:/x\n4:cpu,cpuacct:/d/e\n1:name=systemd:/\n0::/\n"},
           {V1 "/d/e/cpu.cfs_quota_us", "250000\n"},
           {V1 "/d/e/cpu.cfs_period_us", "100000\n"}}}},
        {3,
         {6,
          {{GROUPS, "2:cpuacct:/\n1:cpuacct,cpu:/not/seen\n"},
           {V1 "/cpu.cfs_quota_us", "30000\n"},
           {V1 "/cpu.cfs_period_us", "10000\n"}}}},
        {6,
         {6,
          {{GROUPS, "1:cpu:/\n"},
           {V1 "/cpu.cfs_quota_us", "-1\n"},
           {V1 "/cpu.cfs_period_us", "100000\n"}}}},
        {6, {6, {{GROUPS, "1:cpu:/\n"}, {V1 "/cpu.cfs_quota_us", "100000\n"}}}},
        {6,
         {6,
          {{GROUPS, "2:cpuacct:/a\n"},
           {V1 "/a/cpu.cfs_quota_us", "1\n"},
           {V1 "/a/cpu.cfs_period_us", "1\n"}}}},
        {6, {6, {{GROUPS, "no colon\n1:one\n"}, {V2 "/cpu.max", "1 1\n"}}}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        other = &rows[k].machine;
        rnl_set_num_threads(0);
        CHECK(rnl_num_threads() == rows[k].expected, "row %zu: %d", k, rnl_num_threads());
    }
    const machine unknown = {-1};
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    other = &unknown;
    rnl_set_num_threads(-5);
    CHECK(rnl_num_threads() == (online < RNL_MAX_THREADS ? online : RNL_MAX_THREADS), "%d",
          rnl_num_threads());
    other = NULL;
}

static int moves_from(int cpu)
{
    moves = 0;
    rnl_leave_cpu(cpu);
    return moves;
}

static void do_nothing(void *arg, int k, int members)
{
    (void)arg, (void)k, (void)members;
}

void check_moves(void)
{
    const machine one = {1}, six = {6};
    other = &six; /* CPUs 0, 3 ... 15 */
    atomic_store(&shared_cpu, 3);
    CHECK(moves_from(6) == 0, "the thread is not on CPU 6");
    CHECK(moves_from(-1) == 0, "the CPU is not known");
    CHECK(moves_from(3) == 2, "%d", moves);
    CHECK(CPU_COUNT(&moved_to[0]) == 5 && !CPU_ISSET(3, &moved_to[0]), "it leaves CPU 3");
    CHECK(CPU_COUNT(&moved_to[1]) == 6 && CPU_ISSET(3, &moved_to[1]), "it may come back");
    other = &one;
    atomic_store(&shared_cpu, 0);
    CHECK(moves_from(0) == 1, "no other CPU exists");
    other = NULL;
    rnl_set_num_threads(2);
    moves = 0;
    rnl_team_run(2, do_nothing, NULL);
    CHECK(moves > 0, "a helper leaves its caller's CPU");
    atomic_store(&shared_cpu, -1);
    rnl_set_num_threads(5);
}

void check_variables(void)
{
    static const struct {
        const char *ours, *omp;
        int expected;
    } rows[] = {
        {NULL, NULL, 6},  {"3", NULL, 3},     {"3", "2", 3},
        {NULL, "2", 2},   {NULL, "4,3,2", 4}, {"0", "2", 2},
        {"-1", NULL, 6},  {"", "", 6},        {"many", "5", 5},
        {"9", NULL, 9},   {"64", NULL, 64},   {"65", NULL, 64},
        {"1", "2", 1},    {"012", NULL, 12},  {NULL, "9999", 64},
        {" 7 ", NULL, 7}, {NULL, "no", 6},    {"99999999999999999999", NULL, 64},
    };
    static const machine six = {6};
    other = &six;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        unsetenv("RNNLAYOUT_NUM_THREADS");
        unsetenv("OMP_NUM_THREADS");
        if (rows[k].ours)
            setenv("RNNLAYOUT_NUM_THREADS", rows[k].ours, 1);
        if (rows[k].omp)
            setenv("OMP_NUM_THREADS", rows[k].omp, 1);
        if (k > 0) /* the first row is the process's first use */
            rnl_set_num_threads(0);
        CHECK(rnl_num_threads() == rows[k].expected, "row %zu: %d", k, rnl_num_threads());
        setenv("RNNLAYOUT_NUM_THREADS", "1", 1);
        CHECK(rnl_num_threads() == rows[k].expected, "row %zu: read twice", k);
    }
    unsetenv("RNNLAYOUT_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    rnl_set_num_threads(RNL_MAX_THREADS + 1);
    CHECK(rnl_num_threads() == RNL_MAX_THREADS, "%d", rnl_num_threads());
    rnl_set_num_threads(0);
    CHECK(rnl_num_threads() == 6, "%d", rnl_num_threads());
    other = NULL;
}
