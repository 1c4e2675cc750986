/* Load NVIDIA's driver and describe its GPUs. */
#include "forward/cudnn/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

static const char DRIVER_NAME[] = "libcuda.so.1";

static const rnl_library_symbol SYMBOLS[] = {
#define DRIVER(returns, name, arguments) {#name, offsetof(rnl_driver_table, name)},
#include "forward/cudnn/symbols.def"
};
enum { NUM_SYMBOLS = sizeof SYMBOLS / sizeof SYMBOLS[0] };

/* The status of a call; if it failed, with the driver's text. */
static rnl_status check(const rnl_driver *driver, const char *call, rnl_cu_result result,
                        rnl_error *err)
{
    const char *name = NULL, *text = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (result == RNL_CUDA_SUCCESS)
        return RNL_OK;
    driver->call.cuGetErrorName(result, &name);
    driver->call.cuGetErrorString(result, &text);
    return rnl_fail(err, RNL_E_NO_CUDNN, "%s: %d (%s): %s%s%.100s%s", call, (int)result,
                    name ? name : "no name", text ? text : "no text",
                    visible ? "; CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                    visible ? "\"" : "");
}

rnl_status rnl_driver_load(rnl_driver *driver, rnl_error *err)
{
    const rnl_driver_table *const call = &driver->call;
    memset(driver, 0, sizeof *driver);
    void *library = rnl_library_open(DRIVER_NAME, err);
    if (!library)
        return RNL_E_NO_CUDNN;
    if (!rnl_library_path(library, driver->path))
        snprintf(driver->path, sizeof driver->path, "%s", DRIVER_NAME);
    const char *const missing = rnl_library_look_up(library, SYMBOLS, NUM_SYMBOLS, &driver->call);
    if (missing)
        return rnl_fail(err, RNL_E_NO_CUDNN,
                        "%s lacks %s: the driver is too old, install a newer one", DRIVER_NAME,
                        missing);
    rnl_status status = check(driver, "cuDriverGetVersion",
                              call->cuDriverGetVersion(&driver->cuda_version), err);
    if (status == RNL_OK)
        status = check(driver, "cuInit", call->cuInit(0), err);
    if (status == RNL_OK)
        status = check(driver, "cuDeviceGetCount", call->cuDeviceGetCount(&driver->num_devices),
                       err);
    if (status == RNL_OK && driver->num_devices < 1)
        status = check(driver, "cuDeviceGetCount", RNL_CUDA_ERROR_NO_DEVICE, err);
    return status;
}

rnl_status rnl_driver_describe(const rnl_driver *driver, int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    const rnl_driver_table *const call = &driver->call;
    rnl_cu_device device = 0;
    int major = 0, minor = 0;
    memset(gpu, 0, sizeof *gpu);
    rnl_status status = check(driver, "cuDeviceGet", call->cuDeviceGet(&device, ordinal), err);
    if (status == RNL_OK)
        status = check(driver, "cuDeviceGetName",
                       call->cuDeviceGetName(gpu->name, (int)sizeof gpu->name - 1, device), err);
    if (status == RNL_OK)
        status = check(driver, "cuDeviceGetAttribute",
                       call->cuDeviceGetAttribute(
                           &major, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
                       err);
    if (status == RNL_OK)
        status = check(driver, "cuDeviceGetAttribute",
                       call->cuDeviceGetAttribute(
                           &minor, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
                       err);
    gpu->capability = 10 * major + minor;
    return status;
}
