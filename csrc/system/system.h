/* What the core needs of the operating system. The build chooses the files for one system: no other
 * file of the core knows which it is. */
#ifndef RNL_SYSTEM_H
#define RNL_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Memory aligned to RNL_ALIGNMENT bytes, in large pages if it is large and the system has them.
 * NULL: out of memory. Free it with rnl_memory_free(), which accepts NULL. */
enum { RNL_ALIGNMENT = 64 };
void *rnl_memory_new(int64_t nbytes);
void rnl_memory_free(void *memory);

/* Nanoseconds since some moment; never goes back. */
int64_t rnl_now_ns(void);

/* How many threads of this process may run at the same time; less than 1: unknown. */
int rnl_num_cpus(void);

/* The CPU that runs the calling thread; less than 0: unknown. */
int rnl_current_cpu(void);

/* If the calling thread runs on this CPU, move it to another one, if it may use another. A system
 * whose threads cannot move themselves does nothing. */
void rnl_leave_cpu(int cpu);

/* May this process use the CPU's tile registers from now on? Asks the system, which then saves
 * them. False: it refuses, or cannot be asked. */
bool rnl_allow_tiles(void);

/* A thread that lives as long as the process. */
typedef struct rnl_thread {
    void (*run)(void *arg);
    void *arg;
    _Alignas(16) unsigned char bed[128]; /* the system's lock and condition */
} rnl_thread;

/* Start run(arg), which never returns, in a thread that handles no signals: they are left to the
 * program's threads. In a forked child the same thread can be started again. */
bool rnl_thread_start(rnl_thread *thread, void (*run)(void *arg), void *arg);

/* Called by the thread itself: sleep while *word is value. */
void rnl_thread_sleep(rnl_thread *self, const atomic_int *word, int value);

/* Called by another thread after it has changed *word. */
void rnl_thread_wake(rnl_thread *thread);

/* Called in a loop that waits for another thread: leave the CPU to any thread that is ready, or for
 * some tens of microseconds. */
void rnl_yield(void);
void rnl_nap(void);

/* Call in_child in every forked child from now on; the same function each time. False: impossible.
 * A system without fork has nothing to call. */
bool rnl_watch_forks(void (*in_child)(void));

#endif
