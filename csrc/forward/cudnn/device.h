/* cuDNN and the driver of the process; the GPUs with contexts and cuDNN's handles; calls of cuDNN
 * and the driver. */
#ifndef RNL_CUDNN_DEVICE_H
#define RNL_CUDNN_DEVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "forward/cudnn/abi.h"
#include "rnnlayout.h"

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

/* A handle of cuDNN, of which a call has exclusive use. Handles are kept until the process ends:
 * destroying a handle waits for the device, and so breaks every capture on the device. */
typedef struct rnl_gpu_handle {
    rnl_cudnn_handle cudnn;
    rnl_cu_stream stream;  /* a new handle has NULL */
    rnl_cu_stream witness; /* our stream in the handle's last capture; NULL: no captured call yet */
    bool taken;
    struct rnl_gpu_handle *next;
} rnl_gpu_handle;

/* The capture of a stream into a graph. */
typedef struct rnl_gpu_capture {
    bool active;
    uint64_t id; /* unique in the process */
} rnl_gpu_capture;

typedef struct rnl_gpu_device {
    /* these members are fixed once the context is retained */
    const rnl_cudnn_table *dnn;
    const rnl_driver_table *cu;
    int ordinal;
    int version;    /* of cuDNN: 91900 */
    int capability; /* 10 * major + minor */
    int multiprocessors;
    rnl_cu_context context;    /* NULL: not ready */
    rnl_cu_stream host_stream; /* for arrays of the host */

    pthread_mutex_t lock;      /* for the members below; held while a call takes a handle */
    rnl_cudnn_dropout dropout; /* of no dropout, which all RNNs share; NULL: not created yet */
    bool describes_dropout;
    rnl_gpu_handle *handles; /* as many as calls that ran at the same time, or in open captures */
} rnl_gpu_device;

/* ---- load.c: cuDNN and shared libraries. Opened libraries are never closed ---- */

/* Open a path, or a name that the loader looks for. NULL: the reason is in err. */
void *rnl_library_open(const char *path, rnl_error *err);

/* Return the path from which the loader has opened a library. */
const char *rnl_library_path(void *library);

/* Store the address of a function in a pointer to a function. If the library lacks the function,
 * store NULL, and set *missing to the name unless *missing is set already. */
void rnl_library_find(void *library, const char *name, void *pointer, const char **missing);

/*
 * Open the cuDNN at a path, and check with the functions of this cuDNN whether it can be used. No
 * part is opened unless all parts exist, and no function is called unless all parts are open: a
 * call that does not find the part with the called function aborts the process. A process with a
 * part of another cuDNN is refused: parts find each other by name and would be mixed.
 *
 * path   path of the main library; NULL: the main library that the process has loaded, perhaps with
 *        parts from several folders, else the main library that the loader finds
 * about  has the facts about the driver; receives the facts about cuDNN
 *
 * RNL_E_NO_CUDNN: the text gives the reason, without the name of the folder.
 */
rnl_status rnl_cudnn_load(const char *path, rnl_cudnn_table *call, rnl_cudnn_about *about,
                          rnl_error *err);

/* ---- open.c ---- */

/* A device with the context that is current in this thread. */
typedef struct rnl_gpu_entry {
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode; /* the thread's mode before rnl_gpu_enter() */
} rnl_gpu_entry;

/*
 * Make the device's context current. The first call retains the context, which is never released,
 * and creates the host stream. Calls that allocate or wait then break no capture. After each
 * success call rnl_gpu_leave() once in the same thread. rnl_gpu_leave() returns its argument
 * `status`, does nothing in a forked child, and cannot fail: the driver's calls in it could only
 * report an error of earlier work, which the next call reports too.
 *
 * RNL_E_NO_CUDNN: the GPU does not exist, cuDNN cannot use the GPU, or the process is a forked
 * child.
 */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err);
rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status);

/* Fail with RNL_E_NO_CUDNN if the driver was initialized before this process was forked. Call this
 * function before taking a lock: another thread may have held the lock when the process was forked.
 */
rnl_status rnl_cudnn_check_fork(rnl_error *err);

/* ---- handles.c ---- */

/*
 * Take a handle, and put it in this stream, whose capture is `capture`. After each success call
 * rnl_gpu_return_handle() once. A handle of an open capture is used in that capture alone: cuDNN
 * may fork onto streams of the handle, and these streams stay in the capture. So does the handle's
 * witness, a stream that is never destroyed: the driver may be asked about it. No handle is created
 * during a capture.
 *
 * RNL_E_SPEC: the stream belongs to another device, or a captured call finds no free handle.
 */
rnl_status rnl_gpu_take_handle(rnl_gpu_device *device, rnl_cu_stream stream,
                               const rnl_gpu_capture *capture, rnl_gpu_handle **handle,
                               rnl_error *err);

/* Put a taken handle in another stream, whose capture is `capture`. */
rnl_status rnl_gpu_move_handle(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                               const rnl_gpu_capture *capture, rnl_error *err);
void rnl_gpu_return_handle(rnl_gpu_device *device, rnl_gpu_handle *handle);

/* ---- device.c ---- */

/* Get the capture of a stream. RNL_E_SPEC: the stream is the legacy default stream, and a stream
 * that waits for the legacy default stream is being captured: any use would break this capture. */
rnl_status rnl_gpu_get_capture(rnl_gpu_device *device, rnl_cu_stream stream,
                               rnl_gpu_capture *capture, rnl_error *err);

/* Make the stream `after` wait for all present work of the stream `before`. */
rnl_status rnl_gpu_order(rnl_gpu_device *device, rnl_cu_stream before, rnl_cu_stream after,
                         rnl_error *err);

/* Round nbytes up to the alignment of the driver's allocations, so that an array may follow. */
static inline size_t rnl_gpu_aligned(size_t nbytes)
{
    return (nbytes + 255) / 256 * 256;
}

/* Allocate device memory. RNL_E_NOMEM: the text has the size and the purpose. */
rnl_status rnl_gpu_memory(rnl_gpu_device *device, size_t nbytes, const char *purpose,
                          rnl_cu_address *memory, rnl_error *err);

/* ---- errors.c ---- */

/* Turn the result of a call into a status, with a text if the call failed. */
rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err);
rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err);

/* Call the driver, or cuDNN, and return an rnl_status. */
#define RNL_CU(device, err, name, ...)                                                             \
    rnl_gpu_cu(device, #name, (device)->cu->name(__VA_ARGS__), err)
#define RNL_DNN(device, err, name, ...)                                                            \
    rnl_gpu_dnn(device, #name, (device)->dnn->name(__VA_ARGS__), err)

/* Device addresses are pointers in the calls of cuDNN and of this library, numbers in the driver's.
 */
static inline void *rnl_gpu_pointer(rnl_cu_address at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

static inline rnl_cu_address rnl_gpu_address(const void *at)
{
    return (rnl_cu_address)(uintptr_t)at;
}

#endif
