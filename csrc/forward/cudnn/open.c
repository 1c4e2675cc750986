/* The cuDNN, the driver and the GPUs of the process. */
#include "forward/cudnn/open.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

static const char DRIVER_NAME[] = "libcuda.so.1";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool opened;
    rnl_cudnn_library library;
    _Atomic pid_t pid; /* the process that has initialized the driver; 0: none */
    bool tried;        /* to initialize it */
    bool has_driver;   /* it is initialized, and has GPUs */
    rnl_driver_table driver;
    char driver_path[RNL_PATH_NBYTES]; /* "": none */
    int driver_cuda, num_gpus;
    rnl_error no_driver;
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

/* Open it by the system's loader, and initialize it. */
static rnl_status open_driver(rnl_error *err)
{
    const rnl_driver_table *const call = &process.driver;
    void *const library = rnl_library_open(DRIVER_NAME, err);
    if (!library)
        return RNL_E_NO_CUDNN;
    if (!rnl_library_path(library, process.driver_path))
        snprintf(process.driver_path, sizeof process.driver_path, "%s", DRIVER_NAME);
    const char *missing = NULL;
#define DRIVER(returns, name, arguments)                                                           \
    rnl_library_find(library, #name, &process.driver.name, &missing);
#include "forward/cudnn/symbols.def"
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "%s lacks %s: the driver is too old, install a newer one", DRIVER_NAME,
                        missing);
    rnl_status status = check("cuDriverGetVersion", call->cuDriverGetVersion(&process.driver_cuda),
                              err);
    if (status == RNL_OK)
        status = check("cuInit", call->cuInit(0), err);
    if (status == RNL_OK)
        status = check("cuDeviceGetCount", call->cuDeviceGetCount(&process.num_gpus), err);
    if (status == RNL_OK && process.num_gpus < 1)
        status = check("cuDeviceGetCount", RNL_CUDA_ERROR_NO_DEVICE, err);
    return status;
}

/* Only once: a driver that could not be initialized is not tried again. */
static void load_driver(void)
{
    if (process.tried)
        return;
    process.has_driver = open_driver(&process.no_driver) == RNL_OK;
    process.tried = true;
    if (process.has_driver)
        atomic_store(&process.pid, getpid());
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

static rnl_status open_at(const char *path, rnl_error *err)
{
    static rnl_cudnn_library found; /* large; protected by the lock */
    if (process.opened)
        return RNL_OK;
    load_driver();
    const rnl_status status = rnl_cudnn_load(path, process.has_driver ? process.driver_cuda : 0,
                                             &found, err);
    if (status == RNL_OK)
        process.library = found;
    process.opened = status == RNL_OK;
    return status;
}

rnl_status rnl_cudnn_open(const char *path, rnl_error *err)
{
    rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK)
        return status;
    pthread_mutex_lock(&lock);
    status = open_at(path, err);
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
    if (process.opened) {
        const rnl_cudnn_library *const library = &process.library;
        about->path = library->path;
        about->version = library->version;
        about->cuda_version = library->cuda_version;
        about->cublas = library->cublas[0] ? library->cublas : NULL;
    }
    about->driver = process.driver_path[0] ? process.driver_path : NULL;
    about->no_driver = process.has_driver ? NULL : process.no_driver.text;
    about->driver_cuda_version = process.driver_cuda;
    about->num_gpus = process.has_driver ? process.num_gpus : 0;
    pthread_mutex_unlock(&lock);
    return RNL_OK;
}

/* ---- the GPUs ---- */

static rnl_status ask_attribute(rnl_cu_device device, rnl_cu_device_attribute attribute, int *value,
                                rnl_error *err)
{
    return check("cuDeviceGetAttribute",
                 process.driver.cuDeviceGetAttribute(value, attribute, device), err);
}

static rnl_status ask_driver(int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    const rnl_driver_table *const call = &process.driver;
    rnl_cu_device device = 0;
    int major = 0, minor = 0;
    rnl_status status = check("cuDeviceGet", call->cuDeviceGet(&device, ordinal), err);
    if (status == RNL_OK)
        status = check("cuDeviceGetName",
                       call->cuDeviceGetName(gpu->name, (int)sizeof gpu->name - 1, device), err);
    if (status == RNL_OK)
        status = ask_attribute(device, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major,
                               err);
    if (status == RNL_OK)
        status = ask_attribute(device, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor,
                               err);
    gpu->capability = 10 * major + minor;
    return status;
}

static rnl_status describe_gpu(int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    if (!process.has_driver)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no NVIDIA driver: %.900s", process.no_driver.text);
    if (ordinal < 0 || ordinal >= process.num_gpus)
        return rnl_fail(err, RNL_E_NO_CUDNN, "this GPU does not exist: the driver reports %d",
                        process.num_gpus);
    const rnl_status status = ask_driver(ordinal, gpu, err);
    if (status != RNL_OK || !process.opened)
        return status;
    const int newest = (int)process.library.call.cudnnGetMaxDeviceVersion();
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

rnl_status rnl_cudnn_use(int ordinal, rnl_cudnn_in_use *used, rnl_error *err)
{
    rnl_gpu gpu;
    rnl_error why;
    if (!process.opened)
        return rnl_fail(err, RNL_E_NO_CUDNN, "no cuDNN is open: call rnl_cudnn_open() first");
    if (rnl_gpu_describe(ordinal, &gpu, &why) != RNL_OK)
        return rnl_fail(err, RNL_E_NO_CUDNN, "GPU %d: %.900s", ordinal, why.text);
    *used = (rnl_cudnn_in_use){&process.library, &process.driver, gpu.capability, 0};
    return ask_attribute(ordinal, RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                         &used->multiprocessors, err);
}
