/* Which of cuDNN's algorithms "auto" chooses. The right ones are those of torch's get_algo(), in
 * aten/src/ATen/native/cudnn/RNN.cpp. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "rnnlayout.h"

enum { STANDARD, STATIC, SMALL = 3 }; /* of cudnnRNNAlgo_t */

static const struct {
    rnl_cell cell;
    rnl_dtype dtype;
    int64_t H, T, N;
    int volta, newer; /* of compute capability 7.0 with 80 multiprocessors; 9.0 with 132 */
} CASES[] = {
    {RNL_LSTM, RNL_FLOAT32, 192, 1, 3, SMALL, SMALL},
    {RNL_GRU, RNL_FLOAT32, 193, 1, 3, STANDARD, STANDARD},
    {RNL_RNN_RELU, RNL_FLOAT32, 384, 1, 3, SMALL, SMALL},
    {RNL_LSTM, RNL_FLOAT16, 256, 10, 8, STATIC, STATIC},
    {RNL_LSTM, RNL_FLOAT16, 256, 9, 8, STANDARD, STATIC},
    {RNL_LSTM, RNL_FLOAT16, 256, 10, 12, STANDARD, STANDARD},
    {RNL_GRU, RNL_FLOAT16, 256, 10, 8, STATIC, STANDARD},
    {RNL_RNN_TANH, RNL_FLOAT16, 896, 1, 96, STANDARD, STANDARD},
    {RNL_LSTM, RNL_FLOAT16, 256, 1, 136, STANDARD, STANDARD},
};

/* Whether a line of the log describes an RNN with this algorithm. */
static bool uses(const char *path, int algo)
{
    char line[2000];
    bool found = false;
    int made;
    FILE *log = fopen(path, "r");
    while (log && fgets(line, sizeof line, log))
        if (sscanf(line, "cudnnSetRNNDescriptor_v8 desc=%*s algo=%d", &made) == 1)
            found = found || made == algo;
    if (log)
        fclose(log);
    return found;
}

/* Run a case; the fake writes its log to path. */
static void run(size_t k, const char *path, const void *zeros, char *y)
{
    rnl_spec spec = rnl_spec_default(CASES[k].cell, 128, CASES[k].H);
    spec.dtype = CASES[k].dtype;
    const rnl_gpu_options options = {.device = 0};
    const rnl_gpu_call call = {.T = CASES[k].T, .N = CASES[k].N, .on_host = 1, .x = zeros, .y = y};
    rnl_gpu_rnn *rnn = NULL;
    rnl_error err = {.text = ""};
    CHECK(truncate(path, 0) == 0, "%s", path);
    fake.log(path);
    CHECK(rnl_gpu_rnn_new(&spec, zeros, &options, &rnn, &err) == RNL_OK, "%s", err.text);
    y[0] = 1;
    CHECK(rnn && rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK && y[0] == 0, "case %zu: %s", k,
          err.text);
    rnl_gpu_rnn_free(rnn);
    fake.log("/dev/null");
}

/* In an environment where the fake refuses these algorithms, the standard one gives the result. */
void check_algos(void)
{
    use_cudnn();
    const bool volta = getenv("FAKE_CUDA_CAPABILITY");
    char *const zeros = calloc(1, 1 << 23), *const y = malloc(1 << 22);
    char path[] = "/tmp/rnnlayout_algos_XXXXXX";
    const int file = mkstemp(path);
    CHECK(zeros && y && file >= 0, "no memory or no file");
    for (size_t k = 0; zeros && y && file >= 0 && k < sizeof CASES / sizeof CASES[0]; k++) {
        const int right = volta ? CASES[k].volta : CASES[k].newer;
        run(k, path, zeros, y);
        CHECK(uses(path, STATIC) == (right == STATIC), "case %zu", k);
        CHECK(uses(path, SMALL) == (right == SMALL), "case %zu", k);
    }
    if (file >= 0)
        close(file);
    unlink(path);
    free(zeros);
    free(y);
    check_nothing_left("algos");
}
