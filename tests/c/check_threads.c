/* Can threads use the library at the same time? All call everything at once, including the first
 * use of the kernels, and share one plan. Meant for ThreadSanitizer; results are checked anyway. */
#include <pthread.h>
#include <stdlib.h>

#include "layouts.h"

enum { NUM_THREADS = 8, TURNS = 60, MAX_NELEMS = 4096 };

static pthread_barrier_t start;
static rnl_plan *shared;
static rnl_layout torch, cudnn, keras;
static rnl_spec spec;
static int64_t nelems, num_tensors;
static float weights[MAX_NELEMS];
static const void *sources[64];

/* The results of a thread; CHECK() can be used by one thread only. */
typedef struct worker {
    pthread_t thread;
    const char *tier;
    long done, wrong;
    float result[MAX_NELEMS];
} worker;

static void expect(worker *self, int holds)
{
    self->done++;
    self->wrong += !holds;
}

static void look_up(worker *self)
{
    rnl_error err;
    rnl_layout layout;
    rnl_row_info row;
    rnl_tensor tensor;
    rnl_view view;
    int value;
    int64_t n;
    const rnl_block block = rnl_block_at(&spec, 5);
    expect(self, !rnl_layout_named("concat", &layout, &err));
    expect(self, !rnl_layout_set(&layout, "z", "candidate", &err));
    expect(self, rnl_layout_named("nothing", &layout, &err) == RNL_E_LAYOUT);
    expect(self, !rnl_parse(RNL_NAMES_CELL, "gru", &value, &err) && value == RNL_GRU);
    expect(self, !rnl_row_at(0, &row, &err) && strcmp(row.layout, "cudnn") == 0);
    expect(self, !rnl_layout_num_tensors(&keras, &spec, RNL_HAS_BIAS, &n, &err) && n == 12);
    expect(self, !rnl_layout_tensor(&keras, &spec, RNL_HAS_BIAS, 11, &tensor, &err));
    expect(self, !rnl_layout_locate(&keras, &spec, RNL_HAS_BIAS, &block, &view, &err));
}

static void convert(worker *self)
{
    static const rnl_run_options dry = {.dry_run = 1};
    void *const dst[] = {self->result};
    rnl_error err;
    rnl_report report;
    rnl_plan *own;
    expect(self,
           !rnl_plan_run(shared, RNL_FLOAT32, sources, RNL_FLOAT32, dst, NULL, &report, &err));
    expect(self, !rnl_plan_run(shared, RNL_FLOAT32, sources, RNL_FLOAT16, NULL, &dry, NULL, &err));
    expect(self, rnl_plan_num_ops(shared) <= rnl_plan_num_steps(shared));
    expect(self, rnl_plan_step(shared, 0)->op == RNL_OP_MOVE);
    expect(self, !rnl_plan_new(&spec, &keras, RNL_HAS_BIAS, &torch, &own, &err));
    rnl_plan_free(own);
}

static void *work(void *arg)
{
    worker *const self = arg;
    pthread_barrier_wait(&start);
    self->tier = rnl_cpu_tier(); /* the first use for all of them */
    for (int turn = 0; turn < TURNS; turn++) {
        look_up(self);
        convert(self);
    }
    return NULL;
}

static void prepare(void)
{
    rnl_error err;
    rnl_tensor tensor;
    CHECK(!rnl_layout_named("torch", &torch, &err), "%s", err.text);
    CHECK(!rnl_layout_named("cudnn", &cudnn, &err), "%s", err.text);
    CHECK(!rnl_layout_named("keras", &keras, &err), "%s", err.text);
    spec = rnl_spec_default(RNL_GRU, 5, 7);
    spec.num_layers = 2;
    spec.bidirectional = 1;
    for (int k = 0; k < MAX_NELEMS; k++)
        weights[k] = (float)(random_below(4096) - 2000) / 64;
    CHECK(!rnl_layout_num_tensors(&torch, &spec, RNL_HAS_BIAS, &num_tensors, &err), "%s", err.text);
    for (int64_t k = 0; k < num_tensors; k++) {
        CHECK(!rnl_layout_tensor(&torch, &spec, RNL_HAS_BIAS, k, &tensor, &err), "%s", err.text);
        sources[k] = weights + nelems;
        nelems += tensor.nelems;
    }
    CHECK(nelems < MAX_NELEMS, "%" PRId64, nelems);
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, &shared, &err), "%s", err.text);
}

int main(void)
{
    static worker workers[NUM_THREADS], alone;
    prepare();
    pthread_barrier_init(&start, NULL, NUM_THREADS);
    for (int k = 0; k < NUM_THREADS; k++)
        if (pthread_create(&workers[k].thread, NULL, work, &workers[k]))
            abort();
    for (int k = 0; k < NUM_THREADS; k++) {
        pthread_join(workers[k].thread, NULL);
        CHECK(workers[k].tier == workers[0].tier, "%s, %s", workers[k].tier, workers[0].tier);
        CHECK(!memcmp(workers[k].result, workers[0].result, sizeof workers[0].result), "%d", k);
        check_passed += workers[k].done - workers[k].wrong;
        check_failed += workers[k].wrong;
    }
    convert(&alone);
    CHECK(!memcmp(alone.result, workers[0].result, sizeof alone.result), "%s", "alone");
    pthread_barrier_destroy(&start);
    rnl_plan_free(shared);
    return check_end();
}
