/* Memory for results, and the order of streams. */
#include <stdlib.h>
#include <string.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

static void *new_result(void *stream)
{
    void *memory = NULL;
    rnl_error err;
    CHECK(rnl_gpu_alloc(0, 64, stream, &memory, &err) == RNL_OK, "%s", err.text);
    return memory;
}

/* A call whose y is new memory, read after the call. */
static void run_into_new(rnl_gpu_rnn *rnn, problem *p, void *stream)
{
    rnl_error err;
    char y[MOST];
    rnl_gpu_call call = call_of(p, ON_DEVICE, stream);
    CHECK(rnl_gpu_alloc(0, (int64_t)p->nbytes[Y], stream, &call.y, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_copy_out(0, call.y, y, (int64_t)p->nbytes[Y], stream, &err) == RNL_OK, "%s",
          err.text);
    rnl_gpu_free(0, call.y);
    download(p, ON_DEVICE);
    memcpy(p->got[Y], y, p->nbytes[Y]);
    compare(p, "y in new memory");
}

/* While a stream is captured: nothing new, nothing read; what is dropped is freed. */
static void in_a_capture(void *stream)
{
    rnl_error err;
    void *graph, *refused = NULL, *dropped = new_result(stream);
    char host[64];
    CHECK(fake.begin(stream, 1) == 0, "begin");
    CHECK(rnl_gpu_alloc(0, 64, stream, &refused, &err) == RNL_E_SPEC && !refused &&
              strstr(err.text, "pass all outputs"),
          "%s", err.text);
    CHECK(rnl_gpu_copy_out(0, dropped, host, 64, stream, &err) == RNL_E_SPEC &&
              strstr(err.text, "after the graph has run"),
          "%s", err.text);
    const long before = fake.live("memory");
    rnl_gpu_free(0, dropped);
    CHECK(fake.live("memory") == before - 1, "%ld left", fake.live("memory"));
    CHECK(fake.end(stream, &graph) == 0, "end");
    fake.end_graph(graph);
}

void check_results(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    rnl_error err;
    void *stream, *other, *memory = NULL;
    CHECK(on_cpu(p, &err) == RNL_OK, "%s", err.text);
    upload(p);
    current();
    fake.stream(&stream, 1);
    fake.stream(&other, 1);
    run_into_new(rnn, p, stream);
    in_a_capture(stream);
    rnl_gpu_free(0, new_result(NULL));
    rnl_gpu_free(0, NULL);
    CHECK(rnl_gpu_alloc(0, -1, NULL, &memory, &err) == RNL_E_SPEC, "%s", err.text);
    CHECK(rnl_gpu_alloc(9, 64, NULL, &memory, &err) != RNL_OK && !memory, "GPU 9");
    CHECK(rnl_gpu_copy_out(0, NULL, NULL, 0, NULL, &err) == RNL_OK, "no bytes");
    CHECK(rnl_gpu_order(0, stream, stream, &err) == RNL_OK, "a stream after itself");
    const rnl_gpu_call call = call_of(p, ON_DEVICE, stream), after = call_of(p, ON_DEVICE, other);
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_order(0, stream, other, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_rnn_run(rnn, &after, &err) == RNL_OK, "%s", err.text); /* would be a race */
    fake.sync();
    download(p, ON_DEVICE);
    compare(p, "after another stream");
    fake.end_stream(stream);
    fake.end_stream(other);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("results");
}
