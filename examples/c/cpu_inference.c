/*
 * Run an LSTM, GRU or RNN on the CPU with rnnlayout's C library, on weights exported by
 *     rnnlayout convert model.pt lstm.bin --to cudnn
 *
 *   cpu_inference WEIGHTS.bin X N OUT
 *
 *   WEIGHTS.bin  as exported, with its spec beside it, in WEIGHTS.bin.json
 *   X            (T, N, I) float32 numbers, or float64 if the weights are; T follows from its size
 *   N            batch size
 *   OUT          prefix of the output files: OUT.y (T, N, D * P), OUT.h_n (L * D, N, P) and, for an
 *                LSTM, OUT.c_n (L * D, N, H), in the dtype of X
 *
 * Compiles as C11 and as C++:
 *     cc cpu_inference.c $(pkg-config --cflags --libs rnnlayout) -o cpu_inference
 */
#include "files.h"
#include <rnnlayout.h>

static int parsed(const char *json, const char *key, rnl_family family)
{
    char word[32];
    int value;
    rnl_error err;
    word_of(json, key, word);
    if (rnl_parse(family, word, &value, &err) != RNL_OK)
        FAIL("the spec is wrong: %s", err.text);
    return value;
}

static rnl_spec read_spec(const char *json)
{
    rnl_error err;
    rnl_spec spec = rnl_spec_default((rnl_cell)parsed(json, "cell", RNL_NAMES_CELL),
                                     number_of(json, "input_size", 1),
                                     number_of(json, "hidden_size", 1));
    spec.num_layers = number_of(json, "num_layers", 1);
    spec.bidirectional = true_of(json, "bidirectional");
    spec.proj_size = number_of(json, "proj_size", 0);
    spec.bias = (rnl_bias)parsed(json, "bias", RNL_NAMES_BIAS);
    spec.reset = (rnl_reset)parsed(json, "reset", RNL_NAMES_RESET);
    spec.recurrent_activation = (rnl_activation)parsed(json, "recurrent_activation",
                                                       RNL_NAMES_ACTIVATION);
    spec.skip_input = true_of(json, "skip_input");
    spec.dtype = (rnl_dtype)parsed(json, "dtype", RNL_NAMES_DTYPE);
    if (rnl_spec_check(&spec, &err) != RNL_OK)
        FAIL("the spec is wrong: %s", err.text);
    return spec;
}

/* Return the RNN, prepared once for any number of calls. */
static rnl_rnn *read_rnn(const rnl_spec *spec, const char *path)
{
    size_t nbytes;
    char *weights = read_file(path, &nbytes);
    rnl_layout layout;
    rnl_tensor tensor; /* the weights are one tensor: cuDNN's weight space */
    rnl_rnn *rnn = NULL;
    rnl_error err;

    if (rnl_layout_named("cudnn", &layout, &err) != RNL_OK ||
        rnl_layout_tensor(&layout, spec, rnl_spec_has(spec), 0, &tensor, &err) != RNL_OK)
        FAIL("%s", err.text);
    const size_t needed = (size_t)(tensor.nelems * rnl_dtype_nbytes(spec->dtype));
    if (nbytes != needed)
        FAIL("%s has %zu bytes, but this RNN needs %zu: are weights and spec of the same model?",
             path, nbytes, needed);
    if (rnl_rnn_new(spec, weights, NULL, &rnn, &err) != RNL_OK)
        FAIL("%s", err.text);
    free(weights);
    return rnn;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: cpu_inference WEIGHTS.bin X N OUT\n");
        return 2;
    }
    char *json = read_spec_text(argv[1]);
    const rnl_spec spec = read_spec(json);
    rnl_rnn *rnn = read_rnn(&spec, argv[1]);

    const rnl_dtype dtype = spec.dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32;
    const size_t unit = (size_t)rnl_dtype_nbytes(dtype);
    const int64_t I = spec.input_size, H = spec.hidden_size,
                  P = spec.proj_size ? spec.proj_size : H;
    const int64_t D = spec.bidirectional ? 2 : 1, N = batch_of(argv[3]);
    size_t x_nbytes;
    char *x = read_file(argv[2], &x_nbytes);
    const int64_t T = steps_of(argv[2], x_nbytes, (int)N, (int)I, unit);

    const size_t states = (size_t)(spec.num_layers * D * N) * unit;
    const size_t h_nbytes = states * (size_t)P, c_nbytes = states * (size_t)H;
    const size_t y_nbytes = (size_t)(T * N * D * P) * unit;
    rnl_rnn_call call;
    memset(&call, 0,
           sizeof call); /* no state: it is zero; no lengths: all sequences have T steps */
    call.T = T;
    call.N = N;
    call.dtype = dtype;
    call.x = x;
    call.x_time = N * I;
    call.x_batch = I;
    call.y = memory_for(y_nbytes);
    call.y_time = N * D * P;
    call.y_batch = D * P;
    call.hn = memory_for(h_nbytes);
    call.cn = spec.cell == RNL_LSTM ? memory_for(c_nbytes) : NULL;

    rnl_error err;
    if (rnl_rnn_run(rnn, &call, &err) != RNL_OK)
        FAIL("%s", err.text);
    write_file(argv[4], ".y", call.y, y_nbytes);
    write_file(argv[4], ".h_n", call.hn, h_nbytes);
    if (call.cn)
        write_file(argv[4], ".c_n", call.cn, c_nbytes);
    print_result(argv, json, (int)T, (int)N, (int)(D * P), unit, call.y);

    rnl_rnn_free(rnn);
    free(json);
    free(x);
    free(call.y);
    free(call.hn);
    free(call.cn);
    return 0;
}
