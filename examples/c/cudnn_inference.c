/*
 * Run an LSTM, GRU or RNN on a GPU with cuDNN alone, on weights exported by
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
 * Needs cuDNN 9 and the CUDA driver. Compiles as C11 and as C++:
 *     cc -I CUDNN/include -I CUDA/include cudnn_inference.c -L CUDNN/lib -l:libcudnn.so.9
 *        -l:libcuda.so.1 -o cudnn_inference
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

/* ------------------------------------------------------------- the spec, a JSON object -- */

/* Return the value of a key, or NULL. The first one counts: rnnlayout writes the spec before the
 * rest. */
static const char *find_value(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    at += strspn(at, " \t\r\n");
    return *at == ':' ? at + 1 + strspn(at + 1, " \t\r\n") : NULL;
}

static const char *value_of(const char *json, const char *key)
{
    const char *value = find_value(json, key);
    if (!value)
        FAIL("the spec has no \"%s\"", key);
    return value;
}

static int number_of(const char *json, const char *key, long least)
{
    const char *value = value_of(json, key);
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || !*end || !strchr(",} \t\r\n", *end) || number < least || number > INT_MAX)
        FAIL("the spec's \"%s\" must be a whole number, at least %ld", key, least);
    return (int)number;
}

/* Copy the value of a key, a word with or without quotes. */
static void word_of(const char *json, const char *key, char word[32])
{
    const char *value = value_of(json, key);
    value += *value == '"';
    int length = (int)strcspn(value, "\",} \t\r\n");
    snprintf(word, 32, "%.*s", length, value);
}

static int true_of(const char *json, const char *key)
{
    char word[32];
    word_of(json, key, word);
    if (strcmp(word, "true") != 0 && strcmp(word, "false") != 0)
        FAIL("the spec's \"%s\" must be true or false, not %s", key, word);
    return strcmp(word, "true") == 0;
}

/* Refuse what this program does not apply: go_backwards, an initial state ... */
static void check_spec_text(const char *path, const char *json, size_t nbytes)
{
    while (nbytes && strchr(" \t\r\n", json[nbytes - 1]))
        nbytes--;
    if (!nbytes || json[0] != '{' || json[nbytes - 1] != '}')
        FAIL("%s.json: the spec is not a JSON object, or is truncated", path);
    if (number_of(json, "schema", 1) != 1)
        FAIL("%s.json: only schema 1 of the spec is supported", path);
    if (find_value(json, "config"))
        FAIL("%s.json: this RNN has settings in \"config\", which this program does not apply",
             path);
}

/* Return the index of a key's value in a list of words, which are separated by spaces. */
static int choice_of(const char *json, const char *key, const char *words)
{
    char word[32];
    word_of(json, key, word);
    const size_t length = strlen(word);
    for (int k = 0; *words; k++) {
        const size_t next = strcspn(words, " ");
        if (next == length && strncmp(words, word, length) == 0)
            return k;
        words += next + (words[next] == ' ');
    }
    FAIL("the spec's \"%s\": %s is not supported by this program or by cuDNN", key, word);
}

struct spec {
    int I, H, P, L, D;
    size_t unit; /* bytes per number */
    cudnnRNNMode_t cell;
    cudnnRNNBiasMode_t bias;
    cudnnRNNInputMode_t input;
    cudnnDataType_t type, precision; /* of the data; of the arithmetic */
    cudnnMathType_t math;
};

static struct spec read_spec(const char *json)
{
    static const cudnnRNNMode_t cells[] = {CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU};
    static const cudnnRNNBiasMode_t biases[] = {CUDNN_RNN_NO_BIAS, CUDNN_RNN_SINGLE_INP_BIAS,
                                                CUDNN_RNN_DOUBLE_BIAS, CUDNN_RNN_SINGLE_REC_BIAS};
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF,
                                            CUDNN_DATA_BFLOAT16};
    static const size_t units[] = {4, 8, 2, 2};
    struct spec s;

    s.cell = cells[choice_of(json, "cell", "rnn_relu rnn_tanh lstm gru")];
    s.bias = biases[choice_of(json, "bias", "none input double recurrent")];
    s.input = true_of(json, "skip_input") ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT;
    s.D = 1 + true_of(json, "bidirectional");
    s.I = number_of(json, "input_size", 1);
    s.H = number_of(json, "hidden_size", 1);
    s.L = number_of(json, "num_layers", 1);
    s.P = number_of(json, "proj_size", 0);
    s.P = s.P ? s.P : s.H; /* in cuDNN, P = H means no projection */
    choice_of(json, "reset", "after");
    choice_of(json, "recurrent_activation", "sigmoid");

    int dtype = choice_of(json, "dtype", "float32 float64 float16 bfloat16");
    s.type = types[dtype];
    s.unit = units[dtype];
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

static void run(const struct spec *s, cudnnHandle_t handle, char **argv)
{
    size_t weight_nbytes, x_nbytes, needed, work_nbytes;
    char *weights = read_file(argv[1], &weight_nbytes), *x = read_file(argv[2], &x_nbytes);
    int N = batch_of(argv[3]), T = steps_of(argv[2], x_nbytes, N, s->I, s->unit);
    int lstm = s->cell == CUDNN_LSTM;

    cudnnDropoutDescriptor_t dropout;
    CUDNN(cudnnCreateDropoutDescriptor(&dropout));
    CUDNN(cudnnSetDropoutDescriptor(dropout, handle, 0, NULL, 0, 0));
    cudnnRNNDescriptor_t rnn = rnn_descriptor(s, dropout);
    CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn, &needed));
    if (needed != weight_nbytes)
        FAIL("%s has %zu bytes, but this RNN needs %zu: are weights and spec of the same model?",
             argv[1], weight_nbytes, needed);
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
    free(weights);
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
    size_t nbytes;
    char *json = read_spec_text(argv[1], &nbytes), cell[32], dtype[32];
    check_spec_text(argv[1], json, nbytes);
    struct spec spec = read_spec(json);
    word_of(json, "cell", cell);
    word_of(json, "dtype", dtype);
    print_rnn(argv[1], cell, spec.I, spec.H, spec.L, spec.D, dtype);
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxPushCurrent(context));
    CUDNN(cudnnCreate(&handle));
    run(&spec, handle, argv);
    CUDNN(cudnnDestroy(handle));
    CUDA(cuCtxPopCurrent(NULL));
    CUDA(cuDevicePrimaryCtxRelease(device));
    free(json);
    return 0;
}
