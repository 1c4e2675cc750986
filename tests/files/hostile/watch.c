/*
 * For LD_PRELOAD: what a process opens, starts and connects to, a line each in the file $WATCH_LOG:
 * "open PATH", "run PROGRAM", "connect". Below Python, so that what libraries do is seen too.
 *
 * Not seen: system calls that a library makes without the C library's functions.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* One write, so that the lines of two threads do not mix; the log is opened each time, for a child
 * closes what it inherits before it becomes another program. */
static void note(const char *what, const char *where, const char *path)
{
    char line[2 * PATH_MAX + 16];
    const char *log = getenv("WATCH_LOG");
    int n = snprintf(line, sizeof line, "%s %s%s%s\n", what, where, *where ? "/" : "",
                     path ? path : "");
    if (!log || n < 0)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    syscall(SYS_write, fd, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
    syscall(SYS_close, fd);
}

static void note_at(int folder, const char *path)
{
    char link[64], where[PATH_MAX] = "";
    if (folder != AT_FDCWD && path && path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        long n = syscall(SYS_readlinkat, AT_FDCWD, link, where, sizeof where - 1);
        where[n > 0 ? n : 0] = 0;
    }
    note("open", where, path);
}

/* The C library's own function of this name. */
#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        MODE(flags)                                                                                \
        note("open", "", path);                                                                    \
        return NEXT(name)(path, flags, mode);                                                      \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int folder, const char *path, int flags, ...)                                         \
    {                                                                                              \
        MODE(flags)                                                                                \
        note_at(folder, path);                                                                     \
        return NEXT(name)(folder, path, flags, mode);                                              \
    }
OPENAT(openat)
OPENAT(openat64)

/* What a compiler makes of open() with -D_FORTIFY_SOURCE. */
#define OPEN_2(name)                                                                               \
    int name(const char *path, int flags);                                                         \
    int name(const char *path, int flags)                                                          \
    {                                                                                              \
        note("open", "", path);                                                                    \
        return NEXT(name)(path, flags);                                                            \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                                             \
    int name(int folder, const char *path, int flags);                                             \
    int name(int folder, const char *path, int flags)                                              \
    {                                                                                              \
        note_at(folder, path);                                                                     \
        return NEXT(name)(folder, path, flags);                                                    \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define WITH_PATH(what, type, name, arguments, ...)                                                \
    type name arguments                                                                            \
    {                                                                                              \
        note(what, "", path);                                                                      \
        return NEXT(name)(__VA_ARGS__);                                                            \
    }
WITH_PATH("open", int, creat, (const char *path, mode_t mode), path, mode)
WITH_PATH("open", int, creat64, (const char *path, mode_t mode), path, mode)
WITH_PATH("open", FILE *, fopen, (const char *path, const char *mode), path, mode)
WITH_PATH("open", FILE *, fopen64, (const char *path, const char *mode), path, mode)
WITH_PATH("open", FILE *, freopen, (const char *path, const char *mode, FILE *file), path, mode,
          file)
WITH_PATH("open", FILE *, freopen64, (const char *path, const char *mode, FILE *file), path, mode,
          file)
WITH_PATH("open", DIR *, opendir, (const char *path), path)
WITH_PATH("run", void *, dlopen, (const char *path, int flags), path, flags)
WITH_PATH("run", int, system, (const char *path), path)
WITH_PATH("run", FILE *, popen, (const char *path, const char *mode), path, mode)
WITH_PATH("run", int, execv, (const char *path, char *const a[]), path, a)
WITH_PATH("run", int, execvp, (const char *path, char *const a[]), path, a)
WITH_PATH("run", int, execve, (const char *path, char *const a[], char *const e[]), path, a, e)

#define SPAWN(name)                                                                                \
    WITH_PATH("run", int, name,                                                                    \
              (pid_t *restrict pid, const char *restrict path,                                     \
               const posix_spawn_file_actions_t *restrict actions,                                 \
               const posix_spawnattr_t *restrict attributes, char *const a[restrict],              \
               char *const e[restrict]),                                                           \
              pid, path, actions, attributes, a, e)
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

pid_t fork(void)
{
    note("run", "", "fork");
    return NEXT(fork)();
}

int connect(int fd, const struct sockaddr *to, socklen_t nbytes)
{
    note("connect", "", "");
    return NEXT(connect)(fd, to, nbytes);
}
