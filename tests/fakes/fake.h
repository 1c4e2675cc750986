/*
 * What the files of the fakes share. libcuda.so.1 has all of it; the fake libcudnn uses it from
 * there.
 */
#ifndef FAKE_FAKE_H
#define FAKE_FAKE_H

#include "vendor.h"

/* ---- record.c: calls, failures on request, live objects, and the end of a test ---- */

#define FAKE_EXIT 86 /* the exit status of a process that broke a rule */

/* A rule was broken that the real libraries do not check: report it and end the process. */
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Begin a call of the driver: log it, and return the result that it must return at once, or CU_OK.
 */
CUresult fake_driver_call(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a call of cuDNN: the status to return, or 0. */
int fake_cudnn_call(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The sticky error after which all calls on the device fail; CU_OK: none. */
CUresult fake_sticky(void);

enum fake_kind {
    FAKE_CONTEXT, /* how often primary contexts are retained */
    FAKE_PUSHED,  /* contexts on the stacks of all threads   */
    FAKE_MEMORY,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_GRAPH_EXEC,
    FAKE_HANDLE,
    FAKE_DROPOUT,
    FAKE_RNN,
    FAKE_RNN_DATA,
    FAKE_TENSOR,
    FAKE_KINDS,
};

/* The head of every object. Objects are never freed, so that a use after destruction is found. */
struct fake_object {
    struct fake_object *next;
    enum fake_kind kind;
    int alive;
};

void *fake_new(enum fake_kind kind, size_t nbytes);
void fake_end(void *object);
void *fake_object(const void *object, enum fake_kind kind, const char *call); /* or it dies */
void fake_count(enum fake_kind kind, int by);

/* One thread at a time is inside the fakes: LOCKED at the top of a function. */
void fake_lock(void);
void fake_unlock(const int *unused);
#define LOCKED __attribute__((cleanup(fake_unlock), unused)) const int locked = (fake_lock(), 0)

/* At the top of a call of the driver: the log, and a failure on request. */
#define DRIVER_CALL(...)                                                                           \
    LOCKED;                                                                                        \
    const CUresult failed = fake_driver_call(__func__, __VA_ARGS__);                               \
    if (failed)                                                                                    \
    return failed

/* ---- cuda_device.c ---- */

enum { FAKE_MAX_DEVICES = 8 };
int fake_environment(const char *name, int otherwise);
int fake_current_device(void); /* of the calling thread's context; -1: no context */
int fake_capability(void);     /* 100 major + 10 minor */

/* ---- cuda_memory.c: the table of ranges ---- */

struct fake_access {
    CUdeviceptr at;
    size_t nbytes;
    int write;
    const char *what;
};

/* The host's copy of bytes of the device; dies unless all are in one living block. */
void *fake_bytes(CUdeviceptr at, size_t nbytes, const char *what);

/* The work that came before: for each stream the number of its last piece. */
enum { FAKE_STREAMS = 512 };
struct fake_clock {
    uint32_t at[FAKE_STREAMS];
};

/* Note that work accesses memory; dies if other work accesses it and nothing orders the two. */
void fake_touch(const struct fake_access *access, const char *work, int stream,
                const struct fake_clock *clock);

/* ---- cuda_streams.c ---- */

enum { FAKE_ACCESSES = 12, FAKE_ARGUMENT = 256 };

/* A piece of work on the device. The argument is copied; objects that it points to must stay. */
struct fake_work {
    const char *name;
    void (*run)(void *argument);
    void (*check)(void *argument); /* before each launch of a graph with it; or NULL */
    _Alignas(16) char argument[FAKE_ARGUMENT];
    int accesses;
    struct fake_access access[FAKE_ACCESSES];
};

CUresult fake_submit(CUstream stream, const struct fake_work *work);
int fake_stream_device(CUstream stream);
int fake_is_capturing(CUstream stream);
void fake_wait_for_all(void); /* every stream, as when memory is freed */

/* ---- cuda_graphs.c ---- */

struct fake_capture;
void fake_capture_work(struct fake_capture *capture, const struct fake_work *work);
void fake_refuse_in_capture(const char *call);     /* dies if the thread's mode forbids it */
void fake_refuse_beside_capture(const char *call); /* dies if any thread is capturing */

#endif
