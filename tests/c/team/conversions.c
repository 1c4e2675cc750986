/* The members of a team make the first use of the kernels at once, look up layouts, and share a
 * plan. */
#include <string.h>

#include "check.h"
#include "forward/team.h"
#include "rnnlayout.h"
#include "team/parts.h"

enum { CONVERTERS = 8, NELEMS = 4 * 7 * (5 + 7 + 2) };

static rnl_spec spec;
static rnl_layout torch, cudnn;
static rnl_plan *shared;
static float weights[NELEMS];

typedef struct converter {
    const char *tier;
    int wrong;
    float result[NELEMS];
} converter;

static void convert(void *arg, int k, int members)
{
    converter *const self = (converter *)arg + k;
    const void *const src[] = {weights, weights + 140, weights + 336, weights + 364};
    void *const dst[] = {self->result};
    const rnl_block block = rnl_block_at(&spec, 5);
    (void)members;
    self->tier = rnl_cpu_tier(); /* the first use for all of them */
    for (int turn = 0; turn < 60; turn++) {
        rnl_error err;
        rnl_layout layout;
        rnl_report report;
        rnl_view view;
        rnl_plan *own = NULL;
        self->wrong += rnl_layout_named("concat", &layout, &err) ||
                       rnl_layout_set(&layout, "z", "candidate", &err) ||
                       rnl_layout_named("nothing", &layout, &err) != RNL_E_LAYOUT ||
                       rnl_layout_locate(&cudnn, &spec, RNL_HAS_BIAS, &block, &view, &err) ||
                       rnl_plan_new(&spec, &cudnn, RNL_HAS_BIAS, &torch, RNL_WEIGHTS, &own, &err) ||
                       rnl_plan_run(shared, RNL_FLOAT32, src, RNL_FLOAT32, dst, NULL, &report,
                                    &err);
        rnl_plan_free(own);
    }
}

void check_conversions(void)
{
    static converter converters[CONVERTERS];
    rnl_error err;
    spec = rnl_spec_default(RNL_LSTM, 5, 7);
    for (int k = 0; k < NELEMS; k++)
        weights[k] = (float)random_below(4096);
    CHECK(!rnl_layout_named("torch", &torch, &err), "%s", err.text);
    CHECK(!rnl_layout_named("cudnn", &cudnn, &err), "%s", err.text);
    CHECK(!rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_WEIGHTS, &shared, &err), "%s",
          err.text);
    rnl_set_num_threads(CONVERTERS);
    rnl_team_run(CONVERTERS, convert, converters);
    for (int k = 0; k < CONVERTERS; k++) {
        CHECK(converters[k].tier == rnl_cpu_tier() && !converters[k].wrong, "thread %d", k);
        CHECK(!memcmp(converters[k].result, converters[0].result, sizeof converters[k].result),
              "thread %d", k);
    }
    CHECK(memcmp(converters[0].result, weights, 140 * sizeof *weights) == 0, "the first matrix");
    rnl_plan_free(shared);
    rnl_set_num_threads(5);
}
