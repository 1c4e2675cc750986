/* The cuDNN, the driver and the GPUs of the process, and their contexts. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

static const char DRIVER_NAME[] = "libcuda.so.1";
enum { MAX_GPUS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    rnl_cudnn_table dnn;
    rnl_driver_table driver;
    rnl_cudnn_about about; /* path: NULL if no cuDNN is open */
    bool tried;            /* to initialize the driver */
    rnl_error no_driver;
    _Atomic pid_t pid; /* the process that has initialized it; 0: none */
    rnl_gpu_device gpus[MAX_GPUS];
} process;

/* ---- the driver ---- */

/* The status of a call; if it failed, with the driver's text. */
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

/* Call the driver: an rnl_status. */
#define CHECKED(err, name, ...) check(#name, process.driver.name(__VA_ARGS__), err)

/* Open it by the system's loader, and initialize it. */
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
    process.about.num_gpus = num_gpus < MAX_GPUS ? num_gpus : MAX_GPUS;
    atomic_store(&process.pid, getpid());
    return RNL_OK;
}

/* Only once: a driver that could not be initialized is not tried again. */
static void load_driver(void)
{
    if (!process.tried && open_driver(&process.no_driver) != RNL_OK)
        process.about.no_driver = process.no_driver.text;
    process.tried = true;
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
    load_driver();
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
    load_driver();
    *about = process.about;
    pthread_mutex_unlock(&lock);
    return RNL_OK;
}

/* ---- the GPUs ---- */

/* The caller has the lock, as of make_ready(). */
static rnl_status describe_gpu(int ordinal, rnl_gpu *gpu, rnl_error *err)
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
    load_driver();
    status = describe_gpu(device, gpu, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Retain its primary context, which every framework in the process uses. */
static rnl_status make_ready(int ordinal, rnl_gpu_device **made, rnl_error *err)
{
    rnl_gpu gpu = {.capability = 0};
    rnl_error why;
    rnl_cu_device found = 0;
    rnl_status status;
    if (!process.about.path)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no cuDNN is open: call rnl_cudnn_open() first");
    if (ordinal >= 0 && ordinal < MAX_GPUS && process.gpus[ordinal].context) {
        *made = &process.gpus[ordinal];
        return RNL_OK;
    }
    if (describe_gpu(ordinal, &gpu, &why) != RNL_OK)
        return rnl_fail(err, RNL_E_NO_CUDNN, "GPU %d: %.900s", ordinal, why.text);
    /* describe_gpu() refuses others. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound) */
    rnl_gpu_device *const device = *made = &process.gpus[ordinal];
    device->dnn = &process.dnn;
    device->cu = &process.driver;
    device->ordinal = ordinal;
    device->version = process.about.version;
    device->capability = gpu.capability;
    if ((status = RNL_CU(device, err, cuDeviceGet, &found, ordinal)) ||
        (status = RNL_CU(device, err, cuDeviceGetAttribute, &device->multiprocessors,
                         RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, found)))
        return status;
    pthread_mutex_init(&device->lock, NULL);
    return RNL_CU(device, err, cuDevicePrimaryCtxRetain, &device->context, found);
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

/* Allocating and waiting are forbidden in a thread that captures, and in every thread while another
 * one captures in the mode "global": they would break the capture, unless the thread's own mode is
 * "relaxed". */
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
    else if (!device->own && (status = RNL_CU(device, err, cuStreamCreate, &device->own,
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
    status = make_ready(ordinal, &entry->device, err);
    if (status == RNL_OK)
        status = make_current(entry, err);
    pthread_mutex_unlock(&lock);
    return status;
}
