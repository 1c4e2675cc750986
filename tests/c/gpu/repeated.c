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

/* Counted over one call, by the beginning of their names. */
typedef struct counts {
    int forward, dnn, takes, gives, others;
} counts;

static counts count_calls(rnl_gpu_rnn *rnn, problem *p, void *stream, const char *log)
{
    int before, all;
    fake.log(log);
    count_lines(log, 0, "", &before);
    run_and_compare(rnn, p, ON_DEVICE, stream, "again");
    fake.log(NULL);
    return (counts){
        count_lines(log, before, "cudnnRNNForward", &all), count_lines(log, before, "cudnn", &all),
        count_lines(log, before, "cuMemAllocFromPoolAsync", &all),
        count_lines(log, before, "cuMemFreeAsync", &all),
        count_lines(log, before, "cuMem", &all) + count_lines(log, before, "cuStream", &all) +
            count_lines(log, before, "cuEvent", &all)};
}

/* A second call of the same sizes is one call of cuDNN. Its memory comes from the pool and goes
 * back to it, and nothing is waited for, in whichever stream. */
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
            const counts c = count_calls(rnn, p, streams[s], log);
            CHECK(c.dnn == 1 && c.forward == 1, "lengths %d: %d calls of cuDNN", kind, c.dnn);
            CHECK(c.takes == 1 && c.gives == 1, "lengths %d: %d, %d", kind, c.takes, c.gives);
            /* asks whether the stream is captured; zeroes y past a shorter T */
            CHECK(c.others == 3 + (kind == EQUAL), "lengths %d: %d others", kind, c.others);
        }
    set_lengths(p, ZEROS);
    CHECK(count_calls(rnn, p, NULL, log).dnn == 0, "all zero: cuDNN was called");
    for (int64_t N = 1; N < 80; N++) { /* more shapes than are noted */
        p->has_lengths = 0;
        p->T = 1 + N % 20;
        p->N = 1 + N % 8;
        p->batch_first = (int)(N % 2);
        fill_arrays(p);
        run_and_compare(rnn, p, ON_DEVICE, NULL, "many shapes");
    }
    CHECK(fake.live("rnn_data") == 2, "%ld", fake.live("rnn_data"));
    current();
    fake.end_stream(streams[2]);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("sequences");
    unlink(log);
}

/* The pool of the calls' memory keeps it, and is emptied when the last RNN is freed. */
void check_pool(void)
{
    char log[] = "/tmp/check_gpu_XXXXXX";
    int all;
    close(mkstemp(log));
    use_cudnn();
    fake.log(log);
    problem *p = lstm();
    rnl_gpu_rnn *first = new_rnn(p), *last = new_rnn(p);
    run_and_compare(first, p, ON_HOST, NULL, "a call");
    rnl_gpu_rnn_free(first);
    CHECK(count_lines(log, 0, "cuMemPoolTrimTo", &all) == 0, "emptied while it is used");
    rnl_gpu_rnn_free(last);
    rnl_gpu_rnn_free(new_rnn(p));
    fake.log(NULL);
    CHECK(count_lines(log, 0, "cuMemPoolTrimTo", &all) == 2, "not emptied");
    CHECK(count_lines(log, 0, "cuMemPoolCreate", &all) == 1, "more than one pool");
    CHECK(count_lines(log, 0, "cuMemAlloc_v2", &all) == 3, "more than the weights");
    unlink(log);
}
