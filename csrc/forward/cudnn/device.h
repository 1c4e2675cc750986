/* One GPU: its context, cuDNN's handles on it, and the calls made there. */
#ifndef RNL_CUDNN_DEVICE_H
#define RNL_CUDNN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "forward/cudnn/open.h"

enum { RNL_NUM_HANDLES = 4 };

/* A handle of cuDNN. It is kept until the process ends: to destroy one waits for the device, which
 * breaks every capture on it. */
typedef struct rnl_gpu_handle {
    bool made; /* all that it needs exists too */
    rnl_cudnn_handle cudnn;
    rnl_cu_stream stream;      /* a new handle has NULL */
    rnl_cu_stream captured_in; /* the stream of its last captured call; NULL: none */
} rnl_gpu_handle;

typedef struct rnl_gpu_device {
    rnl_cudnn_in_use used;
    const rnl_cudnn_table *dnn;
    const rnl_driver_table *cu;
    rnl_cu_context context;
    int ordinal;
    atomic_bool ready; /* all above is set, until the process ends */

    pthread_mutex_t lock; /* for the members below, and for calls of cuDNN with a handle */
    rnl_cu_stream own;    /* for arrays of the host; NULL: not made yet, like the dropout */
    rnl_cudnn_dropout dropout;
    rnl_gpu_handle handles[RNL_NUM_HANDLES];
} rnl_gpu_device;

/* A device whose context is current in this thread. */
typedef struct rnl_gpu_entry {
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode; /* the thread's before */
} rnl_gpu_entry;

/*
 * Make the device's context current; it is retained at the first time and never released. Calls
 * that allocate or wait then break no capture. After each success call rnl_gpu_leave() once in the
 * same thread. It returns the given status, does nothing in a forked child, and cannot fail: what
 * it might report is an error of earlier work, which the next call reports too.
 *
 * RNL_E_NO_CUDNN: no such GPU, cuDNN cannot use it, or the process is a forked child.
 */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err);
rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status);

/*
 * Get a handle that works in this stream, or in the device's own one. The caller has the lock. A
 * handle that a capture has used is not used in other streams until the capture ends: cuDNN may
 * fork onto streams of its handle, which stay in the capture. During a capture none is made.
 *
 * RNL_E_SPEC: the stream belongs to another device, or open captures have all handles.
 */
rnl_status rnl_gpu_handle_for(rnl_gpu_device *device, rnl_cu_stream stream, bool on_host,
                              bool capturing, rnl_gpu_handle **handle, rnl_error *err);

/* Is the stream being captured into a graph? RNL_E_SPEC: its capture has failed, or it is the
 * legacy default stream beside the capture of a stream that waits for it: using it would break that
 * one. */
rnl_status rnl_gpu_is_captured(rnl_gpu_device *device, rnl_cu_stream stream, bool *captured,
                               rnl_error *err);

/* Make the stream `after` wait for the work that is now in the stream `before`. */
rnl_status rnl_gpu_order(rnl_gpu_device *device, rnl_cu_stream before, rnl_cu_stream after,
                         rnl_error *err);

/* Allocate device memory. RNL_E_NOMEM: the text has the size and `what` it was for. */
rnl_status rnl_gpu_memory(rnl_gpu_device *device, size_t nbytes, const char *what,
                          rnl_cu_address *memory, rnl_error *err);

/* Turn the result of a call into a status, with a text if it failed. */
rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err);
rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err);

/* Did cuDNN refuse a call, which has set err, because it or the GPU does not support it? */
bool rnl_gpu_not_supported(const rnl_error *err);

/* Call the driver, or cuDNN: an rnl_status. */
#define RNL_CU(device, err, name, ...)                                                             \
    rnl_gpu_cu(device, #name, (device)->cu->name(__VA_ARGS__), err)
#define RNL_DNN(device, err, name, ...)                                                            \
    rnl_gpu_dnn(device, #name, (device)->dnn->name(__VA_ARGS__), err)

/* cuDNN takes device addresses as pointers; some streams of the driver are numbers. */
static inline void *rnl_gpu_pointer(rnl_cu_address at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

#endif
