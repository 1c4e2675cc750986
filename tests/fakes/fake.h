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

/* Log a call; return the status with which it fails on request, or 0. */
int fake_call(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fake_environment(const char *name, int otherwise);
int fake_has_failed(void); /* a call failed on request, and no other is requested since */

/* One thread at a time is inside the fakes. */
void fake_lock(void);
void fake_unlock(const int *unused);
#define LOCKED __attribute__((cleanup(fake_unlock), unused)) const int locked = (fake_lock(), 0)

/* At the top of a function: it takes the lock, is logged, and fails on request. One that ends
 * something begins with the first, and does so even if it fails. */
#define BEGIN(...)                                                                                 \
    LOCKED;                                                                                        \
    const int failed = fake_call(__func__, " " __VA_ARGS__)
#define CALL(...)                                                                                  \
    BEGIN(__VA_ARGS__);                                                                            \
    if (failed)                                                                                    \
    return failed

/* A function of one statement, and one that ends an object. */
#define FAKE(returns, name, arguments, ...)                                                        \
    returns name arguments                                                                         \
    {                                                                                              \
        CALL();                                                                                    \
        __VA_ARGS__;                                                                               \
        return 0;                                                                                  \
    }
#define FAKE_END(returns, name, type, kind)                                                        \
    returns name(type object)                                                                      \
    {                                                                                              \
        BEGIN();                                                                                   \
        fake_end(object, kind, __func__);                                                          \
        return failed;                                                                             \
    }

/* The head of every object. Objects are never freed, so that a use after their end is found. */
struct fake_object {
    const char *kind;
    struct fake_object *next;
    int alive;
};

void *fake_new(const char *kind, size_t nbytes);
void *fake_object(const void *object, const char *kind, const char *call); /* or it dies */
void fake_end(const void *object, const char *kind, const char *call);

/* ---- driver.c ---- */

extern long fake_pushed;       /* contexts on the stacks of all threads */
int fake_current_device(void); /* of the calling thread's context; -1: no context */

/* ---- streams.c ---- */

/* A piece of work on the device. It is kept if its stream is capturing. */
struct fake_work {
    const char *name;
    void (*run)(const struct fake_work *work);
    const void *argument;    /* of a call of cuDNN; it must stay */
    rnl_cu_address to, from; /* of a copy or a fill, 0: the host's memory */
    void *host;
    size_t nbytes;
    int value;
};

/* Return 1 if the work was kept for a graph. */
int fake_submit(rnl_cu_stream stream, const struct fake_work *work);
int fake_is_pinned(const void *host); /* and living */

/* The bytes of device memory that the work in progress reads or writes, or the host if there is
 * none. Dies unless they are in one living block, and if the work uses them for something else too,
 * or if other work uses the block and nothing orders the two. */
void *fake_use(rnl_cu_address at, size_t nbytes, int write, const char *what);

rnl_cu_address fake_new_block(size_t nbytes, const char *kind);
void fake_end_block(rnl_cu_address at, const char *kind); /* waits for all work */
size_t fake_bytes_in_use(void);

void fake_wait(rnl_cu_stream stream); /* the host waits for it */
void fake_wait_for_all(void);
void fake_refuse_in_capture(const char *call); /* dies if the capture would break */

/* ---- cudnn.c, compute.c ---- */

struct fake_rnn {
    struct fake_object object;
    rnl_cudnn_algo algo;
    rnl_cudnn_cell cell;
    rnl_cudnn_bias bias;
    int directions, skip, padded;
    rnl_cudnn_data_type type;
    int64_t I, H, P, L; /* P = H: no projection */
};

struct fake_data {
    struct fake_object object;
    int batch_first, T, N, width, has_fill;
    int *lengths; /* N; never freed: work may use them */
};

/* The arguments of cudnnRNNForward. */
struct fake_forward {
    struct fake_rnn rnn;
    struct fake_data x_data, y_data;
    rnl_cu_address x, y, hx, hy, cx, cy, weights, work; /* hx to cy: 0 if not given */
    size_t work_nbytes;
};

size_t fake_weight_nbytes(const struct fake_rnn *rnn);
void fake_compute(const struct fake_work *work); /* work->argument: a fake_forward */

/* ---- for tests: README.md ---- */

long fake_calls(void);
void fake_fail(long k, int cuda, int cudnn);
long fake_live(const char *kind);
rnl_cu_address fake_alloc(size_t nbytes);
void fake_free(rnl_cu_address at);
void fake_read(rnl_cu_address at, void *to, size_t nbytes);
void fake_write(rnl_cu_address at, const void *from, size_t nbytes);

#endif
