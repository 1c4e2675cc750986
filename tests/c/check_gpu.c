/*
 * Calls on a GPU, on the fakes of tests/fakes, which end the process where a rule is broken: so
 * each part runs in a process of its own, for some versions of cuDNN.
 *
 *     check_gpu            all parts
 *     check_gpu PART       one, in the environment as it is
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "core/dtype.h"
#include "forward/cudnn/abi.h"
#include "rnnlayout.h"

/* The fakes keep what is gone, so that its use is found; the parts here keep their problems. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn.so\nleak:libcuda.so\nleak:lstm\n";
}

/* ---- the fakes ---- */

static struct {
    uint64_t (*alloc)(size_t nbytes, int device, int managed);
    void (*free_)(uint64_t at);
    void (*read)(uint64_t at, void *to, size_t nbytes);
    void (*write)(uint64_t at, const void *from, size_t nbytes);
    long (*live)(const char *kind);
    long (*calls)(void);
    void (*fail)(long k, int cuda, int cudnn);
    void (*log)(const char *path);
    int (*sync)(void);
    int (*push)(void *context), (*pop)(void **context), (*retain)(void **context, int device),
        (*release)(int device);
    int (*stream)(void **made, unsigned flags), (*end_stream)(void *stream);
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph);
    int (*exchange)(int *mode);
    int (*instantiate)(void **made, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream), (*end_exec)(void *exec), (*end_graph)(void *graph);
    int (*pinned)(void **made, size_t nbytes, unsigned flags);
} fake;

static void find_fakes(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct {
        const char *name;
        void *at;
    } names[] = {
        {"fake_alloc", &fake.alloc},
        {"fake_free", &fake.free_},
        {"fake_read", &fake.read},
        {"fake_write", &fake.write},
        {"fake_live", &fake.live},
        {"fake_calls", &fake.calls},
        {"fake_fail", &fake.fail},
        {"fake_log", &fake.log},
        {"cuCtxSynchronize", &fake.sync},
        {"cuCtxPushCurrent_v2", &fake.push},
        {"cuCtxPopCurrent_v2", &fake.pop},
        {"cuDevicePrimaryCtxRetain", &fake.retain},
        {"cuDevicePrimaryCtxRelease_v2", &fake.release},
        {"cuStreamCreate", &fake.stream},
        {"cuStreamDestroy_v2", &fake.end_stream},
        {"cuStreamBeginCapture_v2", &fake.begin},
        {"cuStreamEndCapture", &fake.end},
        {"cuThreadExchangeStreamCaptureMode", &fake.exchange},
        {"cuGraphInstantiateWithFlags", &fake.instantiate},
        {"cuGraphLaunch", &fake.launch},
        {"cuGraphExecDestroy", &fake.end_exec},
        {"cuGraphDestroy", &fake.end_graph},
        {"cuMemHostAlloc", &fake.pinned},
    };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        void *found = dlsym(library, names[k].name);
        memcpy(names[k].at, &found, sizeof found);
        CHECK(found, "%s", names[k].name);
    }
}

/* A test's own use of the device: the context is left as it was. */
static void *context;
static int pushed;
static void current(void)
{
    pushed++;
    if (!context)
        fake.retain(&context, 0);
    fake.push(context);
}
static void not_current(void)
{
    void *popped;
    fake.pop(&popped);
    pushed--;
}
static void sync_all(void)
{
    current();
    CHECK(fake.sync() == 0, "sync");
    not_current();
}

static int use_cudnn(void)
{
    const rnl_cudnn_report *report;
    rnl_error err;
    CHECK(rnl_cudnn_find(NULL, &report, &err) == RNL_OK, "%s", err.text);
    CHECK(!report->why_not, "%s", report->why_not);
    const int version = report->version;
    rnl_cudnn_report_free(report);
    return version;
}

static const char *const KINDS[] = {"pushed", "memory",  "pinned", "stream",   "event", "module",
                                    "handle", "dropout", "rnn",    "rnn_data", "tensor"};

static void check_nothing_left(const char *when)
{
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        CHECK(fake.live(KINDS[k]) == 0, "%s: %ld %s", when, fake.live(KINDS[k]), KINDS[k]);
    CHECK(fake.live("context") <= 1 + (context != NULL), "%s: contexts", when);
}

/* ---- a problem: an RNN and the arrays of a call, and what the CPU makes of them ---- */

enum { MOST = 1 << 14 }; /* bytes of any array here */
enum { X, H0, C0, Y, HN, CN, ARRAYS };
enum { FULL, ALL_T, RANDOM, WITH_ZERO, ZEROS, EQUAL, SHORTER, LENGTHS };

typedef struct problem {
    rnl_spec spec;
    rnl_gpu_options options;
    int64_t T, N, lengths[8];
    int has_lengths, batch_first, no_state, no_y;
    char host[ARRAYS][MOST], got[ARRAYS][MOST], weights[MOST];
    uint64_t device[ARRAYS];
    size_t nbytes[ARRAYS];
} problem;

