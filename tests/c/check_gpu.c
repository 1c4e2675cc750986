/* Calls on a GPU under sanitizers, on the fakes of tests/fakes: many threads with one RNN, and a
 * life in which each call of the libraries fails in turn. tests/run/gpu asks whether results are
 * right. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/status.h"
#include "fake.h"
#include "rnnlayout.h"

/* The fakes keep freed memory to find its use. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn.so\nleak:libcuda.so\n";
}

enum {
    T = 4,
    N = 3,
    I = 3,
    H = 5,
    WEIGHTS = 4 * H * (I + H + 2),
    WORKERS = 9,
    STEPPERS = 2,
    CALLS = 40
};
enum { X_NBYTES = T * N * I * 4, Y_NBYTES = T * N * H * 4 };

static float weights[WEIGHTS], x[T * N * I];
static const int64_t random_lengths[N] = {1, 4, 2}, equal[N] = {3, 3, 3};

static rnl_gpu_rnn *new_rnn(rnl_error *err)
{
    const rnl_spec spec = rnl_spec_default(RNL_LSTM, I, H);
    rnl_gpu_rnn *rnn = NULL;
    return rnl_gpu_rnn_new(&spec, weights, NULL, &rnn, err) ? NULL : rnn;
}

/* Calls of every kind: on the host or the device, in a stream, with lengths, batch-first, with a
 * workspace, which does not wait, and another stream that does. */
enum { NO_WORKSPACE, WORKSPACE, TOO_SMALL };
typedef struct kind {
    int on_host, batch_first;
    const int64_t *lengths;
    void *stream, *then;
    int workspace;
} kind;

