/* One GPU: its context, whether it still works, and the calls that are made on it. */
#ifndef RNL_CUDNN_DEVICE_H
#define RNL_CUDNN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "forward/cudnn/open.h"

enum { RNL_NUM_CLAMPS = RNL_FLOAT64 + 1 };

struct rnl_lane;

typedef struct rnl_gpu_device {
    rnl_cudnn_in_use used;
    const rnl_cudnn_table *dnn;
    const rnl_driver_table *cu;
    rnl_cu_context context;
    int ordinal;
    atomic_bool ready; /* all above is filled, for the rest of the process */

    const char *died_call; /* that met ...                                 */
    atomic_int died;       /* ... the error that no later call gets past; 0 */

    int num_rnns;         /* the lanes go with the last one */
    pthread_mutex_t lock; /* of that, and of what follows   */
    pthread_cond_t returned;
    struct rnl_lane *lanes;
    rnl_cu_module clamps;
    rnl_cu_function clamp[RNL_NUM_CLAMPS]; /* by dtype; NULL: not looked up yet */
} rnl_gpu_device;

/*
 * The device with its context made current; retained at the first time, and for ever. Each success
 * is followed by one rnl_gpu_leave(), with the status so far, in the same thread.
 *
 * RNL_E_NO_CUDNN: no such GPU, none that cuDNN can use, or after a fork. RNL_E_CUDNN: it is dead.
 */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_device **device, rnl_error *err);
rnl_status rnl_gpu_leave(rnl_gpu_device *device, rnl_status status, rnl_error *err);

/* The same, to clean up: false where nothing may be called any more. Somebody's capture that goes
 * on meanwhile is not broken by it. mode: for the end. */
bool rnl_gpu_enter_to_free(int ordinal, rnl_gpu_device **device, rnl_cu_capture_mode *mode);
void rnl_gpu_leave_freed(rnl_gpu_device *device, rnl_cu_capture_mode mode);

/* What a call returned, in words where that is a failure; an error that sticks marks the device. */
rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err);
rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err);

/* Make a call of the driver, of cuDNN: a rnl_status. */
#define RNL_CU(device, err, name, ...)                                                             \
    rnl_gpu_cu(device, #name, (device)->cu->name(__VA_ARGS__), err)
#define RNL_DNN(device, err, name, ...)                                                            \
    rnl_gpu_dnn(device, #name, (device)->dnn->name(__VA_ARGS__), err)

/* cuDNN takes addresses of the device as pointers, the driver some numbers as streams. */
static inline void *rnl_gpu_pointer(rnl_cu_address at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

/* nbytes rounded up to the alignment of the driver's own allocations: an array may follow there. */
static inline size_t rnl_gpu_aligned(size_t nbytes)
{
    return (nbytes + 255) / 256 * 256;
}

/* Memory of the device. RNL_E_NOMEM: the text says how much was asked for, and what for. */
rnl_status rnl_gpu_memory(rnl_gpu_device *device, size_t nbytes, const char *what,
                          rnl_cu_address *memory, rnl_error *err);

/* RNL_E_CUDNN, if the device is dead. */
rnl_status rnl_gpu_check_alive(rnl_gpu_device *device, rnl_error *err);

#endif
