/* Can threads use the library at the same time? All make the first use of the kernels at once, look
 * up layouts, and share a plan. Meant for ThreadSanitizer; results are checked anyway. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "rnnlayout.h"

enum { NUM_THREADS = 8, TURNS = 60, NELEMS = 4 * 7 * (5 + 7 + 2) };

static pthread_barrier_t start;
static rnl_spec spec;
static rnl_layout torch, cudnn;
static rnl_plan *shared;
static float weights[NELEMS];

/* CHECK() can be used by one thread only. */
typedef struct worker {
    pthread_t thread;
    const char *tier;
    int wrong;
    float result[NELEMS];
} worker;

static void convert(worker *self)
{
    const void *const src[] = {weights, weights + 140, weights + 336, weights + 364};
    void *const dst[] = {self->result};
    const rnl_block block = rnl_block_at(&spec, 5);
    rnl_error err;
    rnl_layout layout;
    rnl_report report;
    rnl_view view;
    rnl_plan *own = NULL;
    self->wrong += rnl_layout_named("concat", &layout, &err) ||
                   rnl_layout_set(&layout, "z", "candidate", &err) ||
                   rnl_layout_named("nothing", &layout, &err) != RNL_E_LAYOUT ||
                   rnl_layout_locate(&cudnn, &spec, RNL_HAS_BIAS, &block, &view, &err) ||
                   rnl_plan_new(&spec, &cudnn, RNL_HAS_BIAS, &torch, &own, &err) ||
                   rnl_plan_run(shared, RNL_FLOAT32, src, RNL_FLOAT32, dst, NULL, &report, &err);
    rnl_plan_free(own);
}

static void *work(void *arg)
{
    worker *const self = arg;
    pthread_barrier_wait(&start);
    self->tier = rnl_cpu_tier(); /* the first use for all of them */
    for (int turn = 0; turn < TURNS; turn++)
        convert(self);
    return NULL;
}

int main(void)
{
    static worker workers[NUM_THREADS], alone;
    rnl_error err;
    spec = rnl_spec_default(RNL_LSTM, 5, 7);
    for (int k = 0; k < NELEMS; k++)
        weights[k] = (float)random_below(4096);
    CHECK(!rnl_layout_named("torch", &torch, &err), "%s", err.text);
    CHECK(!rnl_layout_named("cudnn", &cudnn, &err), "%s", err.text);
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, &shared, &err), "%s", err.text);
    pthread_barrier_init(&start, NULL, NUM_THREADS);
    for (int k = 0; k < NUM_THREADS; k++)
        if (pthread_create(&workers[k].thread, NULL, work, &workers[k]))
            abort();
    for (int k = 0; k < NUM_THREADS; k++)
        pthread_join(workers[k].thread, NULL);
    convert(&alone);
    for (int k = 0; k < NUM_THREADS; k++) {
        CHECK(workers[k].tier == rnl_cpu_tier() && !workers[k].wrong, "%d", workers[k].wrong);
        for (int j = 0; j < NELEMS; j++)
            CHECK(workers[k].result[j] == alone.result[j], "thread %d, element %d", k, j);
    }
    pthread_barrier_destroy(&start);
    rnl_plan_free(shared);
    return check_end();
}
