/* Calls that are refused before anything is done. */
#include <math.h>
#include <string.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

/* A stream of GPU 1. */
static void *stream_of_another(void)
{
    void *there, *stream;
    fake.retain(&there, 1);
    fake.push(there);
    fake.stream(&stream, 1);
    fake.pop(&there);
    return stream;
}

void check_refused(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    rnl_gpu_rnn *none = NULL;
    rnl_error err = {.text = ""};
    const rnl_gpu_call good = call_of(p, ON_DEVICE, NULL);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "a good call");
    const long before = fake.live("memory");
#define REFUSE(status, word, ...)                                                                  \
    do {                                                                                           \
        rnl_gpu_call bad = good;                                                                   \
        __VA_ARGS__;                                                                               \
        refuse(rnn, &bad, RNL_E_##status, word);                                                   \
    } while (0)
    void *pinned;
    current();
    fake.pinned(&pinned, 4096, 1);
    not_current();
    const int64_t lengths[3] = {1, 5, 2};
    REFUSE(SPEC, "T is -1", bad.T = -1);
    REFUSE(LAYOUT, "lengths[1] is 5, need 0 to 4 = T", bad.lengths = lengths);
    REFUSE(SPEC, "2147483648", bad.N = INT64_C(1) << 31);
    REFUSE(SPEC, "larger than cuDNN", bad.N = INT32_MAX);
    REFUSE(LAYOUT, "x is NULL", bad.x = NULL);
    REFUSE(LAYOUT, "multiple of the 4", bad.x = (const char *)bad.x + 2);
    REFUSE(LAYOUT, "x is not in the memory of a GPU", bad.x = p->host[X]);
    REFUSE(LAYOUT, "c_n (c_out) is not in the memory of a GPU", bad.cn = pinned);
    REFUSE(LAYOUT, "managed", bad.h0 = (void *)(uintptr_t)fake.alloc(MOST, 0, 1));
    REFUSE(LAYOUT, "h_0 is on GPU 1", bad.h0 = (void *)(uintptr_t)fake.alloc(MOST, 1, 0));
    REFUSE(LAYOUT, "y (out) overlaps x", bad.y = (char *)(uintptr_t)bad.x + 8);
    REFUSE(LAYOUT, "y (out) overlaps h_0", bad.y = (void *)(uintptr_t)bad.h0);
    REFUSE(LAYOUT, "h_n (h_out) overlaps c_n (c_out)", bad.cn = (char *)bad.hn + 4);
    REFUSE(LAYOUT, "h_n (h_out) overlaps h_0", bad.hn = (char *)(uintptr_t)bad.h0 + 4);
    REFUSE(LAYOUT, "h_n (h_out) overlaps c_0", bad.hn = (void *)(uintptr_t)bad.c0);
    REFUSE(LAYOUT, "h_n (h_out) overlaps c_0", bad.c0 = bad.h0; bad.hn = (void *)(uintptr_t)bad.h0);
    CHECK(fake.live("memory") == before, "a refused call allocated");
    REFUSE(SPEC, "another GPU or context", bad.stream = stream_of_another());
    run_and_compare(rnn, p, ON_DEVICE, NULL, "a good call again");
#define NO_RNN(status, word, ...)                                                                  \
    do {                                                                                           \
        rnl_spec spec = p->spec;                                                                   \
        rnl_gpu_options options = p->options;                                                      \
        __VA_ARGS__;                                                                               \
        const rnl_status found = rnl_gpu_rnn_new(&spec, p->weights, &options, &none, &err);        \
        CHECK(found == status && strstr(err.text, word) && !none, "%s: %d, %s", word, (int)found,  \
              err.text);                                                                           \
        CHECK(fake.live("pushed") == pushed, "%s", word);                                          \
    } while (0)
    NO_RNN(RNL_E_SPEC, "reset", spec.cell = RNL_GRU; spec.reset = RNL_RESET_BEFORE);
    NO_RNN(RNL_E_SPEC, "peepholes", spec.cell = RNL_LSTM; spec.peepholes = 1);
    NO_RNN(RNL_E_SPEC, "relu", spec.cell = RNL_GRU; spec.activation = RNL_RELU);
    NO_RNN(RNL_E_SPEC, "hidden_size", spec.hidden_size = 0);
    NO_RNN(RNL_E_SPEC, "low <= high", options.clips = 1; options.clip_low = NAN);
    NO_RNN(RNL_E_SPEC, "lstm", spec.cell = RNL_GRU; options.clips = 1);
    NO_RNN(RNL_E_SPEC, "algo is 7", options.algo = (rnl_gpu_algo)7);
    NO_RNN(RNL_E_SPEC, "tf32", spec.dtype = RNL_FLOAT64; options.math = RNL_GPU_MATH_TF32);
    NO_RNN(RNL_E_SPEC, "needs bias", options.algo = RNL_GPU_PERSIST_STATIC;
           spec.bias = RNL_BIAS_INPUT);
    NO_RNN(RNL_E_SPEC, "does not support float64", options.algo = RNL_GPU_PERSIST_STATIC;
           spec.dtype = RNL_FLOAT64);
    NO_RNN(RNL_E_SPEC, "does not support a projection", options.algo = RNL_GPU_PERSIST_SMALL;
           spec.proj_size = 2);
    NO_RNN(RNL_E_SPEC, "<= 192", options.algo = RNL_GPU_PERSIST_SMALL; spec.hidden_size = 193);
    NO_RNN(RNL_E_SPEC, "cannot run this RNN", options.algo = RNL_GPU_PERSIST_STATIC;
           spec.hidden_size = 2048);
    NO_RNN(RNL_E_NO_CUDNN, "no GPU 7", options.device = 7);
    NO_RNN(RNL_E_NO_CUDNN, "no GPU -1", options.device = -1);
    p->options.algo = RNL_GPU_PERSIST_SMALL;
    rnl_gpu_rnn *small = new_rnn(p);
    run_and_compare(small, p, ON_DEVICE, NULL, "a persistent algorithm");
    rnl_gpu_call bad = good;
    const int64_t unequal[3] = {1, 4, 2};
    bad.lengths = unequal;
    refuse(small, &bad, RNL_E_SPEC, "standard");
    rnl_gpu_rnn_free(small);
    rnl_gpu_rnn_free(rnn);
    rnl_gpu_rnn_free(NULL);

    void *made = NULL;
    CHECK(rnl_gpu_alloc(0, -1, NULL, &made, &err) == RNL_E_SPEC && !made, "%s", err.text);
    CHECK(rnl_gpu_alloc(0, 0, NULL, &made, &err) == RNL_OK && made, "%s", err.text);
    rnl_gpu_free(0, made);
    rnl_gpu_free(0, NULL);
}

