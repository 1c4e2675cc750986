/* What does a second call alike do? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

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
