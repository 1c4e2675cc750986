/* The part of system.h that POSIX defines: threads, forks and the clock of Linux and macOS. */
#define _POSIX_C_SOURCE 200809L /* NOLINT(bugprone-reserved-identifier,cert-*) */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "system/system.h"

enum {
    STACK_NBYTES = 512 << 10, /* kernels use 64 KB of it, a sanitizer more; libc puts TLS there */
    NAP_NS = 20000
};

int64_t rnl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void rnl_yield(void)
{
    sched_yield();
}

void rnl_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* ----------------------------------------------------------------------------- threads -- */

typedef struct bed {
    pthread_mutex_t lock;
    pthread_cond_t woken;
} bed;

static bed *bed_of(rnl_thread *thread)
{
    _Static_assert(sizeof(bed) <= sizeof thread->bed, "storage for a lock and a condition");
    return (bed *)(void *)thread->bed;
}

static void *begin(void *arg)
{
    const rnl_thread *const self = arg;
    self->run(self->arg);
    return NULL;
}

/* Create a thread that inherits blocked signals. Faults are not blocked: a fault whose signal is
 * blocked kills the process without a report. */
static bool create(rnl_thread *self, const pthread_attr_t *attr)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t signals, before;
    pthread_t thread;
    sigfillset(&signals);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
        sigdelset(&signals, faults[k]);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    const bool created = pthread_create(&thread, attr, begin, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return created;
}

bool rnl_thread_start(rnl_thread *thread, void (*run)(void *), void *arg)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr))
        return false;
    thread->run = run;
    thread->arg = arg;
    pthread_mutex_init(&bed_of(thread)->lock, NULL); /* anew, in a forked child */
    pthread_cond_init(&bed_of(thread)->woken, NULL);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_NBYTES);
    const bool created = create(thread, &attr);
    pthread_attr_destroy(&attr);
    return created;
}

void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value)
{
    bed *const own = bed_of(self);
    pthread_mutex_lock(&own->lock);
    while (atomic_load(word) == value)
        pthread_cond_wait(&own->woken, &own->lock);
    pthread_mutex_unlock(&own->lock);
}

void rnl_thread_wake(rnl_thread *thread)
{
    bed *const its = bed_of(thread);
    /* once the lock is free, the thread has seen the new value or waits for the signal */
    pthread_mutex_lock(&its->lock);
    pthread_mutex_unlock(&its->lock);
    pthread_cond_signal(&its->woken);
}

/* ------------------------------------------------------------------------------- forks -- */

static void (*_Atomic called_in_child)(void);
static bool forks_are_watched;

static void call_in_child(void)
{
    atomic_load (&called_in_child)();
}

static void watch_forks(void)
{
    forks_are_watched = pthread_atfork(NULL, NULL, call_in_child) == 0;
}

bool rnl_watch_forks(void (*in_child)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    atomic_store_explicit(&called_in_child, in_child, memory_order_relaxed);
    pthread_once(&once, watch_forks);
    return forks_are_watched;
}
