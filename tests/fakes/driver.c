/* The driver: devices and primary contexts, memory, copies, errors. README.md lists the environment
 * variables that describe the machine. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices and contexts ---- */

enum { DEEPEST = 16, MAX_DEVICES = 8, INVALID_DEVICE = 101 };

static char contexts[MAX_DEVICES]; /* an address in it is a device's primary context */
static _Thread_local rnl_cu_context stack[DEEPEST];
static _Thread_local int depth;
long fake_pushed;

static int devices(void)
{
    return fake_environment("FAKE_CUDA_DEVICES", 1);
}

static rnl_cu_context current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

int fake_current_device(void)
{
    return depth ? (int)((char *)current() - contexts) : -1;
}

rnl_cu_result cuInit(unsigned flags)
{
    CALL("flags=%u", flags);
    return (rnl_cu_result)fake_environment("FAKE_CUDA_INIT",
                                           devices() ? 0 : RNL_CUDA_ERROR_NO_DEVICE);
}

rnl_cu_result cuDeviceGet(rnl_cu_device *device, int ordinal)
{
    CALL("ordinal=%d", ordinal);
    *device = ordinal;
    return (rnl_cu_result)(ordinal < devices() ? 0 : INVALID_DEVICE);
}

rnl_cu_result cuDeviceGetName(char *name, int nbytes, rnl_cu_device device)
{
    CALL("device=%d", device);
    const char *given = getenv("FAKE_CUDA_NAME");
    snprintf(name, (size_t)nbytes, "%s", given ? given : "Fake GPU");
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuDeviceGetAttribute(int *value, rnl_cu_device_attribute attribute,
                                   rnl_cu_device device)
{
    CALL("device=%d", device);
    const int capability = fake_environment("FAKE_CUDA_CAPABILITY", 90);
    *value = attribute == RNL_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 132
             : attribute == RNL_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? capability / 10
                                                                             : capability % 10;
    return RNL_CUDA_SUCCESS;
}

FAKE(rnl_cu_result, cuDriverGetVersion, (int *version),
     *version = fake_environment("FAKE_CUDA_DRIVER", 13000))
FAKE(rnl_cu_result, cuDeviceGetCount, (int *n), *n = devices())
FAKE(rnl_cu_result, cuDevicePrimaryCtxRetain, (rnl_cu_context * context, rnl_cu_device device),
     *context = (rnl_cu_context)&contexts[device])
/* others have retained it */
FAKE(rnl_cu_result, cuDevicePrimaryCtxRelease_v2, (rnl_cu_device device), (void)device)
FAKE(rnl_cu_result, cuCtxGetCurrent, (rnl_cu_context * context), *context = current())

rnl_cu_result cuCtxPushCurrent_v2(rnl_cu_context context)
{
    CALL("context=%p", (void *)context);
    if (depth == DEEPEST || !context)
        fake_die("cuCtxPushCurrent_v2: %d contexts are pushed and none popped", depth);
    stack[depth++] = context;
    fake_pushed++;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuCtxPopCurrent_v2(rnl_cu_context *context)
{
    BEGIN();
    if (!depth)
        fake_die("cuCtxPopCurrent_v2: no context is current");
    if (context)
        *context = current();
    depth--;
    fake_pushed--;
    return failed;
}

/* ---- errors: others have no name and no text, as numbers that the driver does not know ---- */

rnl_cu_result cuGetErrorName(rnl_cu_result status, const char **name)
{
    *name = status == RNL_CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuGetErrorString(rnl_cu_result status, const char **text)
{
    *text = status == RNL_CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : NULL;
    return RNL_CUDA_SUCCESS;
}

/* ---- memory ---- */

rnl_cu_result cuMemAlloc_v2(rnl_cu_address *at, size_t nbytes)
{
    CALL("nbytes=%zu", nbytes);
    fake_refuse_in_capture(__func__);
    const size_t most = (size_t)fake_environment("FAKE_CUDA_MEMORY", 0);
    if (fake_current_device() < 0 || !nbytes)
        fake_die("cuMemAlloc_v2 of %zu bytes on device %d", nbytes, fake_current_device());
    if (most && fake_bytes_in_use() + nbytes > most)
        return RNL_CUDA_ERROR_OUT_OF_MEMORY;
    *at = fake_new_block(nbytes, "memory");
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemFree_v2(rnl_cu_address at)
{
    BEGIN("at=%llx", at);
    fake_refuse_in_capture(__func__);
    if (fake_current_device() < 0)
        fake_die("cuMemFree_v2: no context is current");
    fake_end_block(at, "memory");
    return failed;
}

struct pinned {
    struct fake_object object;
    struct pinned *next;
    size_t nbytes;
    _Alignas(16) char bytes[];
};

static struct pinned *all_pinned; /* the memory of the host that the device may use */

int fake_is_pinned(const void *host)
{
    const struct pinned *pinned = all_pinned;
    while (pinned && !((const char *)host >= pinned->bytes &&
                       (const char *)host < pinned->bytes + pinned->nbytes))
        pinned = pinned->next;
    return pinned && pinned->object.alive;
}

rnl_cu_result cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags)
{
    CALL("nbytes=%zu flags=%u", nbytes, flags);
    fake_refuse_in_capture(__func__);
    struct pinned *const made = fake_new("pinned", sizeof *made + nbytes);
    made->nbytes = nbytes;
    made->next = all_pinned;
    all_pinned = made;
    *memory = made->bytes;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemFreeHost(void *memory)
{
    BEGIN();
    fake_refuse_in_capture(__func__);
    fake_end((char *)memory - offsetof(struct pinned, bytes), "pinned", __func__);
    return failed;
}

/* ---- copies: one from the host has read it when the call returns, one to the host is done then.
 * In a graph both use the host's memory at each launch, and it must be pinned and living ---- */

static void run_copy(const struct fake_work *work)
{
    const void *from = work->from ? fake_use(work->from, work->nbytes, 0, "the source")
                                  : work->host;
    void *to = work->to ? fake_use(work->to, work->nbytes, 1, "the target") : work->host;
    memcpy(to, from, work->nbytes);
}

static void run_fill(const struct fake_work *work)
{
    memset(fake_use(work->to, work->nbytes, 1, "the target"), work->value, work->nbytes);
}

/* `...`: the other members of a struct fake_work. */
#define COPY(name, arguments, ...)                                                                 \
    rnl_cu_result name arguments                                                                   \
    {                                                                                              \
        CALL("stream=%p", (void *)stream);                                                         \
        fake_submit(stream, &(struct fake_work){__func__, __VA_ARGS__, .nbytes = nbytes});         \
        return RNL_CUDA_SUCCESS;                                                                   \
    }

COPY(cuMemcpyHtoDAsync_v2,
     (rnl_cu_address to, const void *from, size_t nbytes, rnl_cu_stream stream), run_copy, .to = to,
     .host = (void *)from)
COPY(cuMemcpyDtoDAsync_v2,
     (rnl_cu_address to, rnl_cu_address from, size_t nbytes, rnl_cu_stream stream), run_copy,
     .to = to, .from = from)
COPY(cuMemsetD8Async, (rnl_cu_address to, unsigned char value, size_t nbytes, rnl_cu_stream stream),
     run_fill, .to = to, .value = value)

rnl_cu_result cuMemcpyDtoHAsync_v2(void *to, rnl_cu_address from, size_t nbytes,
                                   rnl_cu_stream stream)
{
    CALL("stream=%p", (void *)stream);
    if (!fake_submit(stream, &(struct fake_work){__func__, run_copy, .host = to, .from = from,
                                                 .nbytes = nbytes}))
        fake_wait(stream);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuMemcpyHtoD_v2(rnl_cu_address to, const void *from, size_t nbytes)
{
    LOCKED;
    const rnl_cu_result status = cuMemcpyHtoDAsync_v2(to, from, nbytes, NULL);
    if (!status)
        fake_wait(NULL);
    return status;
}

rnl_cu_result cuMemcpyDtoH_v2(void *to, rnl_cu_address from, size_t nbytes)
{
    return cuMemcpyDtoHAsync_v2(to, from, nbytes, NULL);
}

/* ---- for tests: memory of other owners, and access by the host to any memory ---- */

rnl_cu_address fake_alloc(size_t nbytes)
{
    LOCKED;
    return fake_new_block(nbytes, "others' memory");
}

void fake_free(rnl_cu_address at)
{
    LOCKED;
    fake_end_block(at, "others' memory");
}

/* Dies if nothing has waited for the work that writes there. */
void fake_read(rnl_cu_address at, void *to, size_t nbytes)
{
    LOCKED;
    memcpy(to, fake_use(at, nbytes, 0, "the memory"), nbytes);
}

void fake_write(rnl_cu_address at, const void *from, size_t nbytes)
{
    LOCKED;
    memcpy(fake_use(at, nbytes, 1, "the memory"), from, nbytes);
}
