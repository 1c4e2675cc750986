/* system.h for Windows, 8 and later. */
#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>

#include "system/system.h"

enum { STACK_NBYTES = 512 << 10 }; /* kernels use 64 KB */

void *rnl_memory_new(int64_t nbytes)
{
    return _aligned_malloc((size_t)nbytes, RNL_ALIGNMENT);
}

void rnl_memory_free(void *memory)
{
    _aligned_free(memory);
}

int64_t rnl_now_ns(void)
{
    LARGE_INTEGER now, per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&per_second);
    /* whole seconds are multiplied separately, so that no product overflows */
    return now.QuadPart / per_second.QuadPart * 1000000000 +
           now.QuadPart % per_second.QuadPart * 1000000000 / per_second.QuadPart;
}

/* The CPUs of this process's affinity: at most the 64 CPUs of a processor group. */
int rnl_num_cpus(void)
{
    DWORD_PTR process_mask, system_mask;
    return GetProcessAffinityMask(GetCurrentProcess(), &process_mask, &system_mask)
               ? __builtin_popcountll(process_mask)
               : 0;
}

/* ----------------------------------------------------------------------------- threads -- */

typedef struct sleep_state {
    SRWLOCK lock;
    CONDITION_VARIABLE woken;
} sleep_state;

static sleep_state *sleep_state_of(rnl_thread *thread)
{
    _Static_assert(sizeof(sleep_state) <= sizeof thread->sleep_state,
                   "storage for a lock and a condition");
    return (sleep_state *)(void *)thread->sleep_state;
}

static DWORD WINAPI begin(void *arg)
{
    const rnl_thread *const self = arg;
    self->run(self->arg);
    return 0;
}

bool rnl_thread_start(rnl_thread *thread, void (*run)(void *), void *arg)
{
    thread->run = run;
    thread->arg = arg;
    InitializeSRWLock(&sleep_state_of(thread)->lock);
    InitializeConditionVariable(&sleep_state_of(thread)->woken);
    const HANDLE started = CreateThread(NULL, STACK_NBYTES, begin, thread,
                                        STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return started && CloseHandle(started); /* the thread goes on */
}

void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value)
{
    sleep_state *const state = sleep_state_of(self);
    AcquireSRWLockExclusive(&state->lock);
    while (atomic_load(word) == value)
        SleepConditionVariableSRW(&state->woken, &state->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&state->lock);
}

void rnl_thread_wake(rnl_thread *thread)
{
    sleep_state *const state = sleep_state_of(thread);
    /* once the lock is free, the thread has read the new value or waits for the signal */
    AcquireSRWLockExclusive(&state->lock);
    ReleaseSRWLockExclusive(&state->lock);
    WakeConditionVariable(&state->woken);
}

void rnl_yield(void)
{
    SwitchToThread();
}

/* Not Sleep(1): it may last 15 ms. */
void rnl_nap(void)
{
    Sleep(0);
}

bool rnl_watch_forks(void (*in_child)(void))
{
    (void)in_child;
    return true;
}
