/* The cuDNN and the driver of the process; the GPUs and the contexts of the GPUs. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "forward/cudnn/device.h"
#include "system/min.h"

static const char DRIVER_NAME[] = "libcuda.so.1";
enum { MAX_GPUS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    rnl_cudnn_table dnn;
    rnl_driver_table driver;
    rnl_cudnn_about about; /* path: NULL if no cuDNN is open */
    bool driver_tried;     /* load_driver_locked() has run */
    rnl_error no_driver;
    _Atomic pid_t pid; /* the process that has initialized the driver; 0: not initialized */
    rnl_gpu_device gpus[MAX_GPUS];
} process;

/* ---- the driver ---- */

/* Return the status of a call; of a failed call with the driver's text. */
static rnl_status check(const char *call, rnl_cu_result result, rnl_error *err)
{
    const char *name = NULL, *text = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (result == RNL_CUDA_SUCCESS)
        return RNL_OK;
    process.driver.cuGetErrorName(result, &name);
    process.driver.cuGetErrorString(result, &text);
    return rnl_fail(err, RNL_E_NO_CUDNN, "%s: %d (%s): %s%s%.100s%s", call, (int)result,
                    name ? name : "no name", text ? text : "no text",
                    visible ? "; CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                    visible ? "\"" : "");
}

/* Call the driver and return an rnl_status. */
#define CHECKED(err, name, ...) check(#name, process.driver.name(__VA_ARGS__), err)

/* Open the driver by the system's loader, and initialize the driver. */
static rnl_status open_driver(rnl_error *err)
{
    void *const library = rnl_library_open(DRIVER_NAME, err);
    if (!library)
        return RNL_E_NO_CUDNN;
    process.about.driver = rnl_library_path(library);
    const char *missing = NULL;
#define DRIVER(returns, name, arguments)                                                           \
    rnl_library_find(library, #name, &process.driver.name, &missing);
#include "forward/cudnn/symbols.def"
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "%s lacks %s: the driver is too old, install a newer one", DRIVER_NAME,
                        missing);
    int num_gpus = 0;
    rnl_status status;
    if ((status = CHECKED(err, cuDriverGetVersion, &process.about.driver_cuda_version)) ||
        (status = CHECKED(err, cuInit, 0)) || (status = CHECKED(err, cuDeviceGetCount, &num_gpus)))
        return status;
    if (num_gpus < 1)
        return check("cuDeviceGetCount", RNL_CUDA_ERROR_NO_DEVICE, err);
    process.about.num_gpus = rnl_min_int(num_gpus, MAX_GPUS);
    atomic_store(&process.pid, getpid());
    return RNL_OK;
}

/* Open the driver, once per process: after a failure there is no second attempt. */
static void load_driver_locked(void)
{
    if (!process.driver_tried && open_driver(&process.no_driver) != RNL_OK)
        process.about.no_driver = process.no_driver.text;
    process.driver_tried = true;
}

rnl_status rnl_cudnn_check_fork(rnl_error *err)
{
    const pid_t pid = atomic_load(&process.pid);
    if (!pid || pid == getpid())
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "the NVIDIA driver was initialized before this process was forked, and does not "
        "work in a forked process: start processes with spawn");
}

/* ---- cuDNN ---- */

rnl_status rnl_cudnn_open(const char *path, rnl_error *err)
{
    rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    pthread_mutex_lock(&lock);
    load_driver_locked();
    rnl_cudnn_about about = process.about;
    if (!about.path && !(status = rnl_cudnn_load(path, &process.dnn, &about, err)))
        process.about = about;
    pthread_mutex_unlock(&lock);
    return status;
}

rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err)
{
    memset(about, 0, sizeof *about);
    const rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    pthread_mutex_lock(&lock);
    load_driver_locked();
    *about = process.about;
    pthread_mutex_unlock(&lock);
    return RNL_OK;
}

/* ---- the GPUs ---- */

