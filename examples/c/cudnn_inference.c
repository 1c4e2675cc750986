/*
 * Run an LSTM, GRU or RNN with cudnnRNNForward, on weights exported by rnnlayout.
 *
 *   cudnn_inference SPEC.json WEIGHTS X N OUT
 *
 *   SPEC.json  json.dumps(spec.to_dict())
 *   WEIGHTS    rl.pack(model).tofile(...): cuDNN's weight space, in the dtype of the spec
 *   X          (T, N, I) numbers of that dtype; T follows from the size of the file
 *   N          batch size
 *   OUT        prefix of the output files: OUT.y (T, N, D * P), OUT.h_n (L * D, N, P) and, for an
 *              LSTM, OUT.c_n (L * D, N, H)
 *
 * T time steps, I input size, H hidden size, P projected size (H without a projection), L layers,
 * D directions. States start at zero.
 *
 * The program needs cuDNN 8.9 or 9 and the CUDA driver, and their headers to compile it:
 *
 *   cc -std=c11 -I CUDNN/include -I CUDA/include cudnn_inference.c -L CUDNN/lib -lcudnn -lcuda
 *
 * A long-running program would do everything up to the workspace once, and call only
 * cudnnRNNForward for each input of the same shape.
 */
#include <cuda.h>
#include <cudnn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------- errors -- */

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fprintf(stderr, "cudnn_inference: " __VA_ARGS__);                                          \
        fputc('\n', stderr);                                                                       \
        exit(1);                                                                                   \
    } while (0)

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
#if CUDNN_MAJOR >= 9
    cudnnGetLastErrorString(more, sizeof more);
#endif
    FAIL("%s: %d, %s %s", call, (int)status, cudnnGetErrorString(status), more);
}

/* -------------------------------------------------------------------------------- files -- */

static char *read_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        FAIL("%s: cannot be read", path);
    long size = ftell(file);
    char *bytes = size >= 0 ? malloc((size_t)size + 1) : NULL;
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        FAIL("%s: cannot be read", path);
    fclose(file);
    bytes[size] = '\0';
    *nbytes = (size_t)size;
    return bytes;
}

static void write_file(const char *prefix, const char *suffix, const void *bytes, size_t nbytes)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", prefix, suffix) >= (int)sizeof path)
        FAIL("%s: the name is too long", prefix);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, nbytes, file) != nbytes || fclose(file) != 0)
        FAIL("%s: cannot be written", path);
}

/* --------------------------------------------------------------------------------- spec -- */

/* Return the value of a key. The JSON must be a flat object whose strings contain neither quotes
 * nor backslashes, like that of Spec.to_dict(). */
static const char *value_of(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    at = at ? at + strlen(quoted) : "";
    at += strspn(at, " \t\r\n");
    if (*at != ':')
        FAIL("the spec has no \"%s\"", key);
    return at + 1 + strspn(at + 1, " \t\r\n");
}

static int number_of(const char *json, const char *key, long least)
{
    const char *value = value_of(json, key);
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || !strchr(",} \t\r\n", *end) || number < least || number > INT_MAX)
        FAIL("the spec's \"%s\" must be a whole number, at least %ld", key, least);
    return (int)number;
}

/* Return the index of a key's value, quoted or not, in a list of words. */
static int choice_of(const char *json, const char *key, const char *const *words, int count)
{
    const char *value = value_of(json, key);
    value += *value == '"';
    size_t length = strcspn(value, "\",} \t\r\n");
    for (int i = 0; i < count; i++)
        if (strlen(words[i]) == length && strncmp(words[i], value, length) == 0)
            return i;
    FAIL("the spec's \"%s\": %.*s is not supported by this program or by cuDNN", key, (int)length,
         value);
}

