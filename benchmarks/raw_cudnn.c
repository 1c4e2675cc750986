/*
 * The lower limit: cudnnRNNForward called from C with nothing in between, with the same settings as
 * rnnlayout. Everything is created once (descriptors, workspace, memory); a timed call is only
 * cudnnRNNForward. T = 1 is a streaming step: the states
 * go from one buffer to another and back.
 *
 * benchmarks/gpu_floor.py builds it as a library, and gpu_speed.py times it in turn with others.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "forward/cudnn/abi.h"

/* ------------------------------------------------------------------------ the libraries -- */

/* The functions that rnnlayout does not call: of cuDNN, and of the driver. */
#define MORE_OF_CUDNN(DO)                                                                          \
    DO(rnl_cudnn_status, cudnnDestroy, (rnl_cudnn_handle handle))                                  \
    DO(rnl_cudnn_status, cudnnDestroyDropoutDescriptor, (rnl_cudnn_dropout dropout))
#define MORE_OF_THE_DRIVER(DO)                                                                     \
    DO(rnl_cu_result, cuEventElapsedTime, (float *ms, rnl_cu_event from, rnl_cu_event to))

static struct {
#define DECLARE(returns, name, arguments) returns(*name) arguments;
#define CUDNN(returns, name, arguments) DECLARE(returns, name, arguments)
#define DRIVER(returns, name, arguments) DECLARE(returns, name, arguments)
#include "forward/cudnn/symbols.def"
    MORE_OF_CUDNN(DECLARE)
    MORE_OF_THE_DRIVER(DECLARE)
} lib;

static rnl_cu_context context;

/* Return status; if it is not 0, print the call to stderr. */
static int failed(const char *call, int status)
{
    if (status)
        fprintf(stderr, "raw_cudnn: %s: %d\n", call, status);
    return status;
}

/* On failure return -1 from the enclosing function, which must have nothing to release. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if (failed(#call, (int)(call)))                                                            \
            return -1;                                                                             \
    } while (0)

static int look_up(void *library, const char *name, int needed, void *into)
{
    void *found = dlsym(library, name);
    memcpy(into, &found, sizeof found);
    if (!found && needed)
        fprintf(stderr, "raw_cudnn: no %s\n", name);
    return !found && needed;
}

/* Open a libcudnn, whose parts are in the same folder, and the first GPU. Return 0 on success. */
int raw_open(const char *path)
{
    rnl_cu_device device;
    void *cudnn = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!cudnn || !driver) {
        fprintf(stderr, "raw_cudnn: %s\n", dlerror());
        return -1;
    }
    int missing = 0;
#define FROM_CUDNN(returns, name, arguments) missing += look_up(cudnn, #name, 1, &lib.name);
#define FROM_THE_DRIVER(returns, name, arguments) missing += look_up(driver, #name, 1, &lib.name);
    MORE_OF_CUDNN(FROM_CUDNN)
    MORE_OF_THE_DRIVER(FROM_THE_DRIVER)
#define CUDNN(returns, name, arguments) missing += look_up(cudnn, #name, 1, &lib.name);
#define DRIVER(returns, name, arguments) missing += look_up(driver, #name, 1, &lib.name);
#include "forward/cudnn/symbols.def"
    if (missing)
        return -1;
    TRY(lib.cuInit(0));
    TRY(lib.cuDeviceGet(&device, 0));
    TRY(lib.cuDevicePrimaryCtxRetain(&context, device));
    return 0;
}

/* ----------------------------------------------------------------------------- one case -- */

struct shape {
    int cell, T, N, I, H, L, D, type, algo;
};

enum { WEIGHTS, X, Y, H0, H1, C0, C1, WORK, NUM_MEMORY };

struct raw {
    struct shape s;
    int calls; /* so far; its parity selects the state to read */
    int *lengths;
    rnl_cudnn_handle handle;
    rnl_cudnn_dropout dropout;
    rnl_cudnn_rnn rnn;
    rnl_cudnn_rnn_data x, y;
    rnl_cudnn_tensor h;
    rnl_cu_event first, last;
    rnl_cu_address memory[NUM_MEMORY];
    size_t nbytes[NUM_MEMORY];
};

static size_t unit_of(int type)
{
    return type == RNL_CUDNN_DATA_DOUBLE ? 8 : type == RNL_CUDNN_DATA_FLOAT ? 4 : 2;
}

