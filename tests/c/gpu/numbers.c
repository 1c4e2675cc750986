/* A GPU computes the same numbers as the CPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

/* Every cell, bias mode, direction and dtype; layers, projection, skip input and clip in turn;
 * every kind of lengths, order of axes and place of the arrays. */
static void numbers_of(problem *p, const char *version)
{
    static const char *const ways[] = {"host", "device", "in place"};
    rnl_gpu_rnn *rnn = new_rnn(p);
    char what[80], back[MOST];
    rnl_error err;
    CHECK(rnl_gpu_rnn_weights(rnn, back, &err) == RNL_OK, "%s", err.text);
    for (int lengths = 0; rnn && lengths < LENGTHS; lengths++)
        for (int way = 0; way < WAYS; way++)
            for (p->batch_first = 0; p->batch_first < 2; p->batch_first++) {
                p->T = 2 + random_below(4);
                p->N = 1 + random_below(4);
                p->no_state = way != IN_PLACE && random_below(3) == 0;
                p->no_y = random_below(5) == 0;
                set_lengths(p, lengths);
                fill_arrays(p);
                snprintf(what, sizeof what, "cuDNN %s, %s, lengths %d", version, ways[way],
                         lengths);
                run_and_compare(rnn, p, way, (void *)(uintptr_t)(2 * random_below(2)), what);
            }
    rnl_gpu_rnn_free(rnn);
}

void check_numbers(void)
{
    char version[16];
    problem *p = calloc(1, sizeof *p);
    const int number = use_cudnn(), newest = number >= 91300;
    snprintf(version, sizeof version, "%d", number);
    give_memory(p);
    for (int k = 0; k < 4 * 4 * 2 * 4; k++) {
        const int64_t I = 1 + random_below(4), H = 2 + random_below(4);
        p->spec = rnl_spec_default((rnl_cell)(k % 4), I, H);
        p->spec.bias = (rnl_bias)(k / 4 % 4);
        p->spec.bidirectional = k / 16 % 2;
        p->spec.dtype = (rnl_dtype)(k / 32);
        p->spec.num_layers = 1 + random_below(2);
        p->spec.proj_size = p->spec.cell == RNL_LSTM && k / 4 % 2 ? 1 : 0;
        p->spec.skip_input = random_below(3) == 0;
        if (p->spec.skip_input)
            p->spec.input_size = H;
        p->options = (rnl_gpu_options){.clips = p->spec.cell == RNL_LSTM && random_below(2),
                                       .clip_low = -0.125,
                                       .clip_high = 0.25};
        if (p->spec.dtype == RNL_BFLOAT16 && !newest)
            continue;
        fill_weights(p);
        numbers_of(p, version);
    }
    take_memory(p);
    free(p);
    check_nothing_left("numbers");
}

/* Arrays of a megabyte, with weights that tell each element apart. */
void check_large(void)
{
    enum { N = 700, H = 512 };
    rnl_spec spec = rnl_spec_default(RNL_RNN_RELU, 1, H);
    rnl_error err;
    rnl_gpu_rnn *rnn = NULL;
    use_cudnn();
    float *weights = calloc((size_t)H * (H + 3), sizeof *weights), *back = malloc(H * (H + 3) * 4);
    float *x = malloc(N * sizeof *x), *y = malloc((size_t)N * H * sizeof *y);
    float *hn = malloc((size_t)N * H * sizeof *hn);
    for (int h = 0; h < H; h++)
        weights[h] = (float)h; /* W; R and the biases are zero */
    for (int n = 0; n < N; n++)
        x[n] = (float)n;
    CHECK(rnl_gpu_rnn_new(&spec, weights, NULL, &rnn, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_rnn_weights(rnn, back, &err) == RNL_OK, "%s", err.text);
    CHECK(memcmp(weights, back, (size_t)H * (H + 3) * 4) == 0, "weights");
    const rnl_gpu_call call = {.T = 1, .N = N, .on_host = 1, .x = x, .y = y, .hn = hn};
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
    int wrong = 0;
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++)
            wrong += y[n * H + h] != (float)(n * h) || hn[n * H + h] != (float)(n * h);
    CHECK(wrong == 0, "%d of %d", wrong, N * H);
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("large");
    free(weights);
    free(back);
    free(x);
    free(y);
    free(hn);
}
