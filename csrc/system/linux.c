/* The part of system.h for Linux: huge pages, the CPUs that a process may use, and tile
 * registers. */
#define _GNU_SOURCE /* madvise, sched_*; NOLINT(bugprone-reserved-identifier,cert-*) */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/min.h"
#include "system/system.h"

void *rnl_memory_new(int64_t nbytes)
{
    enum { HUGE_PAGE = 2 << 20, SOME_PAGES = 2 * HUGE_PAGE };
    const bool large = nbytes >= SOME_PAGES;
    void *memory;
    if (posix_memalign(&memory, large ? HUGE_PAGE : RNL_ALIGNMENT, (size_t)nbytes))
        return NULL;
    if (large)
        (void)madvise(memory, (size_t)nbytes, MADV_HUGEPAGE);
    return memory;
}

void rnl_memory_free(void *memory)
{
    free(memory);
}

/* -------------------------------------------------------------------------------- CPUs -- */

enum { MAX_PATH_NCHARS = 4096 };

/* Read the first line of a file in a folder; false: the file does not exist or is empty. */
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

/* Return the number of CPUs that a control group's quota allows: cgroup v2 has a single file, v1
 * has two. */
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
    if (quota < 1 || period < 1 || quota / period >= INT_MAX)
        return INT_MAX;
    return quota < period ? 1 : (int)(quota / period);
}

/* Return the mount point of the group's quota, NULL: no quota. v2 names no controllers, v1 has
 * "cpu" or "cpu,cpuacct". */
static const char *mounted_at(const char *controllers)
{
    if (*controllers == ':')
        return "/sys/fs/cgroup";
    /* quota_by() has checked that a colon follows. */
    /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound) */
    for (; *controllers != ':'; controllers += *controllers == ',') {
        const size_t nchars = strcspn(controllers, ",:");
        if (nchars == 3 && strncmp(controllers, "cpu", 3) == 0)
            return "/sys/fs/cgroup/cpu";
        controllers += nchars;
    }
    return NULL;
}

/* Return the smallest quota of a group and all parents of the group. In a container the group's
 * path may not exist, because the group itself is mounted: missing folders are skipped. line:
 * "4:cpu,cpuacct:/path" */
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
        return INT_MAX;
    snprintf(folder, sizeof folder, "%s%s", mount, path + 1);
    int least = quota_of(folder);
    for (char *cut; (cut = strrchr(folder, '/')) >= folder + strlen(mount);) {
        *cut = '\0';
        least = rnl_min_int(least, quota_of(folder));
    }
    return least;
}

static int quota(void)
{
    char line[MAX_PATH_NCHARS];
    int least = INT_MAX;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups))
        least = rnl_min_int(least, quota_by(line));
    if (groups)
        fclose(groups);
    return least;
}

/* The CPUs that a thread may use. The kernel refuses a set that is too small. */
typedef struct cpus {
    cpu_set_t sets[16]; /* 1024 CPUs per set */
} cpus;

static int affinity(void)
{
    cpus allowed;
    if (sched_getaffinity(0, sizeof allowed, allowed.sets) == 0)
        return CPU_COUNT_S(sizeof allowed, allowed.sets);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int rnl_num_cpus(void)
{
    return rnl_min_int(affinity(), quota());
}

int rnl_current_cpu(void)
{
    return sched_getcpu();
}

/* Linux wakes a thread on the CPU of the waking thread if all CPUs seem to be in use, and leaves
 * the thread on this CPU for milliseconds. CPUs of virtual machines seem to be in use while asleep.
 * The CPU is excluded only for the moment of the move. */
void rnl_leave_cpu(int cpu)
{
    cpus allowed;
    if (cpu < 0 || sched_getcpu() != cpu || sched_getaffinity(0, sizeof allowed, allowed.sets))
        return;
    cpus remaining = allowed;
    CPU_CLR_S((size_t)cpu, sizeof remaining, remaining.sets);
    /* fails if no CPU remains */
    if (sched_setaffinity(0, sizeof remaining, remaining.sets) == 0)
        (void)sched_setaffinity(0, sizeof allowed, allowed.sets);
}

/* See Documentation/arch/x86/xstate.rst of Linux. Linux refuses, for example, if a thread's stack
 * for signals is too small for the registers. */
bool rnl_allow_tiles(void)
{
#ifdef SYS_arch_prctl
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}