static int describe(struct raw *r)
{
    const struct shape s = r->s;
    const int is_double = s.type == RNL_CUDNN_DATA_DOUBLE, narrow = unit_of(s.type) == 2;
    const int states[] = {s.L * s.D, s.N, s.H}, strides[] = {s.N * s.H, s.H, 1};
    double zero = 0;
    r->lengths = malloc((size_t)s.N * sizeof *r->lengths);
    if (!r->lengths)
        return -1;
    for (int n = 0; n < s.N; n++)
        r->lengths[n] = s.T;
    TRY(lib.cudnnCreate(&r->handle));
    TRY(lib.cudnnCreateDropoutDescriptor(&r->dropout));
    TRY(lib.cudnnSetDropoutDescriptor(r->dropout, r->handle, 0, NULL, 0, 0));
    TRY(lib.cudnnCreateRNNDescriptor(&r->rnn));
    TRY(lib.cudnnSetRNNDescriptor_v8(
        r->rnn, (rnl_cudnn_algo)s.algo, (rnl_cudnn_cell)s.cell, RNL_CUDNN_RNN_DOUBLE_BIAS,
        s.D == 2 ? RNL_CUDNN_BIDIRECTIONAL : RNL_CUDNN_UNIDIRECTIONAL, RNL_CUDNN_LINEAR_INPUT,
        (rnl_cudnn_data_type)s.type, is_double ? RNL_CUDNN_DATA_DOUBLE : RNL_CUDNN_DATA_FLOAT,
        narrow ? RNL_CUDNN_TENSOR_OP_MATH : RNL_CUDNN_FMA_MATH, s.I, s.H, s.H, s.L, r->dropout,
        RNL_CUDNN_RNN_PADDED_IO_DISABLED));
    TRY(lib.cudnnCreateRNNDataDescriptor(&r->x));
    TRY(lib.cudnnCreateRNNDataDescriptor(&r->y));
    TRY(lib.cudnnSetRNNDataDescriptor(r->x, (rnl_cudnn_data_type)s.type,
                                      RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, s.T, s.N, s.I,
                                      r->lengths, &zero));
    TRY(lib.cudnnSetRNNDataDescriptor(r->y, (rnl_cudnn_data_type)s.type,
                                      RNL_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, s.T, s.N,
                                      s.D * s.H, r->lengths, &zero));
    TRY(lib.cudnnCreateTensorDescriptor(&r->h));
    TRY(lib.cudnnSetTensorNdDescriptor(r->h, (rnl_cudnn_data_type)s.type, 3, states, strides));
    return 0;
}

/* Positive and negative numbers between 1/32 and 1/16: zeros would let the GPU's clock rise. */
static void *random_numbers(size_t nbytes, int type)
{
    static const uint64_t keep[] = {0x807fffff807fffff, 0x800fffffffffffff, 0x83ff83ff83ff83ff};
    static const uint64_t set[] = {0x3d0000003d000000, 0x3fa0000000000000, 0x2800280028002800};
    const int at = type == RNL_CUDNN_DATA_BFLOAT16 ? -1 : type;
    uint64_t *made = malloc(nbytes + sizeof *made), bits = 88172645463325252;
    for (size_t i = 0; made && i <= nbytes / sizeof *made; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        made[i] = at < 0 ? (bits & 0x807f807f807f807f) | 0x3d003d003d003d00
                         : (bits & keep[at]) | set[at];
    }
    return made;
}

static int upload(struct raw *r, int which, const void *from)
{
    if (!from)
        return -1;
    TRY(lib.cuMemcpyHtoDAsync_v2(r->memory[which], from, r->nbytes[which], NULL));
    TRY(lib.cuStreamSynchronize(NULL));
    return 0;
}

static int allocate(struct raw *r)
{
    const struct shape s = r->s;
    const size_t unit = unit_of(s.type), rows = (size_t)s.T * (size_t)s.N;
    const size_t state = (size_t)(s.L * s.D) * (size_t)s.N * (size_t)s.H * unit;
    r->nbytes[X] = rows * (size_t)s.I * unit;
    r->nbytes[Y] = rows * (size_t)(s.D * s.H) * unit;
    r->nbytes[H0] = r->nbytes[H1] = state;
    r->nbytes[C0] = r->nbytes[C1] = state;
    TRY(lib.cudnnGetRNNWeightSpaceSize(r->handle, r->rnn, &r->nbytes[WEIGHTS]));
    TRY(lib.cudnnGetRNNTempSpaceSizes(r->handle, r->rnn, RNL_CUDNN_FWD_MODE_INFERENCE, r->x,
                                      &r->nbytes[WORK], NULL));
    for (int i = 0; i < NUM_MEMORY; i++) {
        if (!r->nbytes[i])
            continue;
        TRY(lib.cuMemAlloc_v2(&r->memory[i], r->nbytes[i]));
        if (i == Y || i == WORK)
            continue;
        void *numbers = random_numbers(r->nbytes[i], s.type);
        int status = upload(r, i, numbers);
        free(numbers);
        if (status)
            return -1;
    }
    TRY(lib.cuEventCreate(&r->first, 0));
    TRY(lib.cuEventCreate(&r->last, 0));
    return 0;
}