static double uniform(void)
{
    return (double)(random_bits() >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

static void fill(rnl_dtype dtype, char *to, size_t nbytes, double size)
{
    const size_t unit = (size_t)rnl_dtype_nbytes(dtype);
    for (size_t k = 0; k < nbytes / unit; k++)
        rnl_store_bits(dtype, to + k * unit, rnl_from_double(dtype, size * uniform()));
}

static double at(rnl_dtype dtype, const char *from, size_t k)
{
    return rnl_to_double(dtype, rnl_load_bits(dtype, from + k * (size_t)rnl_dtype_nbytes(dtype)));
}

static int64_t directions(const rnl_spec *s)
{
    return s->bidirectional ? 2 : 1;
}

/* The magnitudes of a row sum to less than 1: no error grows from step to step. */
static void fill_weights(problem *p)
{
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = 0};
    rnl_error err;
    const int64_t widest = p->spec.input_size > 2 * p->spec.hidden_size ? p->spec.input_size
                                                                        : 2 * p->spec.hidden_size;
    rnl_layout_named("cudnn", &layout, &err);
    rnl_layout_tensor(&layout, &p->spec, rnl_spec_has(&p->spec), 0, &tensor, &err);
    const size_t nbytes = (size_t)(tensor.nelems * rnl_dtype_nbytes(p->spec.dtype));
    CHECK(nbytes <= MOST, "%zu bytes of weights", nbytes);
    fill(p->spec.dtype, p->weights, nbytes, 2.0 / (double)widest);
}

static void measure(problem *p)
{
    const rnl_spec *s = &p->spec;
    const int64_t P = s->proj_size ? s->proj_size : s->hidden_size, D = directions(s);
    const int64_t elements[ARRAYS] = {p->T * p->N * s->input_size,
                                      s->num_layers * D * p->N * P,
                                      s->num_layers * D * p->N * s->hidden_size,
                                      p->T * p->N * D * P,
                                      s->num_layers * D * p->N * P,
                                      s->num_layers * D * p->N * s->hidden_size};
    for (int k = 0; k < ARRAYS; k++) {
        p->nbytes[k] = (size_t)(elements[k] * rnl_dtype_nbytes(s->dtype));
        CHECK(p->nbytes[k] <= MOST, "array %d", k);
    }
}

static void set_lengths(problem *p, int kind)
{
    p->has_lengths = kind != FULL;
    for (int64_t n = 0; n < p->N; n++)
        p->lengths[n] = kind == RANDOM      ? 1 + random_below(p->T)
                        : kind == WITH_ZERO ? (n % 2 ? 0 : 1 + random_below(p->T))
                        : kind == ZEROS     ? 0
                        : kind == EQUAL     ? p->T - 1
                        : kind == SHORTER   ? 1 + random_below(p->T - 1)
                                            : p->T;
}

/* x past the end is NaN: nobody may read it. */
static void fill_arrays(problem *p)
{
    const rnl_dtype dtype = p->spec.dtype;
    const double most = p->options.clips ? 0.1 : 1; /* cuDNN clamps c_0 too, so it lies inside */
    measure(p);
    for (int k = 0; k < Y; k++)
        fill(dtype, p->host[k], p->nbytes[k], k == C0 ? most : 1);
    const size_t row = (size_t)(p->spec.input_size * rnl_dtype_nbytes(dtype));
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t n = 0; n < p->N; n++)
            if (p->has_lengths && t >= p->lengths[n])
                memset(p->host[X] + row * (size_t)(p->batch_first ? n * p->T + t : t * p->N + n),
                       0xff, row);
}

static rnl_status on_cpu(problem *p, rnl_error *err)
{
    const rnl_spec *s = &p->spec;
    const int64_t I = s->input_size;
    const int64_t W = directions(s) * (s->proj_size ? s->proj_size : s->hidden_size);
    const rnl_rnn_options options = {.clips = p->options.clips,
                                     .clip_low = p->options.clip_low,
                                     .clip_high = p->options.clip_high};
    rnl_rnn *rnn;
    const rnl_status made = rnl_rnn_new(s, p->weights, &options, &rnn, err);
    if (made != RNL_OK)
        return made;
    const rnl_rnn_call call = {.T = p->T,
                               .N = p->N,
                               .dtype = s->dtype,
                               .x = p->host[X],
                               .x_time = p->batch_first ? I : p->N * I,
                               .x_batch = p->batch_first ? p->T * I : I,
                               .lengths = p->has_lengths ? p->lengths : NULL,
                               .h0 = p->no_state ? NULL : p->host[H0],
                               .c0 = p->no_state || s->cell != RNL_LSTM ? NULL : p->host[C0],
                               .y = p->host[Y],
                               .y_time = p->batch_first ? W : p->N * W,
                               .y_batch = p->batch_first ? p->T * W : W,
                               .hn = p->host[HN],
                               .cn = s->cell == RNL_LSTM ? p->host[CN] : NULL};
    const rnl_status status = rnl_rnn_run(rnn, &call, err);
    rnl_rnn_free(rnn);
    return status;
}

