/* system.h for WebAssembly with WASI: a single thread. */
#define _POSIX_C_SOURCE 200809L /* NOLINT(bugprone-reserved-identifier,cert-*) */
#include <stdlib.h>
#include <time.h>

#include "system/system.h"

void *rnl_memory_new(int64_t nbytes)
{
    void *memory;
    return posix_memalign(&memory, RNL_ALIGNMENT, (size_t)nbytes) ? NULL : memory;
}

void rnl_memory_free(void *memory)
{
    free(memory);
}

int64_t rnl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int rnl_num_cpus(void)
{
    return 1;
}

/* ------------------------------------------------------------ no threads and no forks -- */

bool rnl_thread_start(rnl_thread *thread, void (*run)(void *), void *arg)
{
    (void)thread, (void)run, (void)arg;
    return false;
}

void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value)
{
    (void)self, (void)word, (void)value;
}

void rnl_thread_wake(rnl_thread *thread)
{
    (void)thread;
}

void rnl_yield(void)
{
}

void rnl_nap(void)
{
}

bool rnl_watch_forks(void (*in_child)(void))
{
    (void)in_child;
    return true;
}
