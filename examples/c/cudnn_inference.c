/*
 * Run an LSTM, GRU or RNN on a GPU with cuDNN, on weights exported by
 *     rnnlayout convert model.pt lstm.bin --to cudnn
 *
 *   cudnn_inference WEIGHTS.bin X N OUT
 *
 *   WEIGHTS.bin  as exported, with its spec beside it, in WEIGHTS.bin.json
 *   X            (T, N, I) numbers in the dtype of the weights; T follows from the size of the file
 *   N            batch size
 *   OUT          prefix of the output files: OUT.y (T, N, D * P), OUT.h_n (L * D, N, P) and, for an
 *                LSTM, OUT.c_n (L * D, N, H)
 *
 * Needs cuDNN 9, the CUDA driver, and rnnlayout's C library, which reads the spec and checks the
 * weights. Compiles as C11 and as C++:
 *     cc -I CUDNN/include -I CUDA/include cudnn_inference.c -L CUDNN/lib -l:libcudnn.so.9
 *        -l:libcuda.so.1 $(pkg-config --cflags --libs rnnlayout) -o cudnn_inference
 *
 * A long-running program would do everything up to the workspace once, and call only
 * cudnnRNNForward for each input of the same shape.
 */
#include "files.h"
#include <cuda.h>
#include <cudnn.h>

/* Every call of the driver or of cuDNN is checked by one of these macros. */
#define CUDA(call) check_cuda(call, #call)
#define CUDNN(call) check_cudnn(call, #call)

static void check_cuda(CUresult status, const char *call)
{
    const char *text = NULL;
    if (status == CUDA_SUCCESS)
        return;
    cuGetErrorString(status, &text);
    FAIL("%s: %d, %s", call, (int)status, text ? text : "unknown");
}

static void check_cudnn(cudnnStatus_t status, const char *call)
{
    char more[512] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    cudnnGetLastErrorString(more, sizeof more);
    FAIL("%s: %d, %s %s", call, (int)status, cudnnGetErrorString(status), more);
}

/* ----------------------------------------------------------------- the spec, for cuDNN -- */

struct spec {
    int I, H, P, L, D;
    size_t unit; /* bytes per number */
    cudnnRNNMode_t cell;
    cudnnRNNBiasMode_t bias;
    cudnnRNNInputMode_t input;
    cudnnDataType_t type, precision; /* of the data; of the arithmetic */
    cudnnMathType_t math;
};

static int int_of(int64_t size)
{
    if (size > INT_MAX)
        FAIL("a size is %lld, which is too large for cuDNN", (long long)size);
    return (int)size;
}

/* Return a spec that layout cudnn has, in cuDNN's words. */
static struct spec spec_for_cudnn(const rnl_spec *rnn)
{
    /* in the order of rnl_cell, rnl_bias and rnl_dtype */
    static const cudnnRNNMode_t cells[] = {CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU};
    static const cudnnRNNBiasMode_t biases[] = {CUDNN_RNN_DOUBLE_BIAS, CUDNN_RNN_SINGLE_INP_BIAS,
                                                CUDNN_RNN_SINGLE_REC_BIAS, CUDNN_RNN_NO_BIAS};
    static const cudnnDataType_t types[] = {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT,
                                            CUDNN_DATA_DOUBLE};
    struct spec s;

    s.cell = cells[rnn->cell];
    s.bias = biases[rnn->bias];
    s.input = rnn->skip_input ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT;
    s.D = 1 + rnn->bidirectional;
    s.I = int_of(rnn->input_size);
    s.H = int_of(rnn->hidden_size);
    s.L = int_of(rnn->num_layers);
    s.P = rnn->proj_size ? int_of(rnn->proj_size) : s.H; /* in cuDNN, P = H means no projection */
    s.type = types[rnn->dtype];
    s.unit = (size_t)rnl_dtype_nbytes(rnn->dtype);
    s.precision = s.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    /* FMA: float32 products are not rounded to TF32 */
    s.math = s.unit == 2 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    return s;
}

