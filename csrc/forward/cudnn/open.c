/* The cuDNN and the driver of the process. */
#include "forward/cudnn/open.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool opened;
    rnl_cudnn_library library;
    pid_t pid; /* the process that has loaded the driver; 0: not tried yet */
    bool has_driver;
    rnl_driver driver;
    rnl_error no_driver;
} process;

/* Only once: a driver that could not be initialized is not tried again. */
static void load_driver(void)
{
    if (process.pid)
        return;
    process.has_driver = rnl_driver_load(&process.driver, &process.no_driver) == RNL_OK;
    process.pid = getpid();
}

rnl_status rnl_cudnn_check_fork(rnl_error *err)
{
    if (!process.has_driver || process.pid == getpid())
        return RNL_OK;
    return rnl_fail(
        err, RNL_E_NO_CUDNN,
        "the NVIDIA driver was initialized before this process was forked, and does not "
        "work in a forked process: start processes with spawn");
}

static rnl_status open_at(const char *path, rnl_error *err)
{
    static rnl_cudnn_library found; /* large; protected by the lock */
    rnl_status status = rnl_cudnn_check_fork(err);
    if (status != RNL_OK || process.opened)
        return status;
    load_driver();
    status = rnl_cudnn_load(path, process.has_driver ? &process.driver : NULL, &found, err);
    if (status == RNL_OK)
        process.library = found;
    process.opened = status == RNL_OK;
    return status;
}

rnl_status rnl_cudnn_open(const char *path, rnl_error *err)
{
    pthread_mutex_lock(&lock);
    const rnl_status status = open_at(path, err);
    pthread_mutex_unlock(&lock);
    return status;
}

rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err)
{
    memset(about, 0, sizeof *about);
    pthread_mutex_lock(&lock);
    const rnl_status status = rnl_cudnn_check_fork(err);
    load_driver();
    if (process.opened) {
        const rnl_cudnn_library *const library = &process.library;
        about->path = library->path;
        about->version = library->version;
        about->cuda_version = library->cuda_version;
        about->cublas = library->cublas[0] ? library->cublas : NULL;
    }
    about->driver = process.driver.path[0] ? process.driver.path : NULL;
    about->no_driver = process.has_driver ? NULL : process.no_driver.text;
    about->driver_cuda_version = process.driver.cuda_version;
    about->num_gpus = process.has_driver ? process.driver.num_devices : 0;
    pthread_mutex_unlock(&lock);
    return status;
}

static rnl_status describe_gpu(int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    if (ordinal < 0 || ordinal >= process.driver.num_devices)
        return rnl_fail(err, RNL_E_NO_CUDNN, "this GPU does not exist: the driver reports %d",
                        process.driver.num_devices);
    const rnl_status status = rnl_driver_describe(&process.driver, ordinal, gpu, err);
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
    pthread_mutex_lock(&lock);
    rnl_status status = rnl_cudnn_check_fork(err);
    load_driver();
    if (status == RNL_OK)
        status = process.has_driver ? describe_gpu(device, gpu, err)
                                    : rnl_fail(err, RNL_E_NO_CUDNN, "no NVIDIA driver: %.900s",
                                               process.no_driver.text);
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
    *used = (rnl_cudnn_in_use){&process.library, &process.driver, gpu.capability};
    return RNL_OK;
}