enum { ON_HOST, ON_DEVICE, IN_PLACE, WAYS };

/* The call: states overwritten by the results where IN_PLACE. */
static rnl_gpu_call call_of(problem *p, int way, void *stream)
{
    void *array[ARRAYS];
    for (int k = 0; k < ARRAYS; k++)
        array[k] = way == ON_HOST ? (k < Y ? p->host[k] : p->got[k])
                                  : (void *)(uintptr_t)p->device[k];
    return (rnl_gpu_call){.T = p->T,
                          .N = p->N,
                          .on_host = way == ON_HOST,
                          .batch_first = p->batch_first,
                          .x = array[X],
                          .lengths = p->has_lengths ? p->lengths : NULL,
                          .h0 = p->no_state ? NULL : array[H0],
                          .c0 = p->no_state ? NULL : array[C0],
                          .y = p->no_y ? NULL : array[Y],
                          .hn = array[way == IN_PLACE ? H0 : HN],
                          .cn = array[way == IN_PLACE ? C0 : CN],
                          .stream = stream};
}

static void give_memory(problem *p)
{
    for (int k = 0; k < ARRAYS; k++)
        p->device[k] = fake.alloc(MOST, 0, 0);
}

static void take_memory(problem *p)
{
    for (int k = 0; k < ARRAYS; k++)
        fake.free_(p->device[k]);
}

static void upload(problem *p)
{
    for (int k = 0; k < ARRAYS; k++) {
        if (k >= Y)
            memset(p->got[k], 0xff, p->nbytes[k]);
        if (p->nbytes[k])
            fake.write(p->device[k], k < Y ? p->host[k] : p->got[k], p->nbytes[k]);
    }
}

static void download(problem *p, int way)
{
    for (int k = Y; k < ARRAYS; k++)
        if (p->nbytes[k])
            fake.read(p->device[way == IN_PLACE && k > Y ? k - Y : k], p->got[k], p->nbytes[k]);
}

/* Each step adds the rounding of sums of I + H + 2 terms, of magnitude 4 at most, some units for
 * the curves, and on the GPU that of the states as they are stored; both paths, each layer. */
static double tolerance(const rnl_spec *s, int64_t T)
{
    const double unit = s->dtype == RNL_FLOAT64 ? ldexp(1, -53) : ldexp(1, -24);
    const double stored = s->dtype == RNL_FLOAT16    ? ldexp(1, -11)
                          : s->dtype == RNL_BFLOAT16 ? ldexp(1, -8)
                                                     : unit;
    const double terms = (double)(s->input_size + 2 * s->hidden_size + 3);
    return (double)(T * s->num_layers) * (2 * unit * (4 * terms + 16) + 2 * stored);
}

static void compare(const problem *p, const char *what)
{
    static const char *const names[] = {"x", "h_0", "c_0", "y", "h_n", "c_n"};
    const rnl_dtype dtype = p->spec.dtype;
    const double most = tolerance(&p->spec, p->T);
    for (int k = Y; k < ARRAYS; k++) {
        if ((k == CN && p->spec.cell != RNL_LSTM) || (k == Y && p->no_y))
            continue;
        double worst = 0;
        for (size_t i = 0; i < p->nbytes[k] / (size_t)rnl_dtype_nbytes(dtype); i++) {
            const double off = fabs(at(dtype, p->host[k], i) - at(dtype, p->got[k], i));
            worst = off <= worst ? worst : off; /* a NaN counts */
        }
        CHECK(worst <= most,
              "%s, cell %d bias %d D %d L %d P %d skip %d dtype %d clip %d batch_first %d: %s is "
              "off by %g, %g allowed",
              what, (int)p->spec.cell, (int)p->spec.bias, (int)directions(&p->spec),
              (int)p->spec.num_layers, (int)p->spec.proj_size, p->spec.skip_input, (int)dtype,
              p->options.clips, p->batch_first, names[k], worst, most);
    }
}

static void run_and_compare(rnl_gpu_rnn *rnn, problem *p, int way, void *stream, const char *what)
{
    rnl_error err = {.text = ""};
    const rnl_gpu_call call = call_of(p, way, stream);
    CHECK(on_cpu(p, &err) == RNL_OK, "%s", err.text);
    upload(p);
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s: %s", what, err.text);
    CHECK(fake.live("pushed") == pushed, "%s: the context is left current", what);
    if (way != ON_HOST) {
        sync_all();
        download(p, way);
    }
    compare(p, what);
}