/* The call. back: read the states from the second buffers and write them to the first. */
static rnl_cudnn_status forward(struct raw *r, int back)
{
    void *at[NUM_MEMORY];
    for (int i = 0; i < NUM_MEMORY; i++)
        at[i] = (void *)(uintptr_t)r->memory[i];
    const int step = r->s.T == 1, lstm = r->s.cell == RNL_CUDNN_LSTM;
    return lib.cudnnRNNForward(
        r->handle, r->rnn, RNL_CUDNN_FWD_MODE_INFERENCE, NULL, r->x, at[X], r->y, at[Y], r->h,
        step ? at[back ? H1 : H0] : NULL, at[back ? H0 : H1], lstm ? r->h : NULL,
        lstm && step ? at[back ? C1 : C0] : NULL, lstm ? at[back ? C0 : C1] : NULL,
        r->nbytes[WEIGHTS], at[WEIGHTS], r->nbytes[WORK], at[WORK], 0, NULL);
}

static int prepare(struct raw *r)
{
    if (describe(r) || allocate(r))
        return -1;
    TRY(forward(r, 0));
    TRY(lib.cuStreamSynchronize(NULL));
    return 0;
}

void raw_free(struct raw *r)
{
    if (!r)
        return;
    lib.cuCtxPushCurrent_v2(context);
    for (int i = 0; i < NUM_MEMORY; i++)
        if (r->memory[i])
            lib.cuMemFree_v2(r->memory[i]);
    if (r->first)
        lib.cuEventDestroy_v2(r->first);
    if (r->last)
        lib.cuEventDestroy_v2(r->last);
    if (r->h)
        lib.cudnnDestroyTensorDescriptor(r->h);
    if (r->x)
        lib.cudnnDestroyRNNDataDescriptor(r->x);
    if (r->y)
        lib.cudnnDestroyRNNDataDescriptor(r->y);
    if (r->rnn)
        lib.cudnnDestroyRNNDescriptor(r->rnn);
    if (r->dropout)
        lib.cudnnDestroyDropoutDescriptor(r->dropout);
    if (r->handle)
        lib.cudnnDestroy(r->handle);
    lib.cuCtxPopCurrent_v2(NULL);
    free(r->lengths);
    free(r);
}

/* numbers: the fields of struct shape, with cuDNN's values for cell, type and algo. On failure,
 * print the reason to stderr and return NULL. */
struct raw *raw_new(const int *numbers)
{
    struct raw *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    memcpy(&r->s, numbers, sizeof r->s);
    lib.cuCtxPushCurrent_v2(context);
    int status = prepare(r);
    lib.cuCtxPopCurrent_v2(NULL);
    if (!status)
        return r;
    raw_free(r);
    return NULL;
}

/* ------------------------------------------------------------------------------- timing -- */

static double microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int time_calls(struct raw *r, int calls, double *us)
{
    float milliseconds;
    TRY(lib.cuStreamSynchronize(NULL));
    TRY(lib.cuEventRecord(r->first, NULL));
    const double start = microseconds();
    for (int i = 0; i < calls; i++) {
        const int back = r->s.T == 1 && r->calls++ % 2;
        TRY(forward(r, back));
    }
    const double sent = microseconds();
    TRY(lib.cuEventRecord(r->last, NULL));
    TRY(lib.cuEventSynchronize(r->last));
    const double done = microseconds();
    TRY(lib.cuEventElapsedTime(&milliseconds, r->first, r->last));
    us[0] = (sent - start) / calls;
    us[1] = 1e3 * (double)milliseconds / calls;
    us[2] = (done - start) / calls;
    return 0;
}

/* us: microseconds per call on the host, on the device, and including the wait at the end. */
int raw_time(struct raw *r, int calls, double *us)
{
    lib.cuCtxPushCurrent_v2(context);
    int status = time_calls(r, calls, us);
    lib.cuCtxPopCurrent_v2(NULL);
    return status;
}
