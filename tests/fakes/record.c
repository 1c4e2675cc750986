/*
 * The log of calls, failures on request, live objects, and the end of a test that broke a rule.
 *
 * A test sets, in the environment or by the functions at the end:
 *     FAKE_LOG=FILE           write one line per call: its name, then name=value
 *     FAKE_FAIL=K:CUDA:CUDNN  the K-th call from now fails (from 1): a driver call with the first
 *                             status, a cuDNN call with the second
 */
#include "fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const KIND[FAKE_KINDS] = {"context", "pushed", "memory",     "stream",
                                             "event",   "graph",  "graph_exec", "handle",
                                             "dropout", "rnn",    "rnn_data",   "tensor"};

enum { BUCKETS = 4096 };

static pthread_mutex_t lock;
static pid_t pid;
static FILE *log_file;
static long calls, fail_at;
static int fail_cuda, fail_cudnn;
static CUresult sticky;
static long live[FAKE_KINDS];
static struct fake_object *objects[BUCKETS]; /* by address */

void fake_log(const char *path);
void fake_fail(long k, int cuda, int cudnn);

__attribute__((constructor)) static void begin(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    fake_log(getenv("FAKE_LOG"));
    long k;
    int cuda, cudnn;
    const char *fail = getenv("FAKE_FAIL");
    if (fail && sscanf(fail, "%ld:%d:%d", &k, &cuda, &cudnn) == 3)
        fake_fail(k, cuda, cudnn);
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
    if (log_file)
        fprintf(log_file, "died %s\n", text);
    _exit(FAKE_EXIT);
}

/* Log and count a call; return whether it must fail. */
static int log_call(const char *name, const char *format, va_list arguments)
{
    if (pid && pid != getpid())
        fake_die("%s is called in a child of the process that called cuInit", name);
    calls++;
    if (log_file) {
        fprintf(log_file, "%s ", name);
        vfprintf(log_file, format, arguments);
        fputc('\n', log_file);
    }
    return fail_at && calls == fail_at;
}

static int is_sticky(int status)
{
    return status == CU_CONTAINED || status == CU_ILLEGAL_ADDRESS ||
           (status > CU_LAUNCH_TIMEOUT && status <= CU_LAUNCH_FAILED) ||
           status == CU_TENSOR_MEMORY_LEAK || status == CU_EXTERNAL_DEVICE;
}

CUresult fake_driver_call(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int fails = log_call(name, format, arguments);
    va_end(arguments);
    if (!strcmp(name, "cuInit"))
        pid = getpid();
    else if (!pid)
        return CU_NOT_INITIALIZED;
    if (fails && is_sticky(fail_cuda))
        sticky = fail_cuda;
    if (fails)
        return fail_cuda;
    /* calls that work on a dead device: those for the stack of contexts and for no device */
    int free_of_device = !strncmp(name, "cuCtxP", 6) || !strncmp(name, "cuDevice", 8) ||
                         !strcmp(name, "cuInit");
    return free_of_device ? CU_OK : sticky;
}

int fake_cudnn_call(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int fails = log_call(name, format, arguments);
    va_end(arguments);
    return fails ? fail_cudnn : 0;
}

CUresult fake_sticky(void)
{
    return sticky;
}

void fake_count(enum fake_kind kind, int by)
{
    live[kind] += by;
}

static struct fake_object **bucket(const void *object)
{
    return &objects[(uintptr_t)object / 16 % BUCKETS];
}

void *fake_new(enum fake_kind kind, size_t nbytes)
{
    struct fake_object *made = calloc(1, nbytes);
    *made = (struct fake_object){.next = *bucket(made), .kind = kind, .alive = 1};
    *bucket(made) = made;
    fake_count(kind, 1);
    return made;
}

void fake_end(void *object)
{
    ((struct fake_object *)object)->alive = 0;
    fake_count(((struct fake_object *)object)->kind, -1);
}

void *fake_object(const void *object, enum fake_kind kind, const char *call)
{
    for (struct fake_object *o = *bucket(object); o; o = o->next)
        if (o == object) {
            if (o->kind != kind)
                fake_die("%s: %p is a %s, not a %s", call, object, KIND[o->kind], KIND[kind]);
            if (!o->alive)
                fake_die("%s: the %s %p was destroyed already", call, KIND[kind], object);
            return o;
        }
    fake_die("%s: %p is not a %s", call, object, KIND[kind]);
}

/* ---- for tests ---- */

/* Log calls to this file from now on; NULL: do not log. */
void fake_log(const char *path)
{
    LOCKED;
    if (log_file)
        fclose(log_file);
    log_file = path ? fopen(path, "a") : NULL;
    if (log_file)
        setvbuf(log_file, NULL, _IOLBF, BUFSIZ);
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
    sticky = CU_OK;
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