static problem *lstm(void)
{
    problem *p = calloc(1, sizeof *p);
    p->spec = rnl_spec_default(RNL_LSTM, 3, 5);
    p->T = 4;
    p->N = 3;
    fill_weights(p);
    fill_arrays(p);
    give_memory(p);
    return p;
}

static rnl_gpu_rnn *new_rnn(problem *p)
{
    rnl_gpu_rnn *rnn = NULL;
    rnl_error err;
    CHECK(rnl_gpu_rnn_new(&p->spec, p->weights, &p->options, &rnn, &err) == RNL_OK, "%s", err.text);
    return rnn;
}

/* ---- parts ---- */

/* Every cell, bias mode, direction and dtype; layers, projection, skip input, clip in turn; every
 * kind of lengths, order of axes, and place of the arrays. */
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

static void check_numbers(void)
{
    char version[16];
    problem *p = calloc(1, sizeof *p);
    const int number = use_cudnn(), newest = number > 90000;
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

/* The lines of the log from `from` on that begin with a prefix. */
static int count_lines(const char *log, int from, const char *prefix, int *all)
{
    char line[2000];
    int found = 0;
    FILE *file = fopen(log, "r");
    *all = 0;
    while (file && fgets(line, sizeof line, file))
        if ((*all)++ >= from)
            found += strncmp(line, prefix, strlen(prefix)) == 0;
    if (file)
        fclose(file);
    return found;
}

/* A second call alike is one call of cuDNN, and nothing is allocated. */
static void check_sequences(void)
{
    char log[] = "/tmp/check_gpu_XXXXXX";
    close(mkstemp(log));
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    void *streams[3] = {NULL, (void *)2, NULL};
    current();
    fake.stream(&streams[2], 1);
    not_current();
    for (int kind = 0; kind < LENGTHS; kind++)
        for (int s = 0; s < 3; s++) {
            if (kind == ZEROS)
                continue;
            set_lengths(p, kind);
            fill_arrays(p);
            run_and_compare(rnn, p, ON_DEVICE, streams[s], "first");
            int before, all;
            fake.log(log);
            count_lines(log, 0, "", &before);
            run_and_compare(rnn, p, ON_DEVICE, streams[s], "again");
            fake.log(NULL);
            const int dnn = count_lines(log, before, "cudnn", &all);
            const int forward = count_lines(log, before, "cudnnRNNForward", &all);
            const int allocs = count_lines(log, before, "cuMem", &all);
            const int others = count_lines(log, before, "cuStream", &all) +
                               count_lines(log, before, "cuEvent", &all);
            CHECK(dnn == 1 && forward == 1, "lengths %d: %d calls of cuDNN", kind, dnn);
            CHECK(allocs == (kind == EQUAL), "lengths %d: %d of memory", kind, allocs);
            CHECK(others == 1 + s, "lengths %d, stream %d: %d of streams", kind, s, others);
        }
    set_lengths(p, ZEROS);
    fake.log(log);
    int before, all;
    count_lines(log, 0, "", &before);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "all zero");
    fake.log(NULL);
    CHECK(count_lines(log, before, "cudnn", &all) == 0, "all zero: cuDNN was called");
    for (int64_t N = 1; N < 80; N++) { /* more shapes than are kept */
        p->has_lengths = 0;
        p->T = 1 + N % 20;
        p->N = 1 + N % 8;
        p->batch_first = (int)(N % 2);
        fill_arrays(p);
        run_and_compare(rnn, p, ON_DEVICE, NULL, "many shapes");
    }
    CHECK(fake.live("rnn_data") <= 2 * 4 * 64, "%ld", fake.live("rnn_data"));
    current();
    fake.end_stream(streams[2]);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("sequences");
    unlink(log);
}

/* Everything that is done with an RNN; the first status that is not RNL_OK. again: once more after
 * a failure, which has to succeed. */
static rnl_status whole_life(problem *p, int *went, rnl_error *err)
{
    rnl_gpu_rnn *rnn = NULL;
    char back[MOST];
    void *memory = NULL;
    rnl_status status = rnl_gpu_rnn_new(&p->spec, p->weights, &p->options, &rnn, err);
    for (int k = 0; status == RNL_OK && k < 8; k++) {
        p->batch_first = k % 2;
        set_lengths(p, k / 2 == 1 ? RANDOM : k / 2 == 2 ? EQUAL : k / 2 == 3 ? ZEROS : FULL);
        fill_arrays(p);
        upload(p);
        const rnl_gpu_call call = call_of(p, k % WAYS, k == 3 ? (void *)2 : NULL);
        if ((status = rnl_gpu_rnn_run(rnn, &call, err)) == RNL_OK)
            continue;
        fake.fail(0, 0, 0);
        sync_all(); /* what was submitted before the failure runs still */
        run_and_compare(rnn, p, k % WAYS, call.stream, "after a failure");
    }
    if (status == RNL_OK)
        status = rnl_gpu_rnn_weights(rnn, back, err);
    if (status == RNL_OK)
        status = rnl_gpu_alloc(0, 64, &memory, err);
    if (status == RNL_OK)
        status = rnl_gpu_order(0, NULL, (void *)2, err);
    if (status == RNL_OK)
        status = rnl_gpu_copy_out(0, (void *)(uintptr_t)p->device[X], back, 8, NULL, err);
    *went = status == RNL_OK;
    rnl_gpu_free(0, memory);
    rnl_gpu_rnn_free(rnn);
    return status;
}