/* ------------------------------------------------------------------------------- device -- */

static CUdeviceptr device_alloc(size_t nbytes)
{
    CUdeviceptr made;
    CUDA(cuMemAlloc(&made, nbytes));
    return made;
}

static CUdeviceptr upload(const void *bytes, size_t nbytes)
{
    CUdeviceptr made = device_alloc(nbytes);
    CUDA(cuMemcpyHtoD(made, bytes, nbytes));
    return made;
}

/* Write an array of the device to a file, and return its numbers. The caller frees them. */
static void *download(CUdeviceptr from, size_t nbytes, const char *prefix, const char *suffix)
{
    void *bytes = memory_for(nbytes);
    CUDA(cuMemcpyDtoH(bytes, from, nbytes));
    write_file(prefix, suffix, bytes, nbytes);
    return bytes;
}

/* The driver passes device addresses as numbers, cuDNN as pointers. */
static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* -------------------------------------------------------------------------- descriptors -- */

static cudnnRNNDescriptor_t rnn_descriptor(const struct spec *s, cudnnDropoutDescriptor_t dropout)
{
    cudnnRNNDescriptor_t made;
    CUDNN(cudnnCreateRNNDescriptor(&made));
    CUDNN(cudnnSetRNNDescriptor_v8(made, CUDNN_RNN_ALGO_STANDARD, s->cell, s->bias,
                                   s->D == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, s->input,
                                   s->type, s->precision, s->math, s->I, s->H, s->P, s->L, dropout,
                                   CUDNN_RNN_PADDED_IO_DISABLED));
    return made;
}

/* Return N lengths, all T. The caller frees them. */
static int *all_lengths(int T, int N)
{
    int *lengths = (int *)memory_for((size_t)N * sizeof *lengths);
    for (int n = 0; n < N; n++)
        lengths[n] = T;
    return lengths;
}

/* Describe x or y: (T, N, width), all sequences T steps long. Shorter sequences need
 * CUDNN_RNN_PADDED_IO_ENABLED above and their lengths here. */
static cudnnRNNDataDescriptor_t data_descriptor(const struct spec *s, int T, int N, int width)
{
    double zero = 0; /* padding after the end of a sequence; all bits are 0 in every type */
    int *lengths = all_lengths(T, N);
    cudnnRNNDataDescriptor_t made;
    CUDNN(cudnnCreateRNNDataDescriptor(&made));
    CUDNN(cudnnSetRNNDataDescriptor(made, s->type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, N,
                                    width, lengths, &zero));
    free(lengths);
    return made;
}

/* Describe a state: (L * D, N, width). */
static cudnnTensorDescriptor_t state_descriptor(const struct spec *s, int N, int width)
{
    int shape[] = {s->L * s->D, N, width}, strides[] = {N * width, width, 1};
    cudnnTensorDescriptor_t made;
    CUDNN(cudnnCreateTensorDescriptor(&made));
    CUDNN(cudnnSetTensorNdDescriptor(made, s->type, 3, shape, strides));
    return made;
}

/* ------------------------------------------------------------------------------ the run -- */