#define CHOICE(json, key, ...)                                                                     \
    choice_of(json, key, (const char *[]){__VA_ARGS__},                                            \
              (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

struct spec {
    int I, H, P, L, D;
    size_t unit; /* bytes per number */
    cudnnRNNMode_t cell;
    cudnnRNNBiasMode_t bias;
    cudnnRNNInputMode_t input;
    cudnnDataType_t type, precision; /* of the data; of the arithmetic */
    cudnnMathType_t math;
};

static struct spec read_spec(const char *path)
{
    static const cudnnRNNMode_t cells[] = {CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU};
    static const cudnnRNNBiasMode_t biases[] = {CUDNN_RNN_NO_BIAS, CUDNN_RNN_SINGLE_INP_BIAS,
                                                CUDNN_RNN_DOUBLE_BIAS, CUDNN_RNN_SINGLE_REC_BIAS};
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF,
                                            CUDNN_DATA_BFLOAT16};
    static const size_t units[] = {4, 8, 2, 2};
    size_t nbytes;
    char *json = read_file(path, &nbytes);
    struct spec s;

    while (nbytes && strchr(" \t\r\n", json[nbytes - 1]))
        nbytes--;
    if (!nbytes || json[0] != '{' || json[nbytes - 1] != '}')
        FAIL("%s: the spec is not a JSON object, or is truncated", path);
    if (number_of(json, "schema", 1) != 1)
        FAIL("%s: only schema 1 of the spec is supported", path);
    s.cell = cells[CHOICE(json, "cell", "rnn_relu", "rnn_tanh", "lstm", "gru")];
    s.bias = biases[CHOICE(json, "bias", "none", "input", "double", "recurrent")];
    s.input = CHOICE(json, "skip_input", "false", "true") ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT;
    s.D = 1 + CHOICE(json, "bidirectional", "false", "true");
    s.I = number_of(json, "input_size", 1);
    s.H = number_of(json, "hidden_size", 1);
    s.L = number_of(json, "num_layers", 1);
    s.P = number_of(json, "proj_size", 0);
    s.P = s.P ? s.P : s.H; /* in cuDNN, P = H means no projection */
    CHOICE(json, "reset", "after");
    CHOICE(json, "recurrent_activation", "sigmoid");

    int dtype = CHOICE(json, "dtype", "float32", "float64", "float16", "bfloat16");
    s.type = types[dtype];
    s.unit = units[dtype];
    s.precision = s.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    /* FMA: float32 products are not rounded to TF32 */
    s.math = s.unit == 2 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    free(json);
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

static void download(CUdeviceptr from, size_t nbytes, const char *prefix, const char *suffix)
{
    void *bytes = malloc(nbytes);
    if (!bytes)
        FAIL("not enough memory for %zu bytes", nbytes);
    CUDA(cuMemcpyDtoH(bytes, from, nbytes));
    write_file(prefix, suffix, bytes, nbytes);
    free(bytes);
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

/* Describe x or y: (T, N, width), all sequences T steps long. Shorter sequences need
 * CUDNN_RNN_PADDED_IO_ENABLED above and their lengths here. */
static cudnnRNNDataDescriptor_t data_descriptor(const struct spec *s, int T, int N, int width)
{
    double zero = 0; /* padding after the end of a sequence; all bits are 0 in every type */
    int *lengths = malloc((size_t)N * sizeof *lengths);
    if (!lengths)
        FAIL("not enough memory for %d lengths", N);
    for (int n = 0; n < N; n++)
        lengths[n] = T;
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

static void run(const struct spec *s, cudnnHandle_t handle, char **argv)
{
    size_t weight_nbytes, x_nbytes, needed, work_nbytes;
    char *weights = read_file(argv[2], &weight_nbytes), *x = read_file(argv[3], &x_nbytes);
    char *end;
    long N = strtol(argv[4], &end, 10);
    if (*end || N < 1 || N > INT_MAX)
        FAIL("N is %s, need a whole number, at least 1", argv[4]);
    size_t step = (size_t)N * (size_t)s->I * s->unit;
    if (x_nbytes == 0 || x_nbytes % step || x_nbytes / step > INT_MAX)
        FAIL("%s has %zu bytes, need a positive multiple of %zu = N * I * %zu", argv[3], x_nbytes,
             step, s->unit);
    int T = (int)(x_nbytes / step), lstm = s->cell == CUDNN_LSTM;

    cudnnDropoutDescriptor_t dropout;
    CUDNN(cudnnCreateDropoutDescriptor(&dropout));
    CUDNN(cudnnSetDropoutDescriptor(dropout, handle, 0, NULL, 0, 0));
    cudnnRNNDescriptor_t rnn = rnn_descriptor(s, dropout);
    CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn, &needed));
    if (needed != weight_nbytes)
        FAIL("%s has %zu bytes, but this RNN needs %zu: are weights and spec of the same model?",
             argv[2], weight_nbytes, needed);
    if (N > INT_MAX / s->H)
        FAIL("N is %ld, which is too large for H = %d", N, s->H);

    cudnnRNNDataDescriptor_t x_desc = data_descriptor(s, T, (int)N, s->I);
    cudnnRNNDataDescriptor_t y_desc = data_descriptor(s, T, (int)N, s->D * s->P);
    cudnnTensorDescriptor_t h_desc = state_descriptor(s, (int)N, s->P);
    cudnnTensorDescriptor_t c_desc = state_descriptor(s, (int)N, s->H);
    CUDNN(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_INFERENCE, x_desc, &work_nbytes,
                                    NULL));

    size_t rows = (size_t)s->L * (size_t)s->D * (size_t)N * s->unit;
    size_t h_nbytes = rows * (size_t)s->P, c_nbytes = rows * (size_t)s->H;
    size_t y_nbytes = (size_t)T * (size_t)N * (size_t)s->D * (size_t)s->P * s->unit;
    CUdeviceptr d_weights = upload(weights, weight_nbytes), d_x = upload(x, x_nbytes);
    CUdeviceptr d_y = device_alloc(y_nbytes), d_h = device_alloc(h_nbytes);
    CUdeviceptr d_c = lstm ? device_alloc(c_nbytes) : 0, d_work = device_alloc(work_nbytes);

    /* cuDNN before 8.9.7 needs the lengths on the device; later versions ignore them. */
    CUdeviceptr d_lengths = 0;
    if (cudnnGetVersion() < 8907) {
        int *lengths = malloc((size_t)N * sizeof *lengths);
        if (!lengths)
            FAIL("not enough memory for %ld lengths", N);
        for (long n = 0; n < N; n++)
            lengths[n] = T;
        d_lengths = upload(lengths, (size_t)N * sizeof *lengths);
        free(lengths);
    }

    /* It replaces cudnnRNNForwardInference of cuDNN 7. NULL for h_0 and c_0 means zero. */
    CUDNN(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, pointer(d_lengths), x_desc,
                          pointer(d_x), y_desc, pointer(d_y), h_desc, NULL, pointer(d_h),
                          lstm ? c_desc : NULL, NULL, pointer(d_c), weight_nbytes,
                          pointer(d_weights), work_nbytes, pointer(d_work), 0, NULL));
    download(d_y, y_nbytes, argv[5], ".y");
    download(d_h, h_nbytes, argv[5], ".h_n");
    if (lstm)
        download(d_c, c_nbytes, argv[5], ".c_n");

    CUdeviceptr memory[] = {d_weights, d_x, d_y, d_h, d_c, d_work, d_lengths};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            CUDA(cuMemFree(memory[i]));
    CUDNN(cudnnDestroyTensorDescriptor(h_desc));
    CUDNN(cudnnDestroyTensorDescriptor(c_desc));
    CUDNN(cudnnDestroyRNNDataDescriptor(x_desc));
    CUDNN(cudnnDestroyRNNDataDescriptor(y_desc));
    CUDNN(cudnnDestroyRNNDescriptor(rnn));
    CUDNN(cudnnDestroyDropoutDescriptor(dropout));
    free(weights);
    free(x);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    cudnnHandle_t handle;
    if (argc != 6) {
        fprintf(stderr, "usage: cudnn_inference SPEC.json WEIGHTS X N OUT\n");
        return 2;
    }
    struct spec spec = read_spec(argv[1]);
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxPushCurrent(context));
    CUDNN(cudnnCreate(&handle));
    run(&spec, handle, argv);
    CUDNN(cudnnDestroy(handle));
    CUDA(cuCtxPopCurrent(NULL));
    CUDA(cuDevicePrimaryCtxRelease(device));
    return 0;
}
