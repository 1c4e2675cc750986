/* Load NVIDIA's driver and describe its GPUs. */
#include "forward/cudnn/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

static const char DRIVER_NAME[] = "libcuda.so.1";

static const struct {
    const char *name;
    size_t at;
    int needed;
} symbols[] = {
#define DRIVER(needed, returns, name, arguments) {#name, offsetof(rnl_driver_table, name), needed},
#include "forward/cudnn/symbols.def"
};

static rnl_status look_up(rnl_driver *driver, void *library, rnl_error *err)
{
    for (size_t k = 0; k < sizeof symbols / sizeof symbols[0]; k++) {
        rnl_library_function *found = rnl_library_find(library, symbols[k].name);
        if (!found && symbols[k].needed)
            return rnl_fail(err, RNL_E_NO_CUDNN,
                            "%s lacks %s: the driver is too old, install a newer one", DRIVER_NAME,
                            symbols[k].name);
        memcpy((char *)&driver->call + symbols[k].at, &found, sizeof found);
    }
    return RNL_OK;
}

/* A call failed: report its name, its result and the driver's text. */
static rnl_status failed(const rnl_driver *driver, const char *call, rnl_cu_result result,
                         rnl_error *err)
{
    const char *name = NULL, *text = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
    driver->call.cuGetErrorName(result, &name);
    driver->call.cuGetErrorString(result, &text);
    return rnl_fail(err, RNL_E_NO_CUDNN, "%s: %d (%s): %s%s%.100s%s", call, (int)result,
                    name ? name : "no name", text ? text : "no text",
                    visible ? "; CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                    visible ? "\"" : "");
}

rnl_status rnl_driver_load(rnl_driver *driver, rnl_error *err)
{
    rnl_cu_result result;
    memset(driver, 0, sizeof *driver);
    void *library = rnl_library_open(DRIVER_NAME, err);
    if (!library)
        return RNL_E_NO_CUDNN;
    if (!rnl_library_path(library, driver->path))
        snprintf(driver->path, sizeof driver->path, "%s", DRIVER_NAME);
    const rnl_status status = look_up(driver, library, err);
    if (status != RNL_OK)
        return status;
    if ((result = driver->call.cuDriverGetVersion(&driver->cuda_version)) != RNL_CUDA_SUCCESS)
        return failed(driver, "cuDriverGetVersion", result, err);
    if ((result = driver->call.cuInit(0)) != RNL_CUDA_SUCCESS)
        return failed(driver, "cuInit", result, err);
    if ((result = driver->call.cuDeviceGetCount(&driver->num_devices)) != RNL_CUDA_SUCCESS)
        return failed(driver, "cuDeviceGetCount", result, err);
    if (driver->num_devices < 1)
        return failed(driver, "cuDeviceGetCount", RNL_CUDA_ERROR_NO_DEVICE, err);
    return RNL_OK;
}

rnl_status rnl_driver_describe(const rnl_driver *driver, int ordinal, rnl_gpu *gpu, rnl_error *err)
{
    rnl_cu_result result;
    rnl_cu_device device;
    int major = 0, minor = 0;
    memset(gpu, 0, sizeof *gpu);
    if ((result = driver->call.cuDeviceGet(&device, ordinal)) != RNL_CUDA_SUCCESS)
        return failed(driver, "cuDeviceGet", result, err);
    if ((result = driver->call.cuDeviceGetName(gpu->name, (int)sizeof gpu->name - 1, device)) !=
        RNL_CUDA_SUCCESS)
        return failed(driver, "cuDeviceGetName", result, err);
    if ((result = driver->call.cuDeviceGetAttribute(
             &major, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)) !=
            RNL_CUDA_SUCCESS ||
        (result = driver->call.cuDeviceGetAttribute(
             &minor, RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)) != RNL_CUDA_SUCCESS)
        return failed(driver, "cuDeviceGetAttribute", result, err);
    gpu->capability = 10 * major + minor;
    return RNL_OK;
}
