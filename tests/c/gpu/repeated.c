/* Repeated calls: how often they call cuDNN and allocate memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

/* Count the lines of the log from `from` on that begin with a prefix; all: all lines. */
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

/* A second call of the same sizes is one call of cuDNN, without an allocation. */
void check_sequences(void)
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

/* Sequences that get longer from call to call: few calls free and allocate memory. */
void check_growth(void)
{
    char log[] = "/tmp/check_gpu_XXXXXX";
    close(mkstemp(log));
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    int all;
    p->has_lengths = 0;
    p->N = 8;
    fake.log(log);
    for (p->T = 1; p->T <= 40; p->T++) {
        fill_arrays(p);
        run_and_compare(rnn, p, ON_HOST, NULL, "longer");
    }
    fake.log(NULL);
    /* for the workspace and for the arrays: once, then at most 17 times, as 1.25^17 > 40 */
    const int allocs = count_lines(log, 0, "cuMemAlloc_v2", &all);
    CHECK(allocs <= 2 * (1 + 17), "40 lengths: %d of memory", allocs);
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("growth");
    unlink(log);
}

/* If a quarter more than before is not available, just the needed size may be: each call of the
 * driver fails once for lack of memory, also those that ask for more. */
void check_tight_growth(void)
{
    enum { OUT_OF_MEMORY = 2, MOST_CALLS = 40 };
    char log[] = "/tmp/check_gpu_XXXXXX";
    close(mkstemp(log));
    use_cudnn();
    problem *p = lstm();
    rnl_error err;
    int allocs[MOST_CALLS] = {0}, more = 0, before, all;
    p->has_lengths = 0;
    p->N = 8;
    for (long k = 0; k < MOST_CALLS; k++) { /* 0: none fails */
        rnl_gpu_rnn *rnn = new_rnn(p);
        p->T = 36;
        fill_arrays(p);
        run_and_compare(rnn, p, ON_HOST, NULL, "shorter");
        p->T = 40;
        fill_arrays(p);
        const rnl_gpu_call call = call_of(p, ON_HOST, NULL);
        fake.log(log);
        count_lines(log, 0, "", &before);
        fake.fail(k, OUT_OF_MEMORY, 0);
        const rnl_status status = rnl_gpu_rnn_run(rnn, &call, &err);
        fake.fail(0, 0, 0);
        fake.log(NULL);
        allocs[k] = count_lines(log, before, "cuMemAlloc_v2", &all);
        more += status == RNL_OK && allocs[k] == allocs[0] + 1;
        sync_all();
        run_and_compare(rnn, p, ON_HOST, NULL, "longer");
        rnl_gpu_rnn_free(rnn);
    }
    CHECK(allocs[0] > 0 && more == allocs[0], "%d of %d asked again", more, allocs[0]);
    check_nothing_left("tight growth");
    unlink(log);
}