static rnl_status describe_gpu_locked(int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    rnl_cu_device device = 0;
    int major = 0, minor = 0;
    rnl_status status;
    if (process.about.no_driver)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no NVIDIA driver: %.900s", process.no_driver.text);
    if (ordinal < 0 || ordinal >= process.about.num_gpus)
        return rnl_fail(err, RNL_E_NO_CUDNN, "this GPU does not exist: the driver reports %d",
                        process.about.num_gpus);
    if ((status = CHECKED(err, cuDeviceGet, &device, ordinal)) ||
        (status = CHECKED(err, cuDeviceGetName, gpu->name, (int)sizeof gpu->name - 1, device)) ||
        (status = CHECKED(err, cuDeviceGetAttribute, &major,
                          RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)) ||
        (status = CHECKED(err, cuDeviceGetAttribute, &minor,
                          RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)))
        return status;
    gpu->capability = 10 * major + minor;
    if (!process.about.path)
        return RNL_OK;
    const int newest = (int)process.dnn.cudnnGetMaxDeviceVersion();
    if (gpu->capability * 10 <= newest)
        return RNL_OK;
    return rnl_fail(err, RNL_E_NO_CUDNN,
                    "its compute capability is %d.%d, but this cuDNN supports %d.%d at most: "
                    "install a newer cuDNN",
                    gpu->capability / 10, gpu->capability % 10, newest / 100, newest % 100 / 10);
}

rnl_status rnl_gpu_describe(int device, rnl_gpu *gpu, rnl_error *err)
{
    memset(gpu, 0, sizeof *gpu);
    rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    pthread_mutex_lock(&lock);
    load_driver_locked();
    status = describe_gpu_locked(device, gpu, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Retain the primary context of a GPU: every framework in the process uses this context. */
static rnl_status make_ready_locked(int ordinal, rnl_gpu_device **ready, rnl_error *err)
{
    rnl_gpu gpu = {.capability = 0};
    rnl_error why;
    rnl_cu_device cu_device = 0;
    rnl_status status;
    if (!process.about.path)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no cuDNN is open: call rnl_cudnn_open() first");
    if (ordinal >= 0 && ordinal < MAX_GPUS && process.gpus[ordinal].context) {
        *ready = &process.gpus[ordinal];
        return RNL_OK;
    }
    if (describe_gpu_locked(ordinal, &gpu, &why) != RNL_OK)
        return rnl_fail(err, RNL_E_NO_CUDNN, "GPU %d: %.900s", ordinal, why.text);
    /* ordinal is in range. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound) */
    rnl_gpu_device *const device = *ready = &process.gpus[ordinal];
    device->dnn = &process.dnn;
    device->cu = &process.driver;
    device->ordinal = ordinal;
    device->version = process.about.version;
    device->capability = gpu.capability;
    if ((status = RNL_CU(device, err, cuDeviceGet, &cu_device, ordinal)) ||
        (status = RNL_CU(device, err, cuDeviceGetAttribute, &device->multiprocessors,
                         RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cu_device)))
        return status;
    pthread_mutex_init(&device->lock, NULL);
    return RNL_CU(device, err, cuDevicePrimaryCtxRetain, &device->context, cu_device);
}

/* ---- contexts ---- */

rnl_status rnl_gpu_leave(rnl_gpu_entry *entry, rnl_status status)
{
    rnl_cu_context popped;
    rnl_error forked;
    if (rnl_cudnn_check_fork(&forked) != RNL_OK)
        return status;
    entry->device->cu->cuThreadExchangeStreamCaptureMode(&entry->mode);
    entry->device->cu->cuCtxPopCurrent_v2(&popped);
    return status;
}

/* Make the context current and set the thread's capture mode to "relaxed". In a different mode,
 * allocating and waiting would break a capture of the same thread, and a capture of any thread in
 * the mode "global". */
static rnl_status make_current(rnl_gpu_entry *entry, rnl_error *err)
{
    rnl_gpu_device *const device = entry->device;
    rnl_cu_context popped;
    rnl_status status = RNL_CU(device, err, cuCtxPushCurrent_v2, device->context);
    if (status != RNL_OK)
        return status;
    entry->mode = RNL_CU_STREAM_CAPTURE_MODE_RELAXED;
    status = RNL_CU(device, err, cuThreadExchangeStreamCaptureMode, &entry->mode);
    if (status != RNL_OK)
        device->cu->cuCtxPopCurrent_v2(&popped);
    else if (!device->host_stream &&
             (status = RNL_CU(device, err, cuStreamCreate, &device->host_stream,
                              RNL_CU_STREAM_NON_BLOCKING)))
        rnl_gpu_leave(entry, status);
    return status;
}

rnl_status rnl_gpu_enter(int ordinal, rnl_gpu_entry *entry, rnl_error *err)
{
    rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    pthread_mutex_lock(&lock);
    status = make_ready_locked(ordinal, &entry->device, err);
    if (status == RNL_OK)
        status = make_current(entry, err);
    pthread_mutex_unlock(&lock);
    return status;
}
