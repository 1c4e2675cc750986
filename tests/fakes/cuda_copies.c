/*
 * Copies and fills. A copy from the host has read it when the call returns, and writes in the order
 * of the stream; a copy to the host is done when the call returns. Both are refused in a capture.
 */
#include "cuda_streams.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    CUdeviceptr to, from; /* 0: the host */
    size_t nbytes;
    void *host;
};

static void run_copy(void *argument)
{
    const struct copy *copy = argument;
    void *to = copy->to ? fake_bytes(copy->to, copy->nbytes, "the target") : copy->host;
    const void *from = copy->from ? fake_bytes(copy->from, copy->nbytes, "the source") : copy->host;
    memmove(to, from, copy->nbytes);
    if (!copy->from)
        free(copy->host);
}

static void access(struct fake_work *work, CUdeviceptr at, size_t nbytes, int write,
                   const char *what)
{
    fake_bytes(at, nbytes, what);
    work->access[work->accesses++] = (struct fake_access){at, nbytes, write, what};
}

static CUresult copy(const char *name, struct copy copy, CUstream stream)
{
    struct fake_work work = {.name = name, .run = run_copy};
    if (copy.to)
        access(&work, copy.to, copy.nbytes, 1, "the target");
    if (copy.from)
        access(&work, copy.from, copy.nbytes, 0, "the source");
    if (copy.host && fake_stream(stream, name)->capture)
        fake_die("%s: the stream is capturing, and the host's memory is not pinned", name);
    if (!copy.from)
        copy.host = memcpy(malloc(copy.nbytes), copy.host, copy.nbytes);
    memcpy(work.argument, &copy, sizeof copy);
    CUresult status = fake_submit(stream, &work);
    if (!copy.to)
        fake_finish(stream);
    return status;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t nbytes, CUstream stream)
{
    DRIVER_CALL("to=%llx nbytes=%zu stream=%p", (unsigned long long)to, nbytes, (void *)stream);
    return copy(__func__, (struct copy){to, 0, nbytes, (void *)from}, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    DRIVER_CALL("from=%llx nbytes=%zu stream=%p", (unsigned long long)from, nbytes, (void *)stream);
    return copy(__func__, (struct copy){0, from, nbytes, to}, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream)
{
    DRIVER_CALL("to=%llx from=%llx nbytes=%zu stream=%p", (unsigned long long)to,
                (unsigned long long)from, nbytes, (void *)stream);
    return copy(__func__, (struct copy){to, from, nbytes, NULL}, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t nbytes)
{
    LOCKED;
    CUresult status = cuMemcpyHtoDAsync_v2(to, from, nbytes, NULL);
    if (!status)
        fake_finish(NULL);
    return status;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t nbytes)
{
    return cuMemcpyDtoHAsync_v2(to, from, nbytes, NULL);
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