/* Each call of all those fails once, by turns for want of memory or for another reason. */
static void check_failures(void)
{
    static const int statuses[3][3] = {{1, 8, 5000}, {2, 2, 4004}, {999, 9, 3000}};
    const int newest = use_cudnn() > 90000;
    problem *p = lstm();
    rnl_error err;
    int went = 0, fails = 0;
    p->options = (rnl_gpu_options){.clips = 1, .clip_low = -0.125, .clip_high = 0.25};
    fill_arrays(p);
    const long before = fake.calls();
    CHECK(whole_life(p, &went, &err) == RNL_OK && went, "%s", err.text);
    const long all = fake.calls() - before;
    for (long k = 1; k <= all; k++) {
        const int *of = statuses[(k + newest) % 3], cu = of[0], dnn = of[newest ? 2 : 1];
        fake.fail(k, cu, dnn);
        err = (rnl_error){RNL_OK, "", NULL, 0};
        const rnl_status status = whole_life(p, &went, &err);
        fake.fail(0, 0, 0);
        sync_all();
        fails += status != RNL_OK;
        /* 1: the driver says so too of memory that it does not know */
        CHECK(status == RNL_OK || status == RNL_E_CUDNN || (cu == 2 && status == RNL_E_NOMEM) ||
                  (cu == 1 && status == RNL_E_SPEC),
              "call %ld fails with %d or %d: status %d, %s", k, cu, dnn, (int)status, err.text);
        CHECK(status != RNL_E_CUDNN || (err.call && (err.number == cu || err.number == dnn)),
              "call %ld: %s %d", k, err.call ? err.call : "none", err.number);
        CHECK(status == RNL_OK || strlen(err.text) > 30, "call %ld: %s", k, err.text);
        check_nothing_left("after a failure");
    }
    CHECK(all > 200 && fails > all / 2, "%d of %ld calls failed", fails, all);
    take_memory(p);
    free(p);
}

typedef struct worker {
    rnl_gpu_rnn *rnn;
    problem *p;
    void *stream;
    int way, k;
} worker;

static void *work(void *arg)
{
    worker *const w = arg;
    rnl_error err = {.text = ""};
    char first[MOST];
    for (int k = 0; k < 30; k++) {
        const rnl_gpu_call call = call_of(w->p, w->way, w->stream);
        if (w->way != ON_HOST)
            memset(w->p->got[Y], 0xff, w->p->nbytes[Y]);
        if (rnl_gpu_rnn_run(w->rnn, &call, &err) != RNL_OK) {
            fprintf(stderr, "a thread: %s\n", err.text);
            abort();
        }
        if (w->way != ON_HOST && rnl_gpu_copy_out(0, call.y, w->p->got[Y], (int64_t)w->p->nbytes[Y],
                                                  w->stream, &err) != RNL_OK)
            abort();
        if (k == 0)
            memcpy(first, w->p->got[Y], w->p->nbytes[Y]);
        else if (memcmp(first, w->p->got[Y], w->p->nbytes[Y]) != 0)
            abort();
    }
    return NULL;
}

static void check_threads(void)
{
    enum { WORKERS = 9 };
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    use_cudnn();
    problem *one = lstm();
    rnl_gpu_rnn *rnn = new_rnn(one);
    rnl_error err;
    for (int k = 0; k < WORKERS; k++) {
        workers[k] = (worker){.rnn = rnn, .p = lstm(), .way = k % 3 ? ON_DEVICE : ON_HOST, .k = k};
        memcpy(workers[k].p->weights, one->weights, MOST);
        current();
        if (k % 3 == 1)
            fake.stream(&workers[k].stream, 1);
        not_current();
        if (k % 3 == 2)
            workers[k].stream = k > 4 ? (void *)2 : NULL;
        set_lengths(workers[k].p, k % 2 ? RANDOM : FULL);
        fill_arrays(workers[k].p);
        CHECK(on_cpu(workers[k].p, &err) == RNL_OK, "%s", err.text);
        upload(workers[k].p);
    }
    for (int k = 0; k < WORKERS; k++)
        CHECK(pthread_create(&threads[k], NULL, work, &workers[k]) == 0, "thread %d", k);
    for (int k = 0; k < WORKERS; k++) {
        pthread_join(threads[k], NULL);
        sync_all();
        if (workers[k].way == ON_DEVICE)
            download(workers[k].p, ON_DEVICE);
        compare(workers[k].p, "many threads");
    }
    CHECK(fake.live("handle") <= 4, "%ld lanes", fake.live("handle"));
    rnl_gpu_rnn_free(rnn);
}

