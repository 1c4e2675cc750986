/* The GPUs of the process, and making their contexts current. */
#include "forward/cudnn/device.h"

#include "core/status.h"

enum { MAX_DEVICES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* while a device is made ready */
static rnl_gpu_device devices[MAX_DEVICES];

/* Retain its primary context, which every framework in the process uses. */
static rnl_status make_ready(rnl_gpu_device *device, int ordinal, rnl_error *err)
{
    rnl_cu_device found = 0;
    rnl_status status = rnl_cudnn_use(ordinal, &device->used, err);
    if (status != RNL_OK)
        return status;
    device->ordinal = ordinal;
    device->dnn = &device->used.library->call;
    device->cu = &device->used.driver->call;
    status = RNL_CU(device, err, cuDeviceGet, &found, ordinal);
    if (status == RNL_OK)
        status = RNL_CU(device, err, cuDeviceGetAttribute, &device->num_processors,
                        RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, found);
    if (status == RNL_OK)
        status = RNL_CU(device, err, cuDevicePrimaryCtxRetain, &device->context, found);
    if (status != RNL_OK)
        return status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->returned, NULL);
    atomic_store(&device->ready, true);
    return RNL_OK;
}

static rnl_status get(int ordinal, rnl_gpu_device **device, rnl_error *err)
{
    rnl_cudnn_in_use used;
    if (ordinal < 0 || ordinal >= MAX_DEVICES) /* fails: it does not exist */
        return rnl_cudnn_use(ordinal, &used, err);
    *device = &devices[ordinal];
    if (atomic_load(&(*device)->ready))
        return rnl_cudnn_check_fork(err);
    pthread_mutex_lock(&lock);
    const rnl_status status = atomic_load(&(*device)->ready) ? RNL_OK
                                                             : make_ready(*device, ordinal, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Allocating and waiting are forbidden in a thread that captures, and in every thread while another
 * one captures in the mode "global": they would break the capture, unless the thread's own mode is
 * "relaxed". */
rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err)
{
    rnl_cu_context popped;
    rnl_status status = get(ordinal, &entry->device, err);
    if (status == RNL_OK)
        status = rnl_gpu_check_alive(entry->device, err);
    if (status == RNL_OK)
        status = RNL_CU(entry->device, err, cuCtxPushCurrent_v2, entry->device->context);
    if (status != RNL_OK)
        return status;
    entry->mode = RNL_CU_STREAM_CAPTURE_MODE_RELAXED;
    status = RNL_CU(entry->device, err, cuThreadExchangeStreamCaptureMode, &entry->mode);
    if (status != RNL_OK)
        entry->device->cu->cuCtxPopCurrent_v2(&popped);
    return status;
}

rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status)
{
    rnl_cu_context popped;
    entry->device->cu->cuThreadExchangeStreamCaptureMode(&entry->mode);
    entry->device->cu->cuCtxPopCurrent_v2(&popped);
    return status;
}

rnl_status rnl_gpu_is_captured(rnl_gpu_device *device, rnl_cu_stream stream, bool *captured,
                               rnl_error *err)
{
    rnl_cu_capture_status found = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    const rnl_cu_result result = device->cu->cuStreamIsCapturing(stream, &found);
    if (result == RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return rnl_fail(err, RNL_E_SPEC,
                        "the legacy default stream cannot be used while a stream that waits for it "
                        "is capturing: use another stream, or capture a stream that was created "
                        "as non-blocking");
    if (result == RNL_CUDA_SUCCESS && found == RNL_CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream's capture has failed already: end the capture and begin again");
    *captured = found != RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    return rnl_gpu_cu(device, "cuStreamIsCapturing", result, err);
}
