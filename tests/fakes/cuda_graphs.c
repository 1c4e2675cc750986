/*
 * Capture of one stream into a graph, and its launch.
 *
 * Work in a capturing stream is kept with its arguments and done again at each launch. A capture
 * that forks to another stream is not modelled.
 */
#include "cuda_streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fake_capture {
    struct fake_object object; /* as a graph it is alive from the end of the capture on */
    struct fake_capture *next; /* of the captures in progress */
    CUstream stream;
    pthread_t thread;
    int mode, broken, count, room;
    struct fake_work *work;
};

static struct fake_capture *in_progress;

void fake_capture_work(struct fake_capture *capture, const struct fake_work *work)
{
    if (capture->count == capture->room) {
        capture->room = 2 * capture->room + 8;
        capture->work = realloc(capture->work, (size_t)capture->room * sizeof *work);
    }
    capture->work[capture->count++] = *work;
}

void fake_capture_breaks(struct fake_capture *capture)
{
    capture->broken = 1;
}

/* The thread's capture mode: which captures forbid it unsafe calls. */
static _Thread_local int thread_mode = CAPTURE_GLOBAL;

void fake_refuse_in_capture(const char *call)
{
    for (struct fake_capture *c = in_progress; c; c = c->next) {
        int is_mine = pthread_equal(c->thread, pthread_self());
        int mode = (int)c->mode;
        if (is_mine ? mode != CAPTURE_RELAXED && thread_mode != CAPTURE_RELAXED
                    : mode == CAPTURE_GLOBAL && thread_mode == CAPTURE_GLOBAL)
            fake_die("%s during a capture", call);
    }
}

void fake_refuse_beside_capture(const char *call)
{
    if (in_progress)
        fake_die("%s waits for the device, which breaks every capture", call);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    DRIVER_CALL("mode=%d", (int)*mode);
    const int before = thread_mode;
    thread_mode = (int)*mode;
    *mode = (CUstreamCaptureMode)before;
    return CU_OK;
}

CUresult cuStreamBeginCapture_v2(CUstream given, CUstreamCaptureMode mode)
{
    DRIVER_CALL("stream=%p mode=%d", (void *)given, (int)mode);
    struct stream *stream = fake_stream(given, __func__);
    if (stream->is_legacy || stream->capture)
        return CU_CAPTURE_UNSUPPORTED;
    struct fake_capture *made = fake_new(FAKE_GRAPH, sizeof *made);
    fake_count(FAKE_GRAPH, -1); /* until it is ended */
    made->stream = given;
    made->thread = pthread_self();
    made->mode = (int)mode;
    made->next = in_progress;
    in_progress = stream->capture = made;
    return CU_OK;
}

CUresult cuStreamEndCapture(CUstream given, CUgraph *graph)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "stream=%p", (void *)given);
    struct stream *stream = fake_stream(given, __func__);
    struct fake_capture *capture = stream->capture;
    *graph = NULL;
    if (!capture)
        return status ? status : CU_INVALID_VALUE;
    if (capture->mode != CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        fake_die("cuStreamEndCapture: another thread began the capture");
    stream->capture = NULL;
    struct fake_capture **at = &in_progress;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    if (status || capture->broken)
        return status ? status : CU_CAPTURE_INVALIDATED;
    fake_count(FAKE_GRAPH, 1);
    *graph = (CUgraph)capture;
    return CU_OK;
}

CUresult cuStreamIsCapturing(CUstream given, CUstreamCaptureStatus *found)
{
    DRIVER_CALL("stream=%p", (void *)given);
    const struct stream *stream = fake_stream(given, __func__);
    if (fake_is_blocked(stream))
        return CU_CAPTURE_IMPLICIT;
    const struct fake_capture *capture = stream->capture;
    *found = !capture ? CAPTURE_NONE : capture->broken ? CAPTURE_BROKEN : CAPTURE_ACTIVE;
    return CU_OK;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "graph=%p", (void *)graph);
    fake_end(fake_object(graph, FAKE_GRAPH, __func__));
    return status;
}

struct graph_exec {
    struct fake_object object;
    int count;
    struct fake_work *work;
};

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    DRIVER_CALL("graph=%p flags=%llu", (void *)graph, flags);
    struct fake_capture *from = fake_object(graph, FAKE_GRAPH, __func__);
    struct graph_exec *exec = fake_new(FAKE_GRAPH_EXEC, sizeof *exec);
    exec->count = from->count;
    exec->work = calloc((size_t)from->count + 1, sizeof *exec->work);
    if (from->count)
        memcpy(exec->work, from->work, (size_t)from->count * sizeof *exec->work);
    *made = (CUgraphExec)exec;
    return CU_OK;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "exec=%p", (void *)exec);
    fake_end(fake_object(exec, FAKE_GRAPH_EXEC, __func__));
    return status;
}

CUresult cuGraphLaunch(CUgraphExec launched, CUstream stream)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "exec=%p stream=%p", (void *)launched,
                                       (void *)stream);
    if (status)
        return status;
    struct graph_exec *exec = fake_object(launched, FAKE_GRAPH_EXEC, __func__);
    for (int i = 0; i < exec->count && !status; i++) {
        if (exec->work[i].check)
            exec->work[i].check(exec->work[i].argument);
        status = fake_submit(stream, &exec->work[i]);
    }
    return status;
}
