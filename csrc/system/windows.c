/* system.h for Windows, 8 and later. */
#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>

#include "system/system.h"

enum { STACK_NBYTES = 512 << 10 }; /* kernels use 64 KB of it */

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
    /* whole seconds apart, so that no product overflows */
    return now.QuadPart / per_second.QuadPart * 1000000000 +
           now.QuadPart % per_second.QuadPart * 1000000000 / per_second.QuadPart;
}

/* Those of this process's affinity; a process has at most 64 unless it asks for more. */
int rnl_num_cpus(void)
{
    DWORD_PTR own, all;
    return GetProcessAffinityMask(GetCurrentProcess(), &own, &all) ? __builtin_popcountll(own) : 0;
}

int rnl_current_cpu(void)
{
    return -1;
}

void rnl_leave_cpu(int cpu)
{
    (void)cpu;
}

/* EnableProcessOptionalXStateFeatures() of Windows 11 could ask; nothing has tested that. */
bool rnl_allow_tiles(void)
{
    return false;
}

/* ----------------------------------------------------------------------------- threads -- */

typedef struct bed {
    SRWLOCK lock;
    CONDITION_VARIABLE woken;
} bed;

static bed *bed_of(rnl_thread *thread)
{
    _Static_assert(sizeof(bed) <= sizeof thread->bed, "storage for a lock and a condition");
    return (bed *)(void *)thread->bed;
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
    InitializeSRWLock(&bed_of(thread)->lock);
    InitializeConditionVariable(&bed_of(thread)->woken);
    const HANDLE started = CreateThread(NULL, STACK_NBYTES, begin, thread,
                                        STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return started && CloseHandle(started); /* the thread goes on */
}

void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value)
{
    bed *const own = bed_of(self);
    AcquireSRWLockExclusive(&own->lock);
    while (atomic_load(word) == value)
        SleepConditionVariableSRW(&own->woken, &own->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&own->lock);
}

void rnl_thread_wake(rnl_thread *thread)
{
    bed *const its = bed_of(thread);
    /* once the lock is free, the thread has seen the new value or waits for the signal */
    AcquireSRWLockExclusive(&its->lock);
    ReleaseSRWLockExclusive(&its->lock);
    WakeConditionVariable(&its->woken);
}

void rnl_yield(void)
{
    SwitchToThread();
}

/* Not Sleep(1), which may last 15 ms. */
void rnl_nap(void)
{
    Sleep(0);
}

bool rnl_watch_forks(void (*in_child)(void))
{
    (void)in_child;
    return true;
}