static void no_rnn(const problem *p, const char *word)
{
    rnl_gpu_rnn *none = NULL;
    rnl_error err = {.text = ""};
    CHECK(rnl_gpu_rnn_new(&p->spec, p->weights, &p->options, &none, &err) == RNL_E_SPEC && !none &&
              strstr(err.text, word),
          "%s: %s", word, err.text);
}

/* What an old GPU or cuDNN lacks, and what none has. */
void check_limits(void)
{
    const int newest = use_cudnn() >= 91300;
    problem *p = lstm();
    p->spec.dtype = RNL_BFLOAT16;
    no_rnn(p, newest ? "compute capability 8.0" : "bfloat16 needs cuDNN 9.13");
    p->spec.dtype = RNL_FLOAT32;
    p->options.algo = RNL_GPU_PERSIST_SMALL;
    no_rnn(p, "compute capability 6.0");
    p->options.algo = RNL_GPU_AUTO;
    p->spec.input_size = INT64_C(1) << 31;
    no_rnn(p, "supports sizes up to");
}

/* cuDNN 9.1 supports no sequence of length 0; the others run, and a batch of only such. */
void check_empty(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    for (p->batch_first = 0; p->batch_first < 2; p->batch_first++)
        for (int kind = 0; kind < LENGTHS; kind++) {
            set_lengths(p, kind);
            fill_arrays(p);
            const rnl_gpu_call call = call_of(p, ON_HOST, NULL);
            if (kind == WITH_ZERO)
                refuse(rnn, &call, RNL_E_SPEC, "cuDNN 9.1.0 does not support");
            else
                run_and_compare(rnn, p, ON_HOST, NULL, "no empty sequence, or only such");
        }
    rnl_gpu_rnn_free(rnn);
}
