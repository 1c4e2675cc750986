/* Clamp c_n on the device, by a kernel of our own that the driver compiles for the GPU. */
#include "forward/cudnn/clamp.h"

#include <string.h>

#include "core/dtype.h"

/*
 * PTX, old enough for every GPU and driver that cuDNN 8.9 supports. One thread per number.
 *
 *   load, store  memory <-> the register %v of the bounds' type; bounds are rounded to the array's
 *                dtype before, so storing one is exact
 *
 * Comparisons with a NaN are false, so a NaN stays.
 */
#define KERNEL(name, nbytes, type, load, store)                                                    \
    ".visible .entry " name "(.param .u64 at, .param .u32 count,\n"                                \
    "                         .param ." type " low, .param ." type " high)\n"                      \
    "{\n"                                                                                          \
    "    .reg .pred %p;\n"                                                                         \
    "    .reg .b16 %h;\n"                                                                          \
    "    .reg .b32 %block, %width, %k, %count, %w;\n"                                              \
    "    .reg .b64 %at, %offset;\n"                                                                \
    "    .reg ." type " %v, %low, %high;\n"                                                        \
    "    mov.u32 %block, %ctaid.x;\n"                                                              \
    "    mov.u32 %width, %ntid.x;\n"                                                               \
    "    mov.u32 %k, %tid.x;\n"                                                                    \
    "    mad.lo.u32 %k, %block, %width, %k;\n"                                                     \
    "    ld.param.u32 %count, [count];\n"                                                          \
    "    setp.ge.u32 %p, %k, %count;\n"                                                            \
    "    @%p bra done;\n"                                                                          \
    "    ld.param.u64 %at, [at];\n"                                                                \
    "    cvta.to.global.u64 %at, %at;\n"                                                           \
    "    mul.wide.u32 %offset, %k, " nbytes ";\n"                                                  \
    "    add.u64 %at, %at, %offset;\n"                                                             \
    "    ld.param." type " %low, [low];\n"                                                         \
    "    ld.param." type " %high, [high];\n"                                                       \
    "    " load "\n"                                                                               \
    "    setp.lt." type " %p, %v, %low;\n"                                                         \
    "    @%p mov." type " %v, %low;\n"                                                             \
    "    setp.gt." type " %p, %v, %high;\n"                                                        \
    "    @%p mov." type " %v, %high;\n"                                                            \
    "    " store "\n"                                                                              \
    "done:\n"                                                                                      \
    "    ret;\n"                                                                                   \
    "}\n"

static const char PTX[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n" /* 16-bit numbers are converted to 32 bits and back */
    KERNEL("clamp_f16", "2", "f32", "ld.global.b16 %h, [%at]; cvt.f32.f16 %v, %h;",
           "cvt.rn.f16.f32 %h, %v; st.global.b16 [%at], %h;")
        KERNEL("clamp_bf16", "2", "f32",
               "ld.global.u16 %w, [%at]; shl.b32 %w, %w, 16; mov.b32 %v, %w;",
               "mov.b32 %w, %v; shr.u32 %w, %w, 16; st.global.u16 [%at], %w;")
            KERNEL("clamp_f32", "4", "f32", "ld.global.f32 %v, [%at];", "st.global.f32 [%at], %v;")
                KERNEL("clamp_f64", "8", "f64", "ld.global.f64 %v, [%at];",
                       "st.global.f64 [%at], %v;");

static const char *const NAMES[RNL_NUM_CLAMPS] = {
    [RNL_FLOAT16] = "clamp_f16",
    [RNL_BFLOAT16] = "clamp_bf16",
    [RNL_FLOAT32] = "clamp_f32",
    [RNL_FLOAT64] = "clamp_f64",
};

enum { THREADS = 256, AT_ONCE = 1 << 30 };

rnl_status rnl_clamp_prepare(rnl_gpu_device *device, rnl_dtype dtype, rnl_error *err)
{
    rnl_status status = RNL_OK;
    pthread_mutex_lock(&device->lock);
    if (!device->clamps)
        status = RNL_CU(device, err, cuModuleLoadData, &device->clamps, PTX);
    if (status == RNL_OK && !device->clamp[dtype])
        status = RNL_CU(device, err, cuModuleGetFunction, &device->clamp[dtype], device->clamps,
                        NAMES[dtype]);
    pthread_mutex_unlock(&device->lock);
    return status;
}

rnl_status rnl_clamp_run(rnl_gpu_device *device, rnl_dtype dtype, rnl_cu_address at, size_t nelems,
                         double low, double high, rnl_cu_stream stream, rnl_error *err)
{
    const double bounds[2] = {rnl_to_double(dtype, rnl_from_double(dtype, low)),
                              rnl_to_double(dtype, rnl_from_double(dtype, high))};
    float narrow[2] = {(float)bounds[0], (float)bounds[1]};
    const bool wide = dtype == RNL_FLOAT64;
    rnl_status status = RNL_OK;
    for (size_t done = 0; status == RNL_OK && done < nelems; done += AT_ONCE) {
        uint32_t count = (uint32_t)(nelems - done < AT_ONCE ? nelems - done : AT_ONCE);
        rnl_cu_address first = at + done * (size_t)rnl_dtype_nbytes(dtype);
        void *arguments[] = {&first, &count, wide ? (void *)&bounds[0] : &narrow[0],
                             wide ? (void *)&bounds[1] : &narrow[1]};
        status = RNL_CU(device, err, cuLaunchKernel, device->clamp[dtype],
                        (count + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, stream, arguments,
                        NULL);
    }
    return status;
}