static void run(const struct spec *s, const char *weights, size_t weight_nbytes,
                cudnnHandle_t handle, char **argv)
{
    size_t x_nbytes, needed, work_nbytes;
    char *x = read_file(argv[2], &x_nbytes);
    int N = batch_of(argv[3]), T = steps_of(argv[2], x_nbytes, N, s->I, s->unit);
    int lstm = s->cell == CUDNN_LSTM;

    cudnnDropoutDescriptor_t dropout;
    CUDNN(cudnnCreateDropoutDescriptor(&dropout));
    CUDNN(cudnnSetDropoutDescriptor(dropout, handle, 0, NULL, 0, 0));
    cudnnRNNDescriptor_t rnn = rnn_descriptor(s, dropout);
    CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn, &needed));
    if (needed != weight_nbytes)
        FAIL("%s has %zu bytes, but this cuDNN needs %zu", argv[1], weight_nbytes, needed);
    if (N > INT_MAX / s->H)
        FAIL("N is %d, which is too large for H = %d", N, s->H);

    cudnnRNNDataDescriptor_t x_desc = data_descriptor(s, T, N, s->I);
    cudnnRNNDataDescriptor_t y_desc = data_descriptor(s, T, N, s->D * s->P);
    cudnnTensorDescriptor_t h_desc = state_descriptor(s, N, s->P);
    cudnnTensorDescriptor_t c_desc = state_descriptor(s, N, s->H);
    CUDNN(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_INFERENCE, x_desc, &work_nbytes,
                                    NULL));

    size_t rows = (size_t)s->L * (size_t)s->D * (size_t)N * s->unit;
    size_t h_nbytes = rows * (size_t)s->P, c_nbytes = rows * (size_t)s->H;
    size_t y_nbytes = (size_t)T * (size_t)N * (size_t)s->D * (size_t)s->P * s->unit;
    CUdeviceptr d_weights = upload(weights, weight_nbytes), d_x = upload(x, x_nbytes);
    CUdeviceptr d_y = device_alloc(y_nbytes), d_h = device_alloc(h_nbytes);
    CUdeviceptr d_c = lstm ? device_alloc(c_nbytes) : 0, d_work = device_alloc(work_nbytes);

    /* It replaces cudnnRNNForwardInference of cuDNN 7. NULL for h_0 and c_0 means zero. */
    CUDNN(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, NULL, x_desc, pointer(d_x), y_desc,
                          pointer(d_y), h_desc, NULL, pointer(d_h), lstm ? c_desc : NULL, NULL,
                          pointer(d_c), weight_nbytes, pointer(d_weights), work_nbytes,
                          pointer(d_work), 0, NULL));
    void *y = download(d_y, y_nbytes, argv[4], ".y");
    free(download(d_h, h_nbytes, argv[4], ".h_n"));
    if (lstm)
        free(download(d_c, c_nbytes, argv[4], ".c_n"));
    print_result(argv, T, N, s->D * s->P, s->unit, y);

    CUdeviceptr memory[] = {d_weights, d_x, d_y, d_h, d_c, d_work};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            CUDA(cuMemFree(memory[i]));
    CUDNN(cudnnDestroyTensorDescriptor(h_desc));
    CUDNN(cudnnDestroyTensorDescriptor(c_desc));
    CUDNN(cudnnDestroyRNNDataDescriptor(x_desc));
    CUDNN(cudnnDestroyRNNDataDescriptor(y_desc));
    CUDNN(cudnnDestroyRNNDescriptor(rnn));
    CUDNN(cudnnDestroyDropoutDescriptor(dropout));
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    cudnnHandle_t handle;
    if (argc != 5) {
        fprintf(stderr, "usage: cudnn_inference WEIGHTS.bin X N OUT\n");
        return 2;
    }
    rnl_spec rnn;
    rnl_rnn_options options;
    size_t nbytes;
    char *weights = read_weights(argv[1], &rnn, &options, &nbytes);
    if (options.clips)
        FAIL("%s.json: the cell state is clipped, which this program does not do", argv[1]);
    struct spec spec = spec_for_cudnn(&rnn);
    print_rnn(argv[1], rnl_name(RNL_NAMES_CELL, (int)rnn.cell), spec.I, spec.H, spec.L, spec.D,
              rnl_name(RNL_NAMES_DTYPE, (int)rnn.dtype));
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxPushCurrent(context));
    CUDNN(cudnnCreate(&handle));
    run(&spec, weights, nbytes, handle, argv);
    CUDNN(cudnnDestroy(handle));
    CUDA(cuCtxPopCurrent(NULL));
    CUDA(cuDevicePrimaryCtxRelease(device));
    free(weights);
    return 0;
}
