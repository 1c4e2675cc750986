/* Does every failed allocation give RNL_E_NOMEM, without a leak? */
#include <stdlib.h>

#include "allocations.h"
#include "layouts.h"

enum { NUM_SPECS = 40, NUM_PAIRS = 200, MAX_TENSORS = 256, MAX_NELEMS = 4096 };

/* The k-th allocation from now on fails. */
static void count_anew(long k)
{
    live = taken = 0;
    fail_at = k;
}

/* ------------------------------------------------------------------------------ the checks -- */

typedef struct pair {
    const rnl_spec *spec;
    const rnl_layout *from, *to;
    unsigned optional;
} pair;

static rnl_status plan_new(const pair *p, rnl_plan **plan, rnl_error *err)
{
    return rnl_plan_new(p->spec, p->from, p->optional, p->to, RNL_WEIGHTS, plan, err);
}

/* Make a plan with the first allocation refused, then the second ..., until it succeeds. */
static rnl_plan *check_each_refusal(const pair *p)
{
    for (long k = 0;; k++) {
        rnl_error err = {.status = RNL_OK};
        rnl_plan *plan = (rnl_plan *)&err; /* to check that it is not changed */
        count_anew(k);
        const rnl_status status = plan_new(p, &plan, &err);
        if (status == RNL_OK) {
            CHECK(taken <= k && k >= 3, "made with allocation %ld of %ld refused", k, taken);
            return plan;
        }
        CHECK(status == RNL_E_NOMEM && err.status == RNL_E_NOMEM, "%d: %s", (int)status, err.text);
        CHECK(plan == (rnl_plan *)&err, "written on error: %s", err.text);
        CHECK(strstr(err.text, "no memory"), "%s", err.text);
        CHECK(live == 0, "%ld blocks left after %s", live, err.text);
    }
}

/* All other functions work without an allocation. */
static void check_needs_none(const pair *p, const rnl_plan *plan)
{
    static double weights[MAX_NELEMS], result[MAX_NELEMS];
    const void *src[MAX_TENSORS];
    void *dst[MAX_TENSORS];
    const rnl_run_options dry = {.dry_run = 1}, exact = {.exact = 1};
    rnl_error err;
    rnl_report report;
    count_anew(0);
    for (int k = 0; k < MAX_TENSORS; k++) {
        src[k] = weights;
        dst[k] = result;
    }
    rnl_plan_run(plan, RNL_FLOAT64, src, RNL_FLOAT64, dst, NULL, &report, &err);
    rnl_plan_run(plan, RNL_FLOAT64, src, RNL_FLOAT16, NULL, &dry, &report, &err);
    CHECK(rnl_plan_run(plan, RNL_FLOAT64, src, RNL_FLOAT16, dst, &exact, NULL, &err) == RNL_E_LOSSY,
          "%s", err.text);
    const int64_t num_blocks = rnl_num_blocks(p->spec);
    for (int64_t k = 0; k < num_blocks; k++) {
        const rnl_block block = rnl_block_at(p->spec, k);
        rnl_view view;
        CHECK(!rnl_layout_locate(p->from, p->spec, p->optional, &block, &view, &err), "%s",
              err.text);
    }
    rnl_tensor tensor;
    CHECK(!rnl_layout_tensor(p->from, p->spec, p->optional, 0, &tensor, &err), "%s", err.text);
    CHECK(taken == 0, "%ld allocations", taken);
}

static void check_pair(const pair *p)
{
    rnl_error err;
    rnl_plan *plan = NULL;
    count_anew(NEVER);
    if (plan_new(p, &plan, &err)) { /* not representable: this must not leak either */
        CHECK(live == 0 && !plan, "%ld blocks left after %s", live, err.text);
        return;
    }
    rnl_plan_free(plan);
    CHECK(live == 0, "%ld blocks left", live);
    plan = check_each_refusal(p);
    const long held = live;
    check_needs_none(p, plan);
    live = held;
    rnl_plan_free(plan);
    CHECK(live == 0 && held > 0, "%ld blocks left", live);
}