static void refuse(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_status wanted, const char *word)
{
    rnl_error err = {.text = ""};
    const rnl_status status = rnl_gpu_rnn_run(rnn, call, &err);
    CHECK(status == wanted && strstr(err.text, word), "%s: status %d, %s", word, (int)status,
          err.text);
    CHECK(fake.live("pushed") == pushed, "%s: the context is left current", word);
}

/* What may be done to others' memory and streams while a stream is captured. */
static void beside_a_capture(rnl_gpu_rnn *ends, void *memory, void *stream)
{
    rnl_error err;
    int mode = 0; /* of every thread by default */
    CHECK(rnl_gpu_order(0, NULL, stream, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_order(0, stream, NULL, &err) == RNL_OK, "%s", err.text);
    rnl_gpu_free(0, memory);
    rnl_gpu_rnn_free(ends);
    CHECK(fake.exchange(&mode) == 0 && mode == 0, "the mode is left at %d", mode);
}

static void check_capture(void)
{
    use_cudnn();
    problem *p = lstm();
    void *memory;
    rnl_gpu_rnn *rnn = new_rnn(p), *ends = new_rnn(p);
    rnl_error err;
    void *stream, *graph, *exec;
    set_lengths(p, RANDOM);
    fill_arrays(p);
    CHECK(on_cpu(p, &err) == RNL_OK, "%s", err.text);
    upload(p);
    current();
    fake.stream(&stream, 1);
    CHECK(rnl_gpu_alloc(0, 64, &memory, &err) == RNL_OK, "%s", err.text);
    for (int warm = 0; warm < 2; warm++) {
        const rnl_gpu_call call = call_of(p, ON_DEVICE, stream);
        CHECK(fake.begin(stream, 1) == 0, "begin");
        if (!warm)
            refuse(rnn, &call, RNL_E_SPEC, "before the capture");
        else
            CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
        if (warm)
            beside_a_capture(ends, memory, stream);
        CHECK(fake.end(stream, &graph) == 0, "end");
        if (!warm) {
            fake.end_graph(graph);
            CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
            fake.sync();
        }
    }
    CHECK(fake.instantiate(&exec, graph, 0) == 0, "instantiate");
    problem *other = lstm(); /* with other lengths: the graph keeps its own */
    memcpy(other->weights, p->weights, MOST);
    set_lengths(other, WITH_ZERO);
    fill_arrays(other);
    not_current();
    run_and_compare(rnn, other, ON_DEVICE, NULL, "beside a graph");
    run_and_compare(rnn, other, ON_DEVICE, stream, "beside a graph, on its stream");
    upload(p);
    current();
    CHECK(fake.launch(exec, stream) == 0, "launch");
    const rnl_gpu_call beside = call_of(other, ON_DEVICE, NULL);
    CHECK(rnl_gpu_rnn_run(rnn, &beside, &err) == RNL_OK, "%s", err.text); /* would be a race */
    fake.sync();
    download(p, ON_DEVICE);
    compare(p, "a graph");
    fake.end_exec(exec);
    fake.end_graph(graph);
    fake.end_stream(stream);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("a capture");
}

/* A stream that is gone before its work is done, and one that was made in its place: the same
 * number, and nothing orders the two. */
static void check_streams(void)
{
    use_cudnn();
    problem *one = lstm(), *two = lstm();
    rnl_gpu_rnn *rnn = new_rnn(one);
    void *first, *second;
    rnl_error err;
    memcpy(two->weights, one->weights, MOST);
    CHECK(on_cpu(one, &err) == RNL_OK && on_cpu(two, &err) == RNL_OK, "%s", err.text);
    upload(one);
    upload(two);
    current();
    fake.stream(&first, 1);
    const rnl_gpu_call before = call_of(one, ON_DEVICE, first);
    CHECK(rnl_gpu_rnn_run(rnn, &before, &err) == RNL_OK, "%s", err.text);
    fake.end_stream(first);
    fake.stream(&second, 1);
    CHECK(first == second, "another number");
    const rnl_gpu_call after = call_of(two, ON_DEVICE, second);
    CHECK(rnl_gpu_rnn_run(rnn, &after, &err) == RNL_OK, "%s", err.text); /* would be a race */
    fake.sync();
    download(one, ON_DEVICE);
    compare(one, "in a stream that is gone");
    download(two, ON_DEVICE);
    compare(two, "in one in its place");
    fake.end_stream(second);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("streams");
}

static void check_fork(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    void *memory;
    rnl_error err;
    run_and_compare(rnn, p, ON_DEVICE, NULL, "before a fork");
    const pid_t child = fork();
    if (child == 0) {
        const rnl_gpu_call call = call_of(p, ON_HOST, NULL);
        refuse(rnn, &call, RNL_E_NO_CUDNN, "fork");
        CHECK(rnl_gpu_alloc(0, 8, &memory, &err) == RNL_E_NO_CUDNN, "%s", err.text);
        rnl_gpu_free(0, (void *)8);
        rnl_gpu_rnn_free(rnn);
        _exit(check_failed != 0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "after a fork");
    rnl_gpu_rnn_free(rnn);
}

static void check_sticky(void)
{
    const int newest = use_cudnn() > 90000;
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p), *unused = NULL;
    rnl_error err;
    const rnl_gpu_call call = call_of(p, ON_DEVICE, NULL);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "before the error");
    fake.fail(4, 719, newest ? 5000 : 8);
    refuse(rnn, &call, RNL_E_CUDNN, "restart the process");
    refuse(rnn, &call, RNL_E_CUDNN, "lost to this process");
    CHECK(rnl_gpu_rnn_new(&p->spec, p->weights, NULL, &unused, &err) == RNL_E_CUDNN &&
              err.number == 719 && !unused,
          "%s", err.text);
    const long before = fake.calls();
    rnl_gpu_rnn_free(rnn);
    CHECK(fake.calls() == before, "%ld calls", fake.calls() - before);
}

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