static const kind kinds[] = {
    {1, 0, NULL, NULL, NULL, NO_WORKSPACE},
    {0, 0, NULL, NULL, NULL, NO_WORKSPACE},
    {0, 1, random_lengths, (void *)2, NULL, NO_WORKSPACE},
    {1, 1, NULL, NULL, NULL, NO_WORKSPACE},
    {1, 0, random_lengths, NULL, NULL, NO_WORKSPACE},
    {0, 0, equal, (void *)2, (void *)1, WORKSPACE},
    {0, 0, NULL, NULL, NULL, TOO_SMALL},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct arrays {
    rnl_cu_address x, y, workspace;
} arrays;
enum { WORK_NBYTES = 1 << 16 };

static arrays new_arrays(void)
{
    const arrays made = {fake_alloc(X_NBYTES), fake_alloc(Y_NBYTES), fake_alloc(WORK_NBYTES)};
    fake_write(made.x, x, X_NBYTES);
    return made;
}

static rnl_status call(rnl_gpu_rnn *rnn, const kind *k, const arrays *a, float *y, rnl_error *err)
{
    rnl_gpu_call given = {.T = T,
                          .N = N,
                          .on_host = k->on_host,
                          .batch_first = k->batch_first,
                          .lengths = k->lengths,
                          .stream = k->stream,
                          .then = k->then,
                          .x = k->on_host ? (void *)x : (void *)(uintptr_t)a->x,
                          .y = k->on_host ? (void *)y : (void *)(uintptr_t)a->y};
    int64_t nbytes = 0;
    rnl_status status = RNL_OK;
    if (k->workspace) {
        status = rnl_gpu_rnn_workspace(rnn, &given, &nbytes, err);
        if (nbytes > WORK_NBYTES) /* threads do not count checks */
            return RNL_E_NOMEM;
        const rnl_cu_address end = a->workspace +
                                   WORK_NBYTES; /* of its block: using more is refused */
        given.workspace_nbytes = nbytes - (k->workspace == TOO_SMALL ? 256 : 0);
        given.workspace = (void *)(uintptr_t)(end - (rnl_cu_address)given.workspace_nbytes);
    }
    if (!status)
        status = rnl_gpu_rnn_run(rnn, &given, err);
    if (k->workspace)
        fake_free(fake_alloc(4)); /* which waits for all work */
    if (!status && !k->on_host)
        fake_read(a->y, y, Y_NBYTES);
    return status;
}

/* Make a stepper and run all steps of x twice from zeros, the second time step by step. */
static rnl_status step(rnl_gpu_rnn *rnn, float *y, rnl_error *err)
{
    rnl_gpu_stepper *stepper = NULL;
    float h[H], c[H], at_once[T * H];
    rnl_status status = rnl_gpu_stepper_new(rnn, &stepper, err);
    if (!status)
        status = rnl_gpu_stepper_run(stepper, x, at_once, T, err);
    if (!status)
        status = rnl_gpu_stepper_get(stepper, h, c, err);
    if (!status)
        status = rnl_gpu_stepper_set(stepper, NULL, NULL, err);
    for (int t = 0; t < T && !status; t++)
        status = rnl_gpu_stepper_run(stepper, x + (ptrdiff_t)t * I, y + (ptrdiff_t)t * H, 1, err);
    if (!status && memcmp(y, at_once, sizeof at_once))
        status = rnl_fail(err, RNL_E_CUDNN, "the results of single steps differ");
    fake_fail(0, 0, 0); /* nothing is freed if a context cannot be made current */
    rnl_gpu_stepper_free(stepper);
    return status;
}

/* ---- threads ---- */

typedef struct worker {
    pthread_t thread;
    rnl_gpu_rnn *rnn;
    const kind *kind; /* NULL: a stepper */
    arrays at;
    float right[T * N * H];
    int done;
} worker;

static void *work(void *arg)
{
    worker *const w = arg;
    float y[T * N * H];
    rnl_error err;
    memcpy(y, w->right, sizeof y);
    for (int k = 0; k < CALLS; k++)
        w->done += !(w->kind ? call(w->rnn, w->kind, &w->at, y, &err) : step(w->rnn, y, &err)) &&
                   !memcmp(y, w->right, sizeof y);
    return NULL;
}

static void check_threads(void)
{
    static worker workers[WORKERS];
    rnl_error err = {.text = ""};
    setenv("FAKE_CUDNN_LINGER", "100", 1); /* so that two threads meet in a handle */
    rnl_gpu_rnn *rnn = new_rnn(&err);
    CHECK(rnn, "%s", err.text);
    for (int k = 0; k < WORKERS; k++) {
        worker *const w = &workers[k];
        *w = (worker){
            .rnn = rnn, .kind = k < STEPPERS ? NULL : &kinds[k % KINDS], .at = new_arrays()};
        CHECK(!(w->kind ? call(rnn, w->kind, &w->at, w->right, &err) : step(rnn, w->right, &err)),
              "%s", err.text);
    }
    for (int k = 0; k < WORKERS; k++)
        CHECK(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0, "thread %d", k);
    for (int k = 0; k < CALLS; k++) {
        rnl_gpu_rnn *const other = new_rnn(&err);
        CHECK(other, "made beside calls: %s", err.text);
        rnl_gpu_rnn_free(other);
    }
    for (int k = 0; k < WORKERS; k++) {
        pthread_join(workers[k].thread, NULL);
        CHECK(workers[k].done == CALLS, "thread %d: %d right", k, workers[k].done);
    }
    unsetenv("FAKE_CUDNN_LINGER");
    CHECK(fake_live("handle") <= 4, "%ld lanes", fake_live("handle"));
    rnl_gpu_rnn_free(rnn);
}

/* ---- failures ---- */

/* Do all that can be done with an RNN, up to the first failure. A call that failed works again. */
static rnl_status whole_life(const arrays *a, rnl_error *err)
{
    float y[T * N * H];
    void *memory = NULL;
    rnl_gpu_rnn *const rnn = new_rnn(err);
    rnl_status status = rnn ? RNL_OK : err->status;
    for (int k = 0; k < KINDS && !status; k++) {
        status = call(rnn, &kinds[k], a, y, err);
        if (!status)
            continue;
        rnl_error again = {.text = ""};
        fake_fail(0, 0, 0);
        CHECK(!call(rnn, &kinds[k], a, y, &again), "after a failure: %s", again.text);
    }
    for (int k = 0; k < 2 && !status; k++) /* the first update makes what later ones use */
        if (!(status = rnl_gpu_rnn_update(rnn, weights, NULL, err)))
            status = call(rnn, &kinds[1], a, y, err);
    if (!status)
        status = step(rnn, y, err);
    if (!status)
        status = rnl_gpu_alloc(0, 64, &memory, err);
    fake_fail(0, 0, 0); /* nothing is freed if a context cannot be made current */
    rnl_gpu_free(0, memory);
    rnl_gpu_rnn_free(rnn);
    return status;
}

static void check_failures(void)
{
    static const int statuses[3][2] = {{1, 5000}, {2, 4004}, {999, 3000}};
    const arrays a = new_arrays();
    rnl_error err = {.text = ""};
    const long before = fake_calls();
    CHECK(!whole_life(&a, &err), "%s", err.text);
    const long all = fake_calls() - before, memory = fake_live("memory");
    int fails = 0;
    for (long k = 1; k <= all; k++) {
        fake_fail(k, statuses[k % 3][0], statuses[k % 3][1]);
        err = (rnl_error){RNL_OK, "", NULL, 0};
        const rnl_status status = whole_life(&a, &err);
        fails += status != RNL_OK;
        CHECK(status == RNL_OK || strlen(err.text) > 30, "call %ld: %s", k, err.text);
        CHECK(status != RNL_E_CUDNN || (err.call && err.number), "call %ld: %s", k, err.text);
        for (const char *const *of = (const char *const[]){"pushed", "pinned", "event", "rnn",
                                                           "rnn_data", "tensor", NULL};
             *of; of++)
            CHECK(fake_live(*of) == 0, "call %ld: %ld %s", k, fake_live(*of), *of);
        CHECK(fake_live("memory") == memory, "call %ld: %ld blocks", k, fake_live("memory"));
    }
    /* Half of the calls that enter and leave a context, and what is freed, cannot fail a call. */
    CHECK(all > 100 && fails > all * 2 / 5, "%d of %ld calls failed", fails, all);
}

int main(void)
{
    rnl_error err;
    for (int k = 0; k < WEIGHTS; k++)
        weights[k] = (float)(random_below(200) - 100) / 400;
    for (int k = 0; k < T * N * I; k++)
        x[k] = (float)(random_below(200) - 100) / 100;
    CHECK(!rnl_cudnn_open(FAKES "/cudnn9/libcudnn.so.9", &err), "%s", err.text);
    check_threads();
    check_failures();
    return check_end();
}
