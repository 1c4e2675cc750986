/* The GPUs of the process, and making their contexts current. */
#include "forward/cudnn/device.h"

#include "core/status.h"

enum { MAX_DEVICES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* while a device is made ready */
static rnl_gpu_device devices[MAX_DEVICES];

/* Retain its primary context, which every framework in the process uses. */
static rnl_status retain(rnl_gpu_device *device, rnl_error *err)
{
    rnl_cu_device found = 0;
    rnl_status status = RNL_CU(device, err, cuDeviceGet, &found, device->ordinal);
    if (status == RNL_OK)
        status = RNL_CU(device, err, cuDevicePrimaryCtxRetain, &device->context, found);
    return status;
}

static rnl_status make_ready(rnl_gpu_device *device, int ordinal, rnl_error *err)
{
    const rnl_status status = rnl_cudnn_use(ordinal, &device->used, err);
    if (status != RNL_OK)
        return status;
    device->ordinal = ordinal;
    device->dnn = &device->used.library->call;
    device->cu = &device->used.driver->call;
    if (retain(device, err) != RNL_OK)
        return err->status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->returned, NULL);
    atomic_store(&device->ready, true);
    return RNL_OK;
}

static rnl_status get(int ordinal, rnl_gpu_device **device, rnl_error *err)
{
    rnl_cudnn_in_use used;
    if (ordinal < 0 || ordinal >= MAX_DEVICES) /* fails: there is no such GPU */
        return rnl_cudnn_use(ordinal, &used, err);
    *device = &devices[ordinal];
    if (atomic_load(&(*device)->ready))
        return rnl_cudnn_check_fork((*device)->used.pid, err);
    pthread_mutex_lock(&lock);
    const rnl_status status = atomic_load(&(*device)->ready) ? RNL_OK
                                                             : make_ready(*device, ordinal, err);
    pthread_mutex_unlock(&lock);
    return status;
}

rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_device **device, rnl_error *err)
{
    rnl_status status = get(ordinal, device, err);
    if (status == RNL_OK)
        status = rnl_gpu_check_alive(*device, err);
    if (status == RNL_OK)
        status = RNL_CU(*device, err, cuCtxPushCurrent_v2, (*device)->context);
    return status;
}

rnl_status rnl_gpu_leave(rnl_gpu_device *device, rnl_status status, rnl_error *err)
{
    rnl_cu_context popped;
    const rnl_cu_result result = device->cu->cuCtxPopCurrent_v2(&popped);
    return status != RNL_OK ? status : rnl_gpu_cu(device, "cuCtxPopCurrent_v2", result, err);
}

/* In a thread that captures, freeing is forbidden and breaks the capture, unless the thread's
 * capture mode is "relaxed". */
static bool enter_relaxed(int ordinal, rnl_gpu_device **device, rnl_cu_capture_mode *mode)
{
    rnl_error ignored;
    if (rnl_gpu_enter(ordinal, device, &ignored) != RNL_OK)
        return false;
    *mode = RNL_CU_STREAM_CAPTURE_MODE_RELAXED;
    if (RNL_CU(*device, &ignored, cuThreadExchangeStreamCaptureMode, mode) == RNL_OK)
        return true;
    rnl_gpu_leave(*device, RNL_OK, &ignored);
    return false;
}

/* Tries twice: memory that is not freed now is never freed. */
bool rnl_gpu_enter_to_free(int ordinal, rnl_gpu_device **device, rnl_cu_capture_mode *mode)
{
    for (int k = 0; k < 2; k++)
        if (enter_relaxed(ordinal, device, mode))
            return true;
    return false;
}

void rnl_gpu_leave_freed(rnl_gpu_device *device, rnl_cu_capture_mode mode)
{
    rnl_error ignored;
    if (RNL_CU(device, &ignored, cuThreadExchangeStreamCaptureMode, &mode) != RNL_OK)
        device->cu->cuThreadExchangeStreamCaptureMode(&mode);
    rnl_gpu_leave(device, RNL_OK, &ignored);
}
