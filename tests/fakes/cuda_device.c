/*
 * Devices and primary contexts.
 *
 * Environment variables describe the machine: FAKE_CUDA_DEVICES (1), FAKE_CUDA_CAPABILITY (90:
 * 9.0), FAKE_CUDA_NAME,
 * FAKE_CUDA_DRIVER (13000), FAKE_CUDA_INIT (the result of cuInit).
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEEPEST = 16 };

struct context {
    struct fake_object object;
    int device, retained;
};

static struct context *primary[FAKE_MAX_DEVICES];
static _Thread_local struct context *stack[DEEPEST];
static _Thread_local int depth;

int fake_environment(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

static int devices(void)
{
    int count = fake_environment("FAKE_CUDA_DEVICES", 1);
    return count < FAKE_MAX_DEVICES ? count : FAKE_MAX_DEVICES;
}

static int is_device(CUdevice device)
{
    return device >= 0 && device < devices();
}

int fake_capability(void)
{
    return 10 * fake_environment("FAKE_CUDA_CAPABILITY", 90);
}

int fake_current_device(void)
{
    struct context *current = depth ? stack[depth - 1] : NULL;
    return current && current->retained ? current->device : -1;
}

CUresult cuInit(unsigned flags)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "flags=%u", flags);
    if (!status)
        status = (CUresult)fake_environment("FAKE_CUDA_INIT", CU_OK);
    return status ? status : devices() ? CU_OK : CU_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = fake_environment("FAKE_CUDA_DRIVER", 13000);
    return CU_OK;
}

CUresult cuDeviceGetCount(int *count)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "%s", "");
    if (!status)
        *count = devices();
    return status;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    DRIVER_CALL("ordinal=%d", ordinal);
    if (!is_device(ordinal))
        return CU_INVALID_DEVICE;
    *device = ordinal;
    return CU_OK;
}

CUresult cuDeviceGetName(char *name, int nbytes, CUdevice device)
{
    DRIVER_CALL("device=%d", device);
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    const char *given = getenv("FAKE_CUDA_NAME");
    snprintf(name, (size_t)nbytes, "%s", given ? given : "Fake GPU");
    return CU_OK;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    DRIVER_CALL("attribute=%d device=%d", (int)attribute, device);
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    switch ((int)attribute) {
    case DEVICE_MAJOR: *value = fake_capability() / 100; break;
    case DEVICE_MINOR: *value = fake_capability() / 10 % 10; break;
    default: fake_die("cuDeviceGetAttribute: %d is not modelled", (int)attribute);
    }
    return CU_OK;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    DRIVER_CALL("device=%d", device);
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    if (!primary[device]) {
        primary[device] = fake_new(FAKE_CONTEXT, sizeof *primary[device]);
        primary[device]->device = device;
        fake_count(FAKE_CONTEXT, -1); /* counted when retained */
    }
    primary[device]->retained++;
    fake_count(FAKE_CONTEXT, 1);
    *context = (CUcontext)primary[device];
    return CU_OK;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "device=%d", device);
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    if (!primary[device] || !primary[device]->retained)
        fake_die("cuDevicePrimaryCtxRelease_v2: the context is not retained");
    primary[device]->retained--;
    fake_count(FAKE_CONTEXT, -1);
    return status;
}

static struct context *living(CUcontext context, const char *call)
{
    struct context *found = fake_object(context, FAKE_CONTEXT, call);
    if (!found->retained)
        fake_die("%s: the primary context of device %d is released", call, found->device);
    return found;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    DRIVER_CALL("context=%p", (void *)context);
    if (depth == DEEPEST)
        fake_die("cuCtxPushCurrent_v2: %d contexts are pushed and none popped", depth);
    stack[depth++] = living(context, __func__);
    fake_count(FAKE_PUSHED, 1);
    return CU_OK;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "%s", "");
    if (!depth)
        return status ? status : CU_INVALID_CONTEXT;
    depth--;
    fake_count(FAKE_PUSHED, -1);
    if (context)
        *context = (CUcontext)stack[depth];
    return status;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "%s", "");
    *context = depth ? (CUcontext)stack[depth - 1] : NULL;
    return status;
}

/* The names are CUDA's, the texts are our own. */
static const struct {
    int status;
    const char *name, *text;
} ERRORS[] = {
    {CU_OK, "CUDA_SUCCESS", "all is well"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid value"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "the device is out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no such device"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context is current"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "not a handle"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an invalid address"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while capturing"},
    {CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture is broken"},
};

static int error_at(CUresult status)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].status == (int)status)
            return (int)i;
    return -1;
}

CUresult cuGetErrorName(CUresult status, const char **name)
{
    int at = error_at(status);
    *name = at < 0 ? NULL : ERRORS[at].name;
    return at < 0 ? CU_INVALID_VALUE : CU_OK;
}

CUresult cuGetErrorString(CUresult status, const char **text)
{
    int at = error_at(status);
    *text = at < 0 ? NULL : ERRORS[at].text;
    return at < 0 ? CU_INVALID_VALUE : CU_OK;
}
