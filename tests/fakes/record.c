/* The log of calls, failures on request, live objects, and the end of a test that broke a rule.
 * README.md tells how a test asks for them. */
#include "fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_STATUS = 86 };

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pid_t pid;    /* of the process that called cuInit */
static FILE *logged; /* NULL: nothing is */
static long calls, fail_at;
static int fail_cuda, fail_cudnn;
static char fail_name[100];
static struct fake_object *objects;

__attribute__((constructor)) static void begin(void)
{
    const char *fail = getenv("FAKE_FAIL"), *path = getenv("FAKE_LOG");
    logged = path ? fopen(path, "a") : NULL;
    if (logged)
        setvbuf(logged, NULL, _IOLBF, BUFSIZ);
    if (fail && sscanf(fail, "%99[^:]:%d:%d", fail_name, &fail_cuda, &fail_cudnn) == 3)
        fail_at = atol(fail_name);
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

/* After an error that destroys the context, only the calls work that do not use the device. */
static int uses_device(const char *name)
{
    return strncmp(name, "cudnn", 5) ? strncmp(name, "cuCtxP", 6) && strncmp(name, "cuDevice", 8)
                                     : !strcmp(name, "cudnnRNNForward");
}

static int must_fail(const char *name)
{
    const int sticks = fail_cuda == 700 || (fail_cuda > 702 && fail_cuda <= 719);
    if (!strcmp(name, fail_name) || (fail_at && calls == fail_at))
        return 1;
    return sticks && fail_at && calls > fail_at && uses_device(name);
}

int fake_has_failed(void)
{
    return fail_at && calls >= fail_at;
}

int fake_call(const char *name, const char *format, ...)
{
    char text[4000];
    va_list arguments;
    if (pid && pid != getpid())
        fake_die("%s is called in a child of the process that called cuInit", name);
    if (!strcmp(name, "cuInit"))
        pid = getpid();
    calls++;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (logged)
        fprintf(logged, "%s%s\n", name, text);
    return !must_fail(name) ? 0 : strncmp(name, "cudnn", 5) ? fail_cuda : fail_cudnn;
}

/* ---- objects ---- */

void *fake_new(const char *kind, size_t nbytes)
{
    struct fake_object *made = calloc(1, nbytes);
    *made = (struct fake_object){kind, objects, 1};
    return objects = made;
}

void *fake_object(const void *object, const char *kind, const char *call)
{
    const struct fake_object *const found = object;
    if (!found || strcmp(found->kind, kind))
        fake_die("%s: %p is not a %s", call, object, kind);
    if (!found->alive)
        fake_die("%s: the %s %p was destroyed already", call, kind, object);
    return (void *)object;
}

void fake_end(const void *object, const char *kind, const char *call)
{
    ((struct fake_object *)fake_object(object, kind, call))->alive = 0;
}

/* ---- for tests: README.md ---- */

long fake_calls(void)
{
    LOCKED;
    return calls;
}

void fake_fail(long k, int cuda, int cudnn)
{
    LOCKED;
    fail_at = k ? calls + k : 0;
    fail_cuda = cuda;
    fail_cudnn = cudnn;
}

long fake_live(const char *kind)
{
    LOCKED;
    long live = strcmp(kind, "pushed") ? 0 : fake_pushed;
    for (const struct fake_object *one = objects; one; one = one->next)
        live += one->alive && !strcmp(kind, one->kind);
    return live;
}