/* Run an RNN: only the first call of each size allocates. */
static void check_run(rnl_rnn *rnn, int64_t T)
{
    static const float x[5]; /* all steps of all sequences */
    const rnl_rnn_call call = {.T = T, .N = 3, .dtype = RNL_FLOAT32, .x = x};
    rnl_status status = RNL_E_NOMEM;
    rnl_error err;
    const long before = live;
    for (long k = 0; status; k++) {
        fail_at = taken + k;
        status = rnl_rnn_run(rnn, &call, &err);
        CHECK(status == RNL_OK || (status == RNL_E_NOMEM && strstr(err.text, "no memory")), "%d",
              (int)status);
        CHECK(status == RNL_OK || live <= before, "%ld blocks left", live - before);
    }
    fail_at = NEVER;
    const long now = taken;
    CHECK(!rnl_rnn_run(rnn, &call, &err) && taken == now, "%ld allocations", taken - now);
}

/* The memory of a large call is freed when it returns. That of smaller calls is kept meanwhile. */
static void check_large(rnl_rnn *rnn)
{
    enum { N = 1000, LARGE = 200, SMALL = 2 }; /* 2 H floats per step and sequence: 6.4 MB */
    static const float x[5];
    rnl_rnn_call call = {.N = N, .dtype = RNL_FLOAT32, .x = x};
    rnl_error err = {.status = RNL_OK};
    call.T = SMALL;
    CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
    const long before = live;
    for (int turn = 0; turn < 3; turn++) {
        const long now = taken;
        call.T = LARGE;
        CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
        CHECK(live == before && taken == now + 1, "%ld blocks left", live - before);
        call.T = SMALL;
        CHECK(!rnl_rnn_run(rnn, &call, &err), "%s", err.text);
        CHECK(live == before && taken == now + 1, "%ld allocations", taken - now);
    }
    fail_at = taken;
    call.T = LARGE;
    CHECK(rnl_rnn_run(rnn, &call, &err) == RNL_E_NOMEM && live == before, "%s", err.text);
    fail_at = NEVER;
}

/* Make and run an RNN with each allocation refused in turn, until nothing is refused. One that
 * borrows its weights packs them in its first call that is worth it. */
static void check_rnn(rnl_rnn_options options)
{
    static const float weights[1000], x[5];
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 5, 4);
    spec.num_layers = 2;
    spec.bidirectional = 1;
    const rnl_rnn_call call = {.T = 2, .N = 1, .dtype = RNL_FLOAT32, .x = x};
    rnl_error err;
    rnl_rnn *rnn = NULL;
    rnl_status status = RNL_E_NOMEM;
    for (long k = 0; status; k++) {
        count_anew(k);
        status = rnl_rnn_new(&spec, weights, &options, &rnn, &err);
        CHECK(!status || !rnn, "%s", err.text);
        if (!status)
            status = rnl_rnn_run(rnn, &call, &err);
        rnl_rnn_free(rnn);
        rnn = NULL;
        CHECK(live == 0, "%ld blocks left", live);
        CHECK(status ? status == RNL_E_NOMEM : k == 4, "allocation %ld refused: %d", k, status);
    }
    count_anew(NEVER);
    CHECK(!rnl_rnn_new(&spec, weights, NULL, &rnn, &err), "%s", err.text);
    check_run(rnn, 2);
    check_run(rnn, 8);
    check_large(rnn);
    rnl_rnn_free(rnn);
}

int main(void)
{
    const layouts known = layouts_all();
    for (int turn = 0; turn < NUM_SPECS; turn++) {
        rnl_spec spec = rnl_spec_default((rnl_cell)(turn % 4), 1 + random_below(4),
                                         2 + random_below(4));
        spec.num_layers = 1 + random_below(3);
        spec.bidirectional = (int)random_below(2);
        spec.bias = (rnl_bias)random_below(4);
        spec.proj_size = spec.cell == RNL_LSTM ? random_below(2) : 0;
        spec.peepholes = spec.cell == RNL_LSTM && random_below(4) == 0;
        spec.reset = spec.cell == RNL_GRU ? (rnl_reset)random_below(2) : RNL_RESET_AFTER;
        for (int k = 0; k < NUM_PAIRS; k++) {
            const rnl_layout *const from = &known.all[random_below(known.n)];
            const rnl_layout *const to = &known.all[random_below(known.n)];
            check_pair(&(pair){&spec, from, to, (unsigned)random_below(4)});
        }
    }
    rnl_plan_free(NULL);
    fail_at = NEVER;
    rnl_set_num_threads(1);
    check_rnn((rnl_rnn_options){.borrows = 0});
    check_rnn((rnl_rnn_options){.borrows = 1});
    fail_at = NEVER; /* what runs at exit, gcov for example, needs memory */
    return check_end();
}
