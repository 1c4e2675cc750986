/* The operating system as the core sees it. The build chooses the files for a system; no file
 * outside csrc/system depends on the system. */
#ifndef RNL_SYSTEM_H
#define RNL_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Allocate memory aligned to RNL_ALIGNMENT bytes, in large pages if nbytes is large and the system
 * supports large pages. NULL: out of memory. rnl_memory_free() accepts NULL. */
enum { RNL_ALIGNMENT = 64 };
void *rnl_memory_new(int64_t nbytes);
void rnl_memory_free(void *memory);

/* Return the nanoseconds since a fixed moment. The number never decreases. */
int64_t rnl_now_ns(void);

/* Return the number of threads of this process that may run at the same time; less than 1:
 * unknown. */
int rnl_num_cpus(void);

/* Return the CPU that runs the calling thread; less than 0: unknown. */
int rnl_current_cpu(void);

/* Move the calling thread to another CPU, if the thread runs on this CPU and may use another CPU.
 * Do nothing on a system without a call that moves threads. */
void rnl_leave_cpu(int cpu);

/* Request permission to use the CPU's tile registers in this process; the system then saves the
 * registers. False: the system refuses, or supports no such request. */
bool rnl_allow_tiles(void);

/* A thread that lives as long as the process. */
typedef struct rnl_thread {
    void (*run)(void *arg);
    void *arg;
    _Alignas(16) unsigned char sleep_state[128]; /* a lock and a condition of the system */
} rnl_thread;

/* Start run(arg) in a thread. run never returns. The thread handles no signals: all signals go to
 * the program's threads. In a forked child the same thread can be started again. */
bool rnl_thread_start(rnl_thread *thread, void (*run)(void *arg), void *arg);

/* Sleep while *word is value. Called by the thread itself. */
void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value);

/* Wake a thread. Called by another thread, after a change of *word. */
void rnl_thread_wake(rnl_thread *thread);

/* Leave the CPU to any thread that is ready (yield), or for some tens of microseconds (nap). Called
 * in a loop that waits for another thread. */
void rnl_yield(void);
void rnl_nap(void);

/* Call in_child in every forked child from now on. All calls must pass the same function. False:
 * impossible. A system without fork returns true and never calls in_child. */
bool rnl_watch_forks(void (*in_child)(void));

#endif
