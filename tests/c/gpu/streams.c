/* Calls in a stream that is captured or destroyed. */
#include <string.h>

#include "gpu/fakes.h"
#include "gpu/parts.h"
#include "gpu/problem.h"

/* Do what is allowed with other memory and streams while a stream is captured. */
static void beside_a_capture(rnl_gpu_rnn *ends, void *memory, void *stream)
{
    rnl_error err;
    int mode = 0; /* a thread's default */
    CHECK(rnl_gpu_order(0, NULL, stream, &err) == RNL_OK, "%s", err.text);
    CHECK(rnl_gpu_order(0, stream, NULL, &err) == RNL_OK, "%s", err.text);
    rnl_gpu_free(0, memory);
    rnl_gpu_rnn_free(ends);
    CHECK(fake.exchange(&mode) == 0 && mode == 0, "the mode is left at %d", mode);
}

void check_capture(void)
{
    use_cudnn();
    problem *p = lstm();
    void *memory;
    rnl_gpu_rnn *rnn = new_rnn(p), *ends = new_rnn(p);
    rnl_error err;
    void *stream, *graph, *exec;
    set_lengths(p, RANDOM);
    fill_arrays(p);
    CHECK(on_cpu(p, &err) == RNL_OK, "%s", err.text);
    upload(p);
    current();
    fake.stream(&stream, 1);
    CHECK(rnl_gpu_alloc(0, 64, NULL, &memory, &err) == RNL_OK, "%s", err.text);
    for (int warm = 0; warm < 2; warm++) {
        const rnl_gpu_call call = call_of(p, ON_DEVICE, stream);
        CHECK(fake.begin(stream, 1) == 0, "begin");
        if (!warm)
            refuse(rnn, &call, RNL_E_SPEC, "before the capture");
        else
            CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
        if (warm)
            beside_a_capture(ends, memory, stream);
        CHECK(fake.end(stream, &graph) == 0, "end");
        if (!warm) {
            fake.end_graph(graph);
            CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
            fake.sync();
        }
    }
    CHECK(fake.instantiate(&exec, graph, 0) == 0, "instantiate");
    problem *other = lstm(); /* with other lengths: the graph keeps its lengths */
    memcpy(other->weights, p->weights, MOST);
    set_lengths(other, WITH_ZERO);
    fill_arrays(other);
    not_current();
    run_and_compare(rnn, other, ON_DEVICE, NULL, "beside a graph");
    run_and_compare(rnn, other, ON_DEVICE, stream, "beside a graph, on its stream");
    upload(p);
    current();
    CHECK(fake.launch(exec, stream) == 0, "launch");
    const rnl_gpu_call beside = call_of(other, ON_DEVICE, NULL);
    CHECK(rnl_gpu_rnn_run(rnn, &beside, &err) == RNL_OK, "%s", err.text); /* would be a race */
    fake.sync();
    download(p, ON_DEVICE);
    compare(p, "a graph");
    fake.end_exec(exec);
    fake.end_graph(graph);
    fake.end_stream(stream);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("a capture");
}

/* Capture one call into a graph. */
static void *graph_of(rnl_gpu_rnn *rnn, problem *p, void *stream)
{
    rnl_error err;
    void *graph, *exec;
    const rnl_gpu_call call = call_of(p, ON_DEVICE, stream);
    CHECK(fake.begin(stream, 1) == 0, "begin");
    CHECK(rnl_gpu_rnn_run(rnn, &call, &err) == RNL_OK, "%s", err.text);
    CHECK(fake.end(stream, &graph) == 0, "end");
    CHECK(fake.instantiate(&exec, graph, 0) == 0, "instantiate");
    fake.end_graph(graph);
    return exec;
}

/* Each graph of an RNN has memory of its own: nothing orders two launches. */
void check_graphs(void)
{
    use_cudnn();
    problem *two[2] = {lstm(), lstm()};
    rnl_gpu_rnn *rnn = new_rnn(two[0]);
    void *streams[2], *execs[2];
    rnl_error err;
    memcpy(two[1]->weights, two[0]->weights, MOST);
    run_and_compare(rnn, two[0], ON_DEVICE, NULL, "before the captures");
    current();
    for (int k = 0; k < 2; k++) {
        CHECK(on_cpu(two[k], &err) == RNL_OK, "%s", err.text);
        upload(two[k]);
        fake.stream(&streams[k], 1);
        execs[k] = graph_of(rnn, two[k], streams[k]);
    }
    for (int launch = 0; launch < 4; launch++)
        CHECK(fake.launch(execs[launch % 2], streams[launch % 2]) == 0, "launch");
    fake.sync();
    for (int k = 0; k < 2; k++) {
        download(two[k], ON_DEVICE);
        compare(two[k], "two graphs");
        fake.end_exec(execs[k]);
        fake.end_stream(streams[k]);
    }
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("graphs");
}

/* Beside the capture of a stream that waits for the legacy default stream, that one is refused. */
void check_blocked(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    void *stream, *graph;
    current();
    fake.stream(&stream, 0);
    const rnl_gpu_call call = call_of(p, ON_DEVICE, NULL);
    CHECK(fake.begin(stream, 1) == 0, "begin");
    refuse(rnn, &call, RNL_E_SPEC, "the legacy default stream cannot be used");
    CHECK(fake.end(stream, &graph) == 0, "end");
    fake.end_graph(graph);
    fake.end_stream(stream);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("blocked");
}

/* A device without memory pools: calls work, but not in a capture. */
void check_no_pools(void)
{
    use_cudnn();
    problem *p = lstm();
    rnl_gpu_rnn *rnn = new_rnn(p);
    void *stream, *graph;
    for (int way = 0; way < WAYS; way++) {
        fill_arrays(p);
        run_and_compare(rnn, p, way, NULL, "without pools");
    }
    current();
    fake.stream(&stream, 1);
    const rnl_gpu_call call = call_of(p, ON_DEVICE, stream);
    CHECK(fake.begin(stream, 1) == 0, "begin");
    refuse(rnn, &call, RNL_E_SPEC, "has no memory pools");
    CHECK(fake.end(stream, &graph) == 0, "end");
    fake.end_graph(graph);
    fake.end_stream(stream);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("no pools");
}

/* A stream is destroyed before its work is done, and a new one gets the same handle: nothing orders
 * the two. */
void check_streams(void)
{
    use_cudnn();
    problem *one = lstm(), *two = lstm();
    rnl_gpu_rnn *rnn = new_rnn(one);
    void *first, *second;
    rnl_error err;
    memcpy(two->weights, one->weights, MOST);
    CHECK(on_cpu(one, &err) == RNL_OK && on_cpu(two, &err) == RNL_OK, "%s", err.text);
    upload(one);
    upload(two);
    current();
    fake.stream(&first, 1);
    const rnl_gpu_call before = call_of(one, ON_DEVICE, first);
    CHECK(rnl_gpu_rnn_run(rnn, &before, &err) == RNL_OK, "%s", err.text);
    fake.end_stream(first);
    fake.stream(&second, 1);
    CHECK(first == second, "another handle");
    const rnl_gpu_call after = call_of(two, ON_DEVICE, second);
    CHECK(rnl_gpu_rnn_run(rnn, &after, &err) == RNL_OK, "%s", err.text); /* would be a race */
    fake.sync();
    download(one, ON_DEVICE);
    compare(one, "in a stream that is gone");
    download(two, ON_DEVICE);
    compare(two, "in one in its place");
    fake.end_stream(second);
    not_current();
    rnl_gpu_rnn_free(rnn);
    check_nothing_left("streams");
}
