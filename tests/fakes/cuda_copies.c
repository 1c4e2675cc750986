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

/* ---- modules: PTX is not run; its kernels must be those modelled below ---- */

struct module {
    struct fake_object object;
    char *text;
};

/* Clamp `count` numbers in place. The bounds are doubles for doubles, else floats. */
struct clamp {
    int type;
    CUdeviceptr at;
    uint32_t count;
    double low, high;
};

enum { CLAMP_F32, CLAMP_F64, CLAMP_F16, CLAMP_BF16, CLAMPS };
static const char *const CLAMP[CLAMPS] = {"clamp_f32", "clamp_f64", "clamp_f16", "clamp_bf16"};
static const size_t CLAMP_BYTES[CLAMPS] = {4, 8, 2, 2};

/* The value of 16 bits, and the bits of a bound, which must be exact in 16 bits. */
static double wide16(uint16_t bits, int type)
{
    int fraction = type == CLAMP_F16 ? 10 : 7, least = type == CLAMP_F16 ? -14 : -126;
    int top = (1 << (15 - fraction)) - 1, exponent = bits >> fraction & top;
    int units = (bits & ((1 << fraction) - 1)) + (exponent ? 1 << fraction : 0);
    double size = exponent == top ? units > 1 << fraction ? NAN : INFINITY
                                  : ldexp(units, (exponent ? exponent - 1 : 0) + least - fraction);
    return bits >> 15 ? -size : size;
}

static uint16_t narrow16(double value, int type)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++)
        if (wide16((uint16_t)bits, type) == value && !signbit(value) == !(bits >> 15))
            return (uint16_t)bits;
    fake_die("clamp: the bound %g is not a number of the array's dtype", value);
}

static double clamped(const struct clamp *clamp, double value)
{
    return value < clamp->low ? clamp->low : value > clamp->high ? clamp->high : value;
}

static void run_clamp(void *argument)
{
    struct clamp *clamp = argument;
    void *at = fake_bytes(clamp->at, clamp->count * CLAMP_BYTES[clamp->type], "the numbers");
    float *f = at;
    double *d = at;
    uint16_t *h = at;
    for (uint32_t i = 0; i < clamp->count; i++)
        if (clamp->type == CLAMP_F64)
            d[i] = clamped(clamp, d[i]);
        else if (clamp->type == CLAMP_F32)
            f[i] = (float)clamped(clamp, f[i]);
        else if (clamped(clamp, wide16(h[i], clamp->type)) != wide16(h[i], clamp->type) &&
                 !isnan(wide16(h[i], clamp->type)))
            h[i] = narrow16(clamped(clamp, wide16(h[i], clamp->type)), clamp->type);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    DRIVER_CALL("%s", "");
    fake_refuse_in_capture(__func__);
    if (fake_current_device() < 0)
        return CU_INVALID_CONTEXT;
    if (!strstr(image, ".version") || !strstr(image, ".entry"))
        return CU_INVALID_IMAGE;
    struct module *made = fake_new(FAKE_MODULE, sizeof *made);
    made->text = strdup(image);
    *module = (CUmodule)made;
    return CU_OK;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    LOCKED;
    CUresult status = fake_driver_call("cuModuleGetFunction", "name=%s", name);
    struct module *found = fake_object(module, FAKE_MODULE, "cuModuleGetFunction");
    if (status || !strstr(found->text, name))
        return status ? status : CU_NOT_FOUND;
    for (int i = 0; i < CLAMPS; i++)
        if (!strcmp(name, CLAMP[i])) {
            *function = (CUfunction)(uintptr_t)&CLAMP[i];
            return CU_OK;
        }
    fake_die("cuModuleGetFunction: the kernel %s is not modelled", name);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **arguments, void **extra)
{
    DRIVER_CALL("grid=%u block=%u stream=%p", grid_x, block_x, (void *)stream);
    (void)shared;
    if (extra || grid_y * grid_z * block_y * block_z != 1 || block_x > 1024 || !block_x || !grid_x)
        return CU_INVALID_VALUE;
    struct clamp clamp = {.type = (int)((const char *const *)function - CLAMP),
                          .at = *(CUdeviceptr *)arguments[0],
                          .count = *(uint32_t *)arguments[1]};
    int is_double = clamp.type == CLAMP_F64;
    clamp.low = is_double ? *(double *)arguments[2] : *(float *)arguments[2];
    clamp.high = is_double ? *(double *)arguments[3] : *(float *)arguments[3];
    if ((uint64_t)grid_x * block_x < clamp.count)
        fake_die("cuLaunchKernel: %u threads for %u numbers", grid_x * block_x, clamp.count);
    struct fake_work work = {.name = "clamp", .run = run_clamp};
    memcpy(work.argument, &clamp, sizeof clamp);
    access(&work, clamp.at, clamp.count * CLAMP_BYTES[clamp.type], 1, "the numbers");
    return fake_submit(stream, &work);
}
