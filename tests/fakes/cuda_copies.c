/*
 * Copies, fills, and the clamp kernels.
 *
 * Memory that is not pinned: a copy from it has read it when the call returns, and writes in the
 * order of the stream; a copy to it is done when the call returns. Both are refused in a capture.
 */
#include "cuda_streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct copy {
    void *to;
    const void *from;
    CUdeviceptr device_to, device_from; /* used if `to` or `from` is NULL */
    size_t nbytes;
    void *staged; /* what was read from memory that is not pinned */
};

static void run_copy(void *argument)
{
    struct copy *copy = argument;
    void *to = copy->to ? copy->to : fake_bytes(copy->device_to, copy->nbytes, "the target");
    const void *from = copy->from ? copy->from
                                  : fake_bytes(copy->device_from, copy->nbytes, "the source");
    memmove(to, from, copy->nbytes);
    free(copy->staged);
}

static void access(struct fake_work *work, CUdeviceptr at, size_t nbytes, int write,
                   const char *what)
{
    work->access[work->accesses++] = (struct fake_access){at, nbytes, write, what};
}

static CUresult copy(const char *name, struct copy copy, CUstream stream)
{
    struct fake_work work = {.name = name, .run = run_copy};
    const void *on_host = copy.to ? copy.to : copy.from;
    int pinned = on_host && fake_is_pinned(on_host);
    if (copy.device_to || pinned)
        access(&work, copy.device_to ? copy.device_to : (CUdeviceptr)(uintptr_t)copy.to,
               copy.nbytes, 1, "the target");
    if (copy.device_from || pinned)
        access(&work, copy.device_from ? copy.device_from : (CUdeviceptr)(uintptr_t)copy.from,
               copy.nbytes, 0, "the source");
    if (copy.from && !pinned)
        copy.from = copy.staged = memcpy(malloc(copy.nbytes), copy.from, copy.nbytes);
    memcpy(work.argument, &copy, sizeof copy);
    for (int i = 0; i < work.accesses; i++)
        fake_bytes(work.access[i].at, copy.nbytes, work.access[i].what);
    if (on_host && !pinned && fake_stream(stream, name)->capture)
        fake_die("%s: the host memory is not pinned, and the stream is capturing", name);
    CUresult status = fake_submit(stream, &work);
    if (copy.to && !pinned)
        fake_finish(stream);
    return status;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t nbytes, CUstream stream)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "to=%llx nbytes=%zu stream=%p",
                                       (unsigned long long)to, nbytes, (void *)stream);
    struct copy sent = {NULL, from, to, 0, nbytes, NULL};
    return status ? status : copy(__func__, sent, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "from=%llx nbytes=%zu stream=%p",
                                       (unsigned long long)from, nbytes, (void *)stream);
    struct copy sent = {to, NULL, 0, from, nbytes, NULL};
    return status ? status : copy(__func__, sent, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__,
                                       "to=%llx from=%llx nbytes=%zu "
                                       "stream=%p",
                                       (unsigned long long)to, (unsigned long long)from, nbytes,
                                       (void *)stream);
    struct copy sent = {NULL, NULL, to, from, nbytes, NULL};
    return status ? status : copy(__func__, sent, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t nbytes)
{
    LOCKED;
    fake_refuse_in_capture(__func__);
    CUresult status = fake_driver_call(__func__, "to=%llx nbytes=%zu", (unsigned long long)to,
                                       nbytes);
    struct copy sent = {NULL, from, to, 0, nbytes, NULL};
    status = status ? status : copy(__func__, sent, NULL);
    if (!status)
        fake_finish(NULL);
    return status;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t nbytes)
{
    LOCKED;
    fake_refuse_in_capture(__func__);
    CUresult status = fake_driver_call(__func__, "from=%llx nbytes=%zu", (unsigned long long)from,
                                       nbytes);
    struct copy sent = {to, NULL, 0, from, nbytes, NULL};
    status = status ? status : copy(__func__, sent, NULL);
    if (!status)
        fake_finish(NULL);
    return status;
}

struct fill {
    CUdeviceptr at;
    size_t nbytes;
    unsigned char value;
};

static void run_fill(void *argument)
{
    struct fill *fill = argument;
    memset(fake_bytes(fill->at, fill->nbytes, "the target"), fill->value, fill->nbytes);
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t nbytes, CUstream stream)
{
    DRIVER_CALL("at=%llx value=%d nbytes=%zu stream=%p", (unsigned long long)at, value, nbytes,
                (void *)stream);
    struct fill fill = {at, nbytes, value};
    struct fake_work work = {.name = __func__, .run = run_fill};
    memcpy(work.argument, &fill, sizeof fill);
    access(&work, at, nbytes, 1, "the target");
    return fake_submit(stream, &work);
}