static void check_refused(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    rnl_gpu_rnn *none = NULL;
    rnl_error err = {.text = ""};
    const rnl_gpu_call good = call_of(p, ON_DEVICE, NULL);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "a good call");
    const long before = fake.live("memory");
#define REFUSE(word, ...)                                                                          \
    do {                                                                                           \
        rnl_gpu_call bad = good;                                                                   \
        __VA_ARGS__;                                                                               \
        refuse(rnn, &bad, RNL_E_SPEC, word);                                                       \
    } while (0)
    void *pinned;
    current();
    fake.pinned(&pinned, 4096, 1);
    not_current();
    const int64_t lengths[3] = {1, 5, 2};
    REFUSE("T is -1", bad.T = -1);
    REFUSE("length 5", bad.lengths = lengths);
    REFUSE("2147483648", bad.N = INT64_C(1) << 31);
    REFUSE("larger than cuDNN", bad.N = INT32_MAX);
    REFUSE("x is NULL", bad.x = NULL);
    REFUSE("multiple of the 4", bad.x = (const char *)bad.x + 2);
    REFUSE("x lies in the host's", bad.x = p->host[X]);
    REFUSE("c_n lies in the host's", bad.cn = pinned);
    REFUSE("managed", bad.h0 = (void *)(uintptr_t)fake.alloc(MOST, 0, 1));
    REFUSE("h_0 is on GPU 1", bad.h0 = (void *)(uintptr_t)fake.alloc(MOST, 1, 0));
    REFUSE("y overlaps x", bad.y = (char *)(uintptr_t)bad.x + 8);
    REFUSE("y overlaps h_0", bad.y = (void *)(uintptr_t)bad.h0);
    REFUSE("h_n overlaps c_n", bad.cn = (char *)bad.hn + 4);
    REFUSE("h_n overlaps h_0", bad.hn = (char *)(uintptr_t)bad.h0 + 4);
    REFUSE("h_n overlaps c_0", bad.hn = (void *)(uintptr_t)bad.c0);
    REFUSE("h_n overlaps c_0", bad.c0 = bad.h0; bad.hn = (void *)(uintptr_t)bad.h0);
    CHECK(fake.live("memory") == before, "a refused call allocated");
    REFUSE("another GPU or context", bad.stream = stream_of_another());
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
    NO_RNN(RNL_E_SPEC, "hidden_size", spec.hidden_size = 0);
    NO_RNN(RNL_E_SPEC, "low <= high", options.clips = 1; options.clip_low = NAN);
    NO_RNN(RNL_E_SPEC, "lstm", spec.cell = RNL_GRU; options.clips = 1);
    NO_RNN(RNL_E_SPEC, "no such one", options.algo = (rnl_gpu_algo)7);
    NO_RNN(RNL_E_SPEC, "tf32", spec.dtype = RNL_FLOAT64; options.math = RNL_GPU_MATH_TF32);
    NO_RNN(RNL_E_SPEC, "needs bias", options.algo = RNL_GPU_PERSIST_STATIC;
           spec.bias = RNL_BIAS_INPUT);
    NO_RNN(RNL_E_SPEC, "no float64", options.algo = RNL_GPU_PERSIST_STATIC;
           spec.dtype = RNL_FLOAT64);
    NO_RNN(RNL_E_SPEC, "no projection", options.algo = RNL_GPU_PERSIST_SMALL; spec.proj_size = 2);
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

    int device = 5;
    void *made = NULL;
    CHECK(rnl_gpu_device_of((void *)(uintptr_t)p->device[0], &device, &err) == RNL_OK &&
              device == 0,
          "%d", device);
    CHECK(rnl_gpu_device_of(p, &device, &err) == RNL_OK && device == -1, "%d", device);
    CHECK(rnl_gpu_device_of(pinned, &device, &err) == RNL_OK && device == -1, "%d", device);
    CHECK(rnl_gpu_device_of((void *)(uintptr_t)fake.alloc(8, 0, 1), &device, &err) == RNL_E_SPEC,
          "managed");
    CHECK(rnl_gpu_alloc(0, -1, &made, &err) == RNL_E_SPEC && !made, "%s", err.text);
    CHECK(rnl_gpu_alloc(0, 0, &made, &err) == RNL_OK && made, "%s", err.text);
    rnl_gpu_free(0, made);
    rnl_gpu_free(0, NULL);
}

