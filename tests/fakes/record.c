/*
 * The log of calls, failures on request, live objects, and the end of a test that broke a rule.
 *
 * A test sets, in the environment or by the functions at the end:
 *     FAKE_LOG=FILE           write one line per call: its name, then name=value
 *     FAKE_FAIL=K:CUDA:CUDNN  the K-th call from now fails (from 1): a driver call with the first
 *                             status, a cuDNN call with the second; K may be the name of a call,
 *                             which then always fails
 */
#include "fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_STATUS = 86 };

static const char *const KIND[FAKE_KINDS] = {"context", "pushed",   "memory", "stream",
                                             "event",   "graph",    "handle", "dropout",
                                             "rnn",     "rnn_data", "tensor"};

static pthread_mutex_t lock;
static pid_t pid;     /* of the process that called cuInit */
static FILE *logs[2]; /* the environment's and the test's; NULL: none */
static long calls, fail_at;
static int fail_cuda, fail_cudnn, sticky;
static char fail_name[100];
static long live[FAKE_KINDS];

void fake_log(const char *path);
long fake_calls(void);
void fake_fail(long k, int cuda, int cudnn);
long fake_live(const char *kind);

static FILE *open_log(const char *path)
{
    FILE *const file = path ? fopen(path, "a") : NULL;
    if (file)
        setvbuf(file, NULL, _IOLBF, BUFSIZ);
    return file;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    logs[0] = open_log(getenv("FAKE_LOG"));
    long k;
    int cuda, cudnn;
    const char *fail = getenv("FAKE_FAIL");
    if (fail && sscanf(fail, "%ld:%d:%d", &k, &cuda, &cudnn) == 3)
        fake_fail(k, cuda, cudnn);
    else if (fail)
        sscanf(fail, "%99[^:]:%d:%d", fail_name, &fail_cuda, &fail_cudnn);
}

int fake_environment(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fake_unlock(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}

void fake_die(const char *format, ...)
{
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fake: %s\n", text);
    fflush(stderr);
    _exit(EXIT_STATUS);
}

/* Log and count a call; return whether it must fail. */
static int log_call(const char *name, const char *format, va_list arguments)
{
    char text[4000];
    if (pid && pid != getpid())
        fake_die("%s is called in a child of the process that called cuInit", name);
    calls++;
    vsnprintf(text, sizeof text, format, arguments);
    for (int i = 0; i < 2; i++)
        if (logs[i])
            fprintf(logs[i], "%s %s\n", name, text);
    return (fail_at && calls == fail_at) || !strcmp(name, fail_name);
}

static int is_sticky(int status)
{
    return status == 700 || (status > 702 && status <= 719); /* an illegal address and the like */
}

int fake_driver_call(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int fails = log_call(name, format, arguments);
    va_end(arguments);
    if (!strcmp(name, "cuInit"))
        pid = getpid();
    else if (!pid && strcmp(name, "cuDriverGetVersion"))
        fake_die("%s is called before cuInit", name);
    if (fails && is_sticky(fail_cuda))
        sticky = fail_cuda;
    if (fails)
        return fail_cuda;
    /* on a dead device, calls work that are for the stack of contexts or for no device */
    const int works = !strncmp(name, "cuCtxP", 6) || !strncmp(name, "cuDevice", 8);
    return works ? 0 : sticky;
}

int fake_cudnn_call(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int fails = log_call(name, format, arguments);
    va_end(arguments);
    return fails ? fail_cudnn : 0;
}

int fake_sticky(void)
{
    return sticky;
}

/* ---- objects ---- */

void fake_count(enum fake_kind kind, int by)
{
    live[kind] += by;
}

void *fake_new(enum fake_kind kind, size_t nbytes)
{
    struct fake_object *made = calloc(1, nbytes);
    *made = (struct fake_object){kind, 1};
    fake_count(kind, 1);
    return made;
}

void *fake_object(const void *object, enum fake_kind kind, const char *call)
{
    const struct fake_object *const found = object;
    if (!found || found->kind != kind)
        fake_die("%s: %p is not a %s", call, object, KIND[kind]);
    if (!found->alive)
        fake_die("%s: the %s %p was destroyed already", call, KIND[kind], object);
    return (void *)object;
}

void fake_end(const void *object, enum fake_kind kind, const char *call)
{
    ((struct fake_object *)fake_object(object, kind, call))->alive = 0;
    fake_count(kind, -1);
}

/* ---- for tests ---- */

/* Log calls to this file too from now on; NULL: no longer. */
void fake_log(const char *path)
{
    LOCKED;
    if (logs[1])
        fclose(logs[1]);
    logs[1] = open_log(path);
}

/* The number of calls so far, over both libraries. */
long fake_calls(void)
{
    LOCKED;
    return calls;
}

/* Make the k-th call from now fail; 0: none. A sticky error is forgotten. */
void fake_fail(long k, int cuda, int cudnn)
{
    LOCKED;
    fail_at = k ? calls + k : 0;
    fail_cuda = cuda;
    fail_cudnn = cudnn;
    sticky = 0;
}

/* The number of live objects of a kind, by its name in KIND; -1: no such kind. */
long fake_live(const char *kind)
{
    LOCKED;
    for (int i = 0; i < FAKE_KINDS; i++)
        if (!strcmp(kind, KIND[i]))
            return live[i];
    return -1;
}
