/* Calls that fail, run out of memory or are interrupted leave nothing behind. */
#include <stdlib.h>
#include <string.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

/* Do everything that can be done with an RNN; return the first status that is not RNL_OK. A call
 * that failed is repeated and must succeed. */
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
        sync_all(); /* work submitted before the failure still runs */
        run_and_compare(rnn, p, k % WAYS, call.stream, "after a failure");
    }
    if (status == RNL_OK)
        status = rnl_gpu_rnn_weights(rnn, back, err);
    if (status == RNL_OK)
        status = rnl_gpu_alloc(0, 64, NULL, &memory, err);
    if (status == RNL_OK)
        status = rnl_gpu_order(0, NULL, (void *)2, err);
    if (status == RNL_OK)
        status = rnl_gpu_copy_out(0, (void *)(uintptr_t)p->device[X], back, 8, NULL, err);
    *went = status == RNL_OK;
    fake.fail(0, 0, 0); /* nothing is freed if a context cannot be made current */
    rnl_gpu_free(0, memory);
    rnl_gpu_rnn_free(rnn);
    return status;
}

/* Each of these calls fails once, in turn for lack of memory or for another reason. */
void check_failures(void)
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
        /* 1: the driver's result for unknown memory too */
        CHECK(status == RNL_OK || status == RNL_E_CUDNN || (cu == 2 && status == RNL_E_NOMEM) ||
                  (cu == 1 && status == RNL_E_LAYOUT),
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

void check_sticky(void)
{
    const int newest = use_cudnn() > 90000, error = atoi(getenv("STICKY"));
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p), *unused = NULL;
    rnl_error err;
    const rnl_gpu_call call = call_of(p, ON_DEVICE, NULL);
    run_and_compare(rnn, p, ON_DEVICE, NULL, "before the error");
    fake.fail(4, error, newest ? 5000 : 8);
    refuse(rnn, &call, RNL_E_CUDNN, "restart the process");
    refuse(rnn, &call, RNL_E_CUDNN, "cannot be used by this process any more");
    CHECK(rnl_gpu_rnn_new(&p->spec, p->weights, NULL, &unused, &err) == RNL_E_CUDNN &&
              err.number == error && !unused,
          "%s", err.text);
    const long before = fake.calls();
    rnl_gpu_rnn_free(rnn);
    CHECK(fake.calls() == before, "%ld calls", fake.calls() - before);
}

void check_no_memory(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    const rnl_gpu_call call = call_of(p, ON_DEVICE, NULL);
    void *made = NULL;
    rnl_error err;
    refuse(rnn, &call, RNL_E_NOMEM, "bytes");
    refuse(rnn, &call, RNL_E_NOMEM, "workspace");
    CHECK(rnl_gpu_alloc(0, 1 << 30, NULL, &made, &err) == RNL_E_NOMEM &&
              strstr(err.text, "1024.0 MiB"),
          "%s", err.text);
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("no memory");
}

static int stop_at_third(void *arg)
{
    return ++*(int *)arg >= 3;
}

void check_poll(void)
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