static void check_no_memory(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    const rnl_gpu_call call = call_of(p, ON_DEVICE, NULL);
    void *made = NULL;
    rnl_error err;
    refuse(rnn, &call, RNL_E_NOMEM, "bytes");
    refuse(rnn, &call, RNL_E_NOMEM, "workspace");
    CHECK(rnl_gpu_alloc(0, 1 << 30, &made, &err) == RNL_E_NOMEM && strstr(err.text, "1024.0 MiB"),
          "%s", err.text);
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("no memory");
}

static int stop_at_third(void *arg)
{
    return ++*(int *)arg >= 3;
}

static void check_poll(void)
{
    int asked = 0;
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    rnl_gpu_call call = call_of(p, ON_HOST, NULL);
    call.poll = stop_at_third;
    call.poll_arg = &asked;
    refuse(rnn, &call, RNL_E_INTERRUPTED, "interrupted");
    CHECK(asked == 3, "%d", asked);
    run_and_compare(rnn, p, ON_HOST, NULL, "after an interruption");
    call.poll_arg = &asked;
    asked = -1000;
    rnl_error err;
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
    compare(p, "with a poll");
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("poll");
}

/* An array of more than one chunk of pinned memory. */
static void check_large(void)
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

/* ---- all parts ---- */

static const struct {
    const char *name;
    void (*check)(void);
    const char *environments[5];
} PARTS[] = {
    {"numbers",
     check_numbers,
     {"RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8906",
      "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8907 FAKE_CUDA_ORDER=now", "FAKE_CUDNN=91900",
      "FAKE_CUDNN=92800 FAKE_CUDA_ORDER=now"}},
    {"sequences", check_sequences, {"FAKE_CUDNN=92800"}},
    {"failures", check_failures, {"", "RNNLAYOUT_CUDNN=" FAKES "/cudnn8 FAKE_CUDNN=8906"}},
    {"threads", check_threads, {"FAKE_CUDNN_LINGER=200", "FAKE_CUDA_ORDER=now"}},
    {"capture", check_capture, {"", "FAKE_CUDA_ORDER=now"}},
    {"streams", check_streams, {"FAKE_CUDA_REUSE=1"}},
    {"fork", check_fork, {""}},
    {"sticky", check_sticky, {"", "RNNLAYOUT_CUDNN=" FAKES "/cudnn8"}},
    {"refused", check_refused, {"FAKE_CUDA_DEVICES=2"}},
    {"no_memory", check_no_memory, {"FAKE_CUDA_MEMORY=100000"}},
    {"poll", check_poll, {"FAKE_CUDA_SLOW=2500"}},
    {"large", check_large, {"", "FAKE_CUDA_ORDER=now"}},
};

/* A part in a process of its own; its counts are added to ours. */
static void run_part(const char *program, const char *name, const char *environment)
{
    char command[4000], line[200];
    long passed = 0, failed = 0;
    snprintf(command, sizeof command, "RNNLAYOUT_CUDNN=%s %s '%s' %s", FAKES "/cudnn9", environment,
             program, name);
    if (strncmp(environment, "RNNLAYOUT_CUDNN", 15) == 0)
        snprintf(command, sizeof command, "%s '%s' %s", environment, program, name);
    fflush(stdout);
    FILE *child = popen(command, "r");
    while (child && fgets(line, sizeof line, child))
        if (sscanf(line, "%ld passed, %ld failed", &passed, &failed) != 2)
            fputs(line, stdout);
    const int status = child ? pclose(child) : -1;
    check_passed += passed;
    check_failed += failed;
    CHECK(status == 0 && passed > 0, "%s ends with %d", command, status);
}

int main(int argc, char **argv)
{
    char program[2000] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 2;
    for (size_t k = 0; k < sizeof PARTS / sizeof PARTS[0]; k++) {
        if (argc > 1 && strcmp(argv[1], PARTS[k].name) == 0) {
            find_fakes();
            PARTS[k].check();
        }
        for (int e = 0; argc == 1 && e < 5 && PARTS[k].environments[e]; e++)
            run_part(program, PARTS[k].name, PARTS[k].environments[e]);
    }
    return check_end();
}
