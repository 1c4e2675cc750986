/* cuDNN and the driver of the process, the GPUs with their contexts, cuDNN's handles on them, and
 * the calls made there. */
#ifndef RNL_CUDNN_DEVICE_H
#define RNL_CUDNN_DEVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "forward/cudnn/abi.h"
#include "rnnlayout.h"

enum { RNL_NUM_HANDLES = 4 };

/* Called as device->dnn->cudnnRNNForward(...). */
typedef struct rnl_cudnn_table {
#define CUDNN(returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_cudnn_table;

/* Called as device->cu->cuInit(...). */
typedef struct rnl_driver_table {
#define DRIVER(returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_driver_table;

/* A handle of cuDNN. It is kept until the process ends: to destroy one waits for the device, which
 * breaks every capture on it. */
typedef struct rnl_gpu_handle {
    bool made; /* all that it needs exists too */
    rnl_cudnn_handle cudnn;
    rnl_cu_stream stream;      /* a new handle has NULL */
    rnl_cu_stream captured_in; /* the stream of its last captured call; NULL: none */
} rnl_gpu_handle;

typedef struct rnl_gpu_device {
    /* these never change until the process ends */
    const rnl_cudnn_table *dnn;
    const rnl_driver_table *cu;
    int ordinal;
    int version;    /* of cuDNN: 91900 */
    int capability; /* 10 * major + minor */
    int multiprocessors;
    rnl_cu_context context; /* NULL: not ready */
    rnl_cu_stream own;      /* for arrays of the host */

    pthread_mutex_t lock;      /* for the members below, and for calls of cuDNN with a handle */
    rnl_cudnn_dropout dropout; /* NULL: not made yet */
    rnl_gpu_handle handles[RNL_NUM_HANDLES];
} rnl_gpu_device;

/* ---- load.c: shared libraries, which are opened, but never closed, and cuDNN ---- */

/* Open a path, or a name that the loader looks for. NULL: the reason is in err. */
void *rnl_library_open(const char *path, rnl_error *err);

/* The path from which the loader has opened a library. */
const char *rnl_library_path(void *library);

/* Store the address of a function in a pointer to a function; NULL, and the first such name in
 * *missing, if the library lacks it. */
void rnl_library_find(void *library, const char *name, void *pointer, const char **missing);

/*
 * Open the cuDNN at a path and check by its own functions whether it can be used. Nothing is opened
 * unless all of its parts exist completely, and nothing is called unless all are open: a call that
 * does not find its part aborts the process. It is refused if the process has a part of another
 * cuDNN: parts find each other by name and would be mixed.
 *
 * path   of the main library; NULL: the one that the process has loaded, perhaps with parts from
 *        other folders, else the one that the loader finds
 * about  what is known of the driver; what is found is added
 *
 * RNL_E_NO_CUDNN: the text says why, without the folder's name.
 */
rnl_status rnl_cudnn_load(const char *path, rnl_cudnn_table *call, rnl_cudnn_about *about,
                          rnl_error *err);

/* ---- open.c ---- */

/* A device whose context is current in this thread. */
typedef struct rnl_gpu_entry {
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode; /* the thread's before */
} rnl_gpu_entry;

/*
 * Make the device's context current; it is retained at the first time and never released, and its
 * own stream is made. Calls that allocate or wait then break no capture. After each success call
 * rnl_gpu_leave() once in the same thread. It returns the given status, does nothing in a forked
 * child, and cannot fail: what it might report is an error of earlier work, which the next call
 * reports too.
 *
 * RNL_E_NO_CUDNN: no such GPU, cuDNN cannot use it, or the process is a forked child.
 */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err);
rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status);

/* RNL_E_NO_CUDNN: this process was forked from the one that has initialized the driver. Call it
 * before you take a lock, which another thread may have held when the process was forked. */
rnl_status rnl_cudnn_check_fork(rnl_error *err);

/* ---- device.c ---- */

/*
 * Get a handle that works in this stream. The caller has the lock. A
 * handle that a capture has used is not used in other streams until the capture ends: cuDNN may
 * fork onto streams of its handle, which stay in the capture. During a capture none is made.
 *
 * RNL_E_SPEC: the stream belongs to another device, or open captures have all handles.
 */
rnl_status rnl_gpu_handle_for(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                              rnl_gpu_handle **handle, rnl_error *err);

/* Is the stream being captured into a graph? RNL_E_SPEC: it is the legacy default stream beside the
 * capture of a stream that waits for it: using it would break that one. */
rnl_status rnl_gpu_is_captured(rnl_gpu_device *device, rnl_cu_stream stream, bool *captured,
                               rnl_error *err);

/* Make the stream `after` wait for the work that is now in the stream `before`. */
rnl_status rnl_gpu_order(rnl_gpu_device *device, rnl_cu_stream before, rnl_cu_stream after,
                         rnl_error *err);

/* Allocate device memory. RNL_E_NOMEM: the text has the size and `what` it was for. */
rnl_status rnl_gpu_memory(rnl_gpu_device *device, size_t nbytes, const char *what,
                          rnl_cu_address *memory, rnl_error *err);

/* ---- errors.c ---- */

/* Turn the result of a call into a status, with a text if it failed. */
rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err);
rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err);

/* Call the driver, or cuDNN: an rnl_status. */
#define RNL_CU(device, err, name, ...)                                                             \
    rnl_gpu_cu(device, #name, (device)->cu->name(__VA_ARGS__), err)
#define RNL_DNN(device, err, name, ...)                                                            \
    rnl_gpu_dnn(device, #name, (device)->dnn->name(__VA_ARGS__), err)

/* cuDNN takes device addresses as pointers, and the callers of this library give them so. */
static inline void *rnl_gpu_pointer(rnl_cu_address at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

static inline rnl_cu_address rnl_gpu_address(const void *at)
{
    return (rnl_cu_address)(uintptr_t)at;
}

#endif
