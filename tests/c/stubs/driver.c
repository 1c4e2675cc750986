/* The part of libcuda that a search calls. Environment variables change its answers: STUB_DRIVER
 * (13010), STUB_INIT (a result), STUB_GPUS (1), STUB_FAILS (the name of a call, which then returns
 * 1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/cudnn/abi.h"

rnl_cu_result cuInit(unsigned flags);
rnl_cu_result cuDriverGetVersion(int *version);
rnl_cu_result cuGetErrorName(rnl_cu_result result, const char **name);
rnl_cu_result cuGetErrorString(rnl_cu_result result, const char **text);
rnl_cu_result cuDeviceGet(rnl_cu_device *device, int ordinal);
rnl_cu_result cuDeviceGetCount(int *n);
rnl_cu_result cuDeviceGetName(char *name, int nbytes, rnl_cu_device device);
rnl_cu_result cuDeviceGetAttribute(int *value, rnl_cu_device_attribute attribute,
                                   rnl_cu_device device);

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static rnl_cu_result result_of(const char *call)
{
    const char *fails = getenv("STUB_FAILS");
    return fails && strcmp(fails, call) == 0 ? (rnl_cu_result)1 : RNL_CUDA_SUCCESS;
}

rnl_cu_result cuInit(unsigned flags)
{
    (void)flags;
    return (rnl_cu_result)number("STUB_INIT", (int)result_of("cuInit"));
}

rnl_cu_result cuDriverGetVersion(int *version)
{
    *version = number("STUB_DRIVER", 13010);
    return result_of("cuDriverGetVersion");
}

rnl_cu_result cuGetErrorName(rnl_cu_result result, const char **name)
{
    *name = result == RNL_CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_STUB";
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuGetErrorString(rnl_cu_result result, const char **text)
{
    *text = result == RNL_CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "a stub";
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDeviceGet(rnl_cu_device *device, int ordinal)
{
    *device = ordinal;
    return result_of("cuDeviceGet");
}

rnl_cu_result cuDeviceGetCount(int *n)
{
    *n = number("STUB_GPUS", 1);
    return result_of("cuDeviceGetCount");
}

rnl_cu_result cuDeviceGetName(char *name, int nbytes, rnl_cu_device device)
{
    snprintf(name, (size_t)nbytes, "Stub GPU %d", device);
    return result_of("cuDeviceGetName");
}

rnl_cu_result cuDeviceGetAttribute(int *value, rnl_cu_device_attribute attribute,
                                   rnl_cu_device device)
{
    (void)device;
    *value = attribute == RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return result_of("cuDeviceGetAttribute");
}
