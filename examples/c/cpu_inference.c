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

/* Return the RNN, prepared once for any number of calls. */
static rnl_rnn *read_rnn(const char *path, rnl_spec *spec)
{
    size_t nbytes;
    rnl_rnn_options options;
    rnl_rnn *rnn = NULL;
    rnl_error err;

    char *weights = read_weights(path, spec, &options, &nbytes);
    if (rnl_rnn_new(spec, weights, &options, &rnn, &err) != RNL_OK)
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
    rnl_spec spec;
    rnl_rnn *rnn = read_rnn(argv[1], &spec);

    const rnl_dtype dtype = spec.dtype == RNL_FLOAT64 ? RNL_FLOAT64 : RNL_FLOAT32;
    const size_t unit = (size_t)rnl_dtype_nbytes(dtype);
    const int64_t I = spec.input_size, H = spec.hidden_size, L = spec.num_layers;
    const int64_t P = spec.proj_size ? spec.proj_size : H, D = spec.bidirectional ? 2 : 1;
    const int64_t N = batch_of(argv[3]);
    size_t x_nbytes;
    char *x = read_file(argv[2], &x_nbytes);
    const int64_t T = steps_of(argv[2], x_nbytes, (int)N, (int)I, unit);
    const size_t y_nbytes = (size_t)(T * N * D * P) * unit;
    const size_t h_nbytes = (size_t)(L * D * N * P) * unit;
    const size_t c_nbytes = (size_t)(L * D * N * H) * unit;

    rnl_rnn_call call;
    memset(&call, 0, sizeof call); /* the state is zero, all sequences have T steps */
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
    print_rnn(argv[1], rnl_name(RNL_NAMES_CELL, (int)spec.cell), (int)I, (int)H, (int)L, (int)D,
              rnl_name(RNL_NAMES_DTYPE, (int)spec.dtype));
    print_result(argv, (int)T, (int)N, (int)(D * P), unit, call.y);

    rnl_rnn_free(rnn);
    free(x);
    free(call.y);
    free(call.hn);
    free(call.cn);
    return 0;
}
