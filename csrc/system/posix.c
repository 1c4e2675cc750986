/* The part of system.h that POSIX defines: threads, forks and the clock of Linux and macOS. */
#define _POSIX_C_SOURCE 200809L /* NOLINT(bugprone-reserved-identifier,cert-*) */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "system/system.h"

enum {
    STACK_NBYTES = 512 << 10, /* kernels use 64 KB, a sanitizer more; libc adds thread-locals */
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

typedef struct sleep_state {
    pthread_mutex_t lock;
    pthread_cond_t woken;
} sleep_state;

static sleep_state *sleep_state_of(rnl_thread *thread)
{
    _Static_assert(sizeof(sleep_state) <= sizeof thread->sleep_state,
                   "storage for a lock and a condition");
    return (sleep_state *)(void *)thread->sleep_state;
}

static void *begin(void *arg)
{
    const rnl_thread *const self = arg;
    self->run(self->arg);
    return NULL;
}

/* Create a thread that inherits blocked signals. The signals of faults are not blocked: a fault
 * with a blocked signal kills the process without a report. */
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
    pthread_mutex_init(&sleep_state_of(thread)->lock, NULL); /* again in a forked child */
    pthread_cond_init(&sleep_state_of(thread)->woken, NULL);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_NBYTES);
    const bool created = create(thread, &attr);
    pthread_attr_destroy(&attr);
    return created;
}

void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value)
{
    sleep_state *const state = sleep_state_of(self);
    pthread_mutex_lock(&state->lock);
    while (atomic_load(word) == value)
        pthread_cond_wait(&state->woken, &state->lock);
    pthread_mutex_unlock(&state->lock);
}

void rnl_thread_wake(rnl_thread *thread)
{
    sleep_state *const state = sleep_state_of(thread);
    /* once the lock is free, the thread has read the new value or waits for the signal */
    pthread_mutex_lock(&state->lock);
    pthread_mutex_unlock(&state->lock);
    pthread_cond_signal(&state->woken);
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
