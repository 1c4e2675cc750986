/*
 * The driver: devices and primary contexts, memory, copies, errors.
 *
 * Environment variables describe the machine: FAKE_CUDA_DEVICES (1), FAKE_CUDA_CAPABILITY (90:
 * 9.0), FAKE_CUDA_NAME, FAKE_CUDA_DRIVER (13000), FAKE_CUDA_INIT (the result of cuInit),
 * FAKE_CUDA_MEMORY (bytes of a device, 0: no limit).
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices and contexts ---- */

enum { DEEPEST = 16, INVALID_DEVICE = 101 };

struct context {
    struct fake_object object;
    int device;
};

static struct context *primary[FAKE_MAX_DEVICES];
static _Thread_local struct context *stack[DEEPEST];
static _Thread_local int depth;

static int devices(void)
{
    return fake_environment("FAKE_CUDA_DEVICES", 1);
}

int fake_current_device(void)
{
    return depth ? stack[depth - 1]->device : -1;
}

rnl_cu_result cuInit(unsigned flags)
{
    DRIVER_CALL("flags=%u", flags);
    const int result = devices() ? 0 : RNL_CUDA_ERROR_NO_DEVICE;
    return (rnl_cu_result)fake_environment("FAKE_CUDA_INIT", result);
}

rnl_cu_result cuDriverGetVersion(int *version)
{
    *version = fake_environment("FAKE_CUDA_DRIVER", 13000);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDeviceGetCount(int *n)
{
    DRIVER_CALL("%s", "");
    *n = devices();
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDeviceGet(rnl_cu_device *device, int ordinal)
{
    DRIVER_CALL("ordinal=%d", ordinal);
    *device = ordinal;
    return (rnl_cu_result)(ordinal < devices() ? 0 : INVALID_DEVICE);
}

rnl_cu_result cuDeviceGetName(char *name, int nbytes, rnl_cu_device device)
{
    DRIVER_CALL("device=%d", device);
    const char *given = getenv("FAKE_CUDA_NAME");
    snprintf(name, (size_t)nbytes, "%s", given ? given : "Fake GPU");
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDeviceGetAttribute(int *value, rnl_cu_device_attribute attribute,
                                   rnl_cu_device device)
{
    DRIVER_CALL("attribute=%d device=%d", (int)attribute, device);
    const int capability = fake_environment("FAKE_CUDA_CAPABILITY", 90);
    *value = attribute == RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 132
             : attribute == RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? capability / 10
                                                                             : capability % 10;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDevicePrimaryCtxRetain(rnl_cu_context *context, rnl_cu_device device)
{
    DRIVER_CALL("device=%d", device);
    if (!primary[device]) {
        primary[device] = fake_new(FAKE_CONTEXT, sizeof *primary[device]);
        primary[device]->device = device;
    }
    *context = (rnl_cu_context)primary[device];
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDevicePrimaryCtxRelease_v2(rnl_cu_device device);
rnl_cu_result cuDevicePrimaryCtxRelease_v2(rnl_cu_device device)
{
    DRIVER_CALL("device=%d", device); /* others have retained it */
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuCtxPushCurrent_v2(rnl_cu_context context)
{
    DRIVER_CALL("context=%p", (void *)context);
    if (depth == DEEPEST)
        fake_die("cuCtxPushCurrent_v2: %d contexts are pushed and none popped", depth);
    stack[depth++] = fake_object(context, FAKE_CONTEXT, __func__);
    fake_count(FAKE_PUSHED, 1);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuCtxPopCurrent_v2(rnl_cu_context *context)
{
    LOCKED;
    const int status = fake_driver_call(__func__, "%s", "");
    if (!depth)
        fake_die("cuCtxPopCurrent_v2: no context is current");
    depth--;
    fake_count(FAKE_PUSHED, -1);
    if (context)
        *context = (rnl_cu_context)stack[depth];
    return (rnl_cu_result)status;
}

rnl_cu_result cuCtxGetCurrent(rnl_cu_context *context);
rnl_cu_result cuCtxGetCurrent(rnl_cu_context *context)
{
    DRIVER_CALL("%s", "");
    *context = depth ? (rnl_cu_context)stack[depth - 1] : NULL;
    return RNL_CUDA_SUCCESS;
}

/* ---- errors ---- */

rnl_cu_result cuGetErrorName(rnl_cu_result status, const char **name)
{
    *name = status == RNL_CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : status == RNL_CUDA_ERROR_NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                                                   : NULL; /* as for a number that is unknown */
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuGetErrorString(rnl_cu_result status, const char **text)
{
    *text = status == RNL_CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : NULL;
    return RNL_CUDA_SUCCESS;
}

/* ---- memory ---- */

rnl_cu_result cuMemAlloc_v2(rnl_cu_address *at, size_t nbytes)
{
    DRIVER_CALL("nbytes=%zu", nbytes);
    fake_refuse_in_capture(__func__);
    const int device = fake_current_device();
    const size_t most = (size_t)fake_environment("FAKE_CUDA_MEMORY", 0);
    if (device < 0 || !nbytes)
        fake_die("cuMemAlloc_v2 of %zu bytes on device %d", nbytes, device);
    if (most && fake_in_use(device) + nbytes > most)
        return RNL_CUDA_ERROR_OUT_OF_MEMORY;
    *at = fake_new_block(nbytes, device, 1);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemFree_v2(rnl_cu_address at)
{
    LOCKED;
    fake_refuse_in_capture(__func__);
    const int status = fake_driver_call(__func__, "at=%llx", at);
    if (fake_sticky())
        return (rnl_cu_result)status;
    if (fake_current_device() < 0)
        fake_die("cuMemFree_v2: no context is current");
    fake_wait_for_all();
    fake_end_block(at, __func__);
    return (rnl_cu_result)status;
}

/* ---- copies: one from the host has read it when the call returns, one to the host is done then */

static void run_from_host(const struct fake_work *work)
{
    memcpy(fake_bytes(work->to, work->nbytes, "the target"), work->argument, work->nbytes);
}

static void run_to_host(const struct fake_work *work)
{
    memcpy((void *)work->argument, fake_bytes(work->from, work->nbytes, "the source"),
           work->nbytes);
}

static void run_copy(const struct fake_work *work)
{
    memcpy(fake_bytes(work->to, work->nbytes, "the target"),
           fake_bytes(work->from, work->nbytes, "the source"), work->nbytes);
}

static void run_fill(const struct fake_work *work)
{
    memset(fake_bytes(work->to, work->nbytes, "the target"), work->value, work->nbytes);
}

static void submit(struct fake_work work, rnl_cu_stream stream)
{
    if (work.to)
        fake_access(&work, work.to, work.nbytes, 1, "the target");
    if (work.from)
        fake_access(&work, work.from, work.nbytes, 0, "the source");
    if (work.argument && fake_is_capturing(stream))
        fake_die("%s: the stream is capturing, and the host's memory is not pinned", work.name);
    fake_submit(stream, &work);
}

rnl_cu_result cuMemcpyHtoDAsync_v2(rnl_cu_address to, const void *from, size_t nbytes,
                                   rnl_cu_stream stream)
{
    DRIVER_CALL("to=%llx nbytes=%zu stream=%p", to, nbytes, (void *)stream);
    submit(
        (struct fake_work){
            .name = __func__, .run = run_from_host, .argument = from, .to = to, .nbytes = nbytes},
        stream);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemcpyDtoHAsync_v2(void *to, rnl_cu_address from, size_t nbytes,
                                   rnl_cu_stream stream)
{
    DRIVER_CALL("from=%llx nbytes=%zu stream=%p", from, nbytes, (void *)stream);
    submit(
        (struct fake_work){
            .name = __func__, .run = run_to_host, .argument = to, .from = from, .nbytes = nbytes},
        stream);
    fake_wait(stream);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemcpyDtoDAsync_v2(rnl_cu_address to, rnl_cu_address from, size_t nbytes,
                                   rnl_cu_stream stream)
{
    DRIVER_CALL("to=%llx from=%llx nbytes=%zu stream=%p", to, from, nbytes, (void *)stream);
    submit(
        (struct fake_work){
            .name = __func__, .run = run_copy, .to = to, .from = from, .nbytes = nbytes},
        stream);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemcpyHtoD_v2(rnl_cu_address to, const void *from, size_t nbytes);
rnl_cu_result cuMemcpyHtoD_v2(rnl_cu_address to, const void *from, size_t nbytes)
{
    LOCKED;
    const rnl_cu_result status = cuMemcpyHtoDAsync_v2(to, from, nbytes, NULL);
    if (!status)
        fake_wait(NULL);
    return status;
}

rnl_cu_result cuMemcpyDtoH_v2(void *to, rnl_cu_address from, size_t nbytes);
rnl_cu_result cuMemcpyDtoH_v2(void *to, rnl_cu_address from, size_t nbytes)
{
    return cuMemcpyDtoHAsync_v2(to, from, nbytes, NULL);
}

rnl_cu_result cuMemsetD8Async(rnl_cu_address to, unsigned char value, size_t nbytes,
                              rnl_cu_stream stream)
{
    DRIVER_CALL("to=%llx value=%d nbytes=%zu stream=%p", to, value, nbytes, (void *)stream);
    submit(
        (struct fake_work){
            .name = __func__, .run = run_fill, .to = to, .nbytes = nbytes, .value = value},
        stream);
    return RNL_CUDA_SUCCESS;
}

/* ---- for tests: memory of other owners, and access by the host to any memory ---- */

rnl_cu_address fake_alloc(size_t nbytes, int device);
rnl_cu_address fake_alloc(size_t nbytes, int device)
{
    LOCKED;
    return fake_new_block(nbytes, device, 0);
}

void fake_free(rnl_cu_address at);
void fake_free(rnl_cu_address at)
{
    LOCKED;
    fake_wait_for_all();
    fake_end_block(at, "fake_free");
}

/* Dies if nothing has waited for the work that writes there. */
void fake_read(rnl_cu_address at, void *to, size_t nbytes);
void fake_read(rnl_cu_address at, void *to, size_t nbytes)
{
    LOCKED;
    fake_host_access(at, nbytes, 0);
    memcpy(to, fake_bytes(at, nbytes, "fake_read"), nbytes);
}

void fake_write(rnl_cu_address at, const void *from, size_t nbytes);
void fake_write(rnl_cu_address at, const void *from, size_t nbytes)
{
    LOCKED;
    fake_host_access(at, nbytes, 1);
    memcpy(fake_bytes(at, nbytes, "fake_write"), from, nbytes);
}
