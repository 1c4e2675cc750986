/* One GPU: its context, whether it still works, and the calls made on it. */
#ifndef RNL_CUDNN_DEVICE_H
#define RNL_CUDNN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "forward/cudnn/open.h"

enum { RNL_NUM_LANES = 4 };

/* One call at a time has it (lane.h). */
typedef struct rnl_lane {
    bool busy, made; /* made: all below exists */
    rnl_cudnn_handle handle;
    rnl_cudnn_dropout dropout;
    rnl_cu_stream own;         /* for arrays of the host */
    rnl_cu_stream stream;      /* the handle's; a new handle has NULL */
    rnl_cu_stream captured_in; /* the stream of its last captured call; NULL: none */
} rnl_lane;

typedef struct rnl_gpu_device {
    rnl_cudnn_in_use used;
    const rnl_cudnn_table *dnn;
    const rnl_driver_table *cu;
    rnl_cu_context context;
    int ordinal, num_processors;
    atomic_bool ready; /* all above is set, until the process ends */

    atomic_int died;       /* the error after which all calls fail; 0: none ... */
    const char *died_call; /* ... and the call that met it */

    pthread_mutex_t lock; /* for the members below */
    pthread_cond_t returned;
    rnl_lane lanes[RNL_NUM_LANES];
} rnl_gpu_device;

/* A device whose context is current in this thread. */
typedef struct rnl_gpu_entry {
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode; /* the thread's before */
} rnl_gpu_entry;

/*
 * Make the device's context current; it is retained at the first time and never released. Calls
 * that allocate or wait then break no capture. After each success call rnl_gpu_leave() once in the
 * same thread. It returns the given status and cannot fail: what it might report is an error of
 * earlier work, which the next call reports too.
 *
 * RNL_E_NO_CUDNN: no such GPU, cuDNN cannot use it, or the process is a forked child. RNL_E_CUDNN:
 * the device is dead.
 */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err);
rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status);

/* Is the stream being captured into a graph? RNL_E_SPEC: its capture has failed, or it is the
 * legacy default stream beside the capture of a stream that waits for it: using it would break that
 * one.
 */
rnl_status rnl_gpu_is_captured(rnl_gpu_device *device, rnl_cu_stream stream, bool *captured,
                               rnl_error *err);

/* Turn the result of a call into a status, with a text if it failed. A sticky error marks the
 * device as dead. */
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

/* nbytes rounded up to the alignment of the driver's own allocations: an array may follow there. */
static inline size_t rnl_gpu_aligned(size_t nbytes)
{
    return (nbytes + 255) / 256 * 256;
}

/* Allocate device memory. RNL_E_NOMEM: the text has the size and `what` it was for. */
rnl_status rnl_gpu_memory(rnl_gpu_device *gpu, size_t nbytes, const char *what,
                          rnl_cu_address *memory, rnl_error *err);

/* RNL_E_CUDNN: the device is dead. */
rnl_status rnl_gpu_check_alive(rnl_gpu_device *device, rnl_error *err);

#endif
