/*
 * What the files of the fakes share. The declarations of both libraries are those of csrc, which
 * run/gpu/test_cudnn_abi.py compares with the vendor's headers.
 */
#ifndef FAKE_FAKE_H
#define FAKE_FAKE_H

#include <stdint.h>

#include "forward/cudnn/abi.h"

#define CUDNN(returns, name, arguments) returns name arguments;
#define DRIVER(returns, name, arguments) returns name arguments;
#include "forward/cudnn/symbols.def"

/* ---- record.c: calls, failures on request, live objects, and the end of a test ---- */

/* A rule was broken that the real libraries do not check: report it and end the process. */
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Log a call; return the result with which it fails at once, or 0. */
int fake_driver_call(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int fake_cudnn_call(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The error after which all calls on the device fail; 0: none. */
int fake_sticky(void);

enum fake_kind {
    FAKE_CONTEXT,
    FAKE_PUSHED, /* contexts on the stacks of all threads */
    FAKE_MEMORY,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_HANDLE,
    FAKE_DROPOUT,
    FAKE_RNN,
    FAKE_RNN_DATA,
    FAKE_TENSOR,
    FAKE_KINDS,
};

/* The head of every object. Objects are never freed, so that a use after their end is found. */
struct fake_object {
    enum fake_kind kind;
    int alive;
};

void *fake_new(enum fake_kind kind, size_t nbytes);
void *fake_object(const void *object, enum fake_kind kind, const char *call); /* or it dies */
void fake_end(const void *object, enum fake_kind kind, const char *call);
void fake_count(enum fake_kind kind, int by);

/* One thread at a time is inside the fakes: LOCKED at the top of a function. */
void fake_lock(void);
void fake_unlock(const int *unused);
#define LOCKED __attribute__((cleanup(fake_unlock), unused)) const int locked = (fake_lock(), 0)

/* At the top of a call: the lock, the log, a failure on request. */
#define DRIVER_CALL(...)                                                                           \
    LOCKED;                                                                                        \
    const rnl_cu_result failed = (rnl_cu_result)fake_driver_call(__func__, __VA_ARGS__);           \
    if (failed)                                                                                    \
    return failed
#define CUDNN_CALL(...)                                                                            \
    LOCKED;                                                                                        \
    const rnl_cudnn_status failed = (rnl_cudnn_status)fake_cudnn_call(__func__, __VA_ARGS__);      \
    if (failed)                                                                                    \
    return failed

int fake_environment(const char *name, int otherwise);

/* ---- driver.c ---- */

enum { FAKE_MAX_DEVICES = 8 };
int fake_current_device(void); /* of the calling thread's context; -1: no context */

/* ---- memory.c ---- */

/* The host's copy of bytes of the device; dies unless all are in one living block. */
void *fake_bytes(rnl_cu_address at, size_t nbytes, const char *what);
rnl_cu_address fake_new_block(size_t nbytes, int device, int counted);
void fake_end_block(rnl_cu_address at, const char *call);
size_t fake_in_use(int device);

/* The work that came before: for each stream the number of its last piece. */
enum { FAKE_STREAMS = 512 };
struct fake_clock {
    uint32_t at[FAKE_STREAMS];
};

struct fake_access {
    rnl_cu_address at;
    size_t nbytes;
    int write;
    const char *what;
};

/* Dies if other work accesses the memory, and nothing orders it before this work, of which the
 * clock is. Notes the access, unless it is the host's (stream -1). */
void fake_touch(const struct fake_access *access, const char *work, int stream,
                const struct fake_clock *clock);

/* ---- streams.c ---- */

enum { FAKE_ACCESSES = 8 };

/* A piece of work on the device. */
struct fake_work {
    const char *name;
    void (*run)(const struct fake_work *work);
    const void *argument;    /* of a call of cuDNN; it must stay */
    rnl_cu_address to, from; /* of a copy or a fill, 0: the host's memory */
    void *host;
    size_t nbytes;
    int value;
    int accesses;
    struct fake_access access[FAKE_ACCESSES];
};

void fake_access(struct fake_work *work, rnl_cu_address at, size_t nbytes, int write,
                 const char *what);
void fake_submit(rnl_cu_stream stream, const struct fake_work *work);
void fake_wait(rnl_cu_stream stream); /* the host waits for it */
void fake_wait_for_all(void);         /* as when memory is freed */
void fake_host_access(rnl_cu_address at, size_t nbytes, int write);
int fake_stream_device(rnl_cu_stream stream);
int fake_is_capturing(rnl_cu_stream stream);
void fake_refuse_in_capture(const char *call); /* dies if the thread's mode forbids it */

#endif
