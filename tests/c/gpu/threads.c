/* Many threads with one RNN, and a forked child with its parent's RNN. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

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

void check_threads(void)
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

void check_fork(void)
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
        CHECK(rnl_gpu_alloc(0, 8, NULL, &memory, &err) == RNL_E_NO_CUDNN, "%s", err.text);
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
