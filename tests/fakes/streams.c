/*
 * Streams, events and captures: what is ordered before what.
 *
 * Work is done as soon as it is submitted. Every stream has a clock: for each stream, the number of
 * the last piece of work that is ordered before the next piece here, by the stream itself, by
 * events, by the legacy stream or by the host. Two pieces that access the same memory without an
 * order between their clocks are a race, whatever the order in which they were done.
 *
 * Work in a capturing stream is kept with its arguments, and done at each launch of the graph. A
 * capture that forks to another stream is not modelled.
 */
#include "fake.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { CAPTURE_GLOBAL, CAPTURE_RELAXED = 2, CAPTURE_ACTIVE = 1 };

struct graph {
    struct fake_object object;
    struct graph *next; /* of the captures in progress */
    pthread_t thread;
    int mode, count;
    struct fake_work *work;
};

struct stream {
    struct fake_object object;
    int index, device, non_blocking, is_legacy;
    struct fake_clock clock;
    uint32_t queried;
    struct graph *capture; /* or NULL */
};

struct event {
    struct fake_object object;
    struct fake_clock clock;
    long pieces;           /* done before it was recorded */
    struct graph *capture; /* where it was recorded, or NULL */
};

static struct stream *streams[FAKE_STREAMS];
static int stream_count;
static struct stream *legacy[FAKE_MAX_DEVICES];
static _Thread_local struct stream *per_thread[FAKE_MAX_DEVICES];
static struct fake_clock host; /* the work that some thread of the host waited for */
static struct graph *in_progress;
static long pieces;

#define PER_THREAD ((rnl_cu_stream)2)
#define LEGACY_TOO ((rnl_cu_stream)1)

static void join(struct fake_clock *into, const struct fake_clock *other)
{
    for (int i = 0; i < stream_count; i++)
        if (into->at[i] < other->at[i])
            into->at[i] = other->at[i];
}

static struct stream *new_stream(int device, int non_blocking)
{
    if (stream_count == FAKE_STREAMS)
        fake_die("more than %d streams in one process", FAKE_STREAMS);
    struct stream *made = fake_new(FAKE_STREAM, sizeof *made);
    made->index = stream_count;
    made->device = device;
    made->non_blocking = non_blocking;
    return streams[stream_count++] = made;
}

static struct stream *stream_of(rnl_cu_stream given, const char *call)
{
    if (given && given != PER_THREAD && given != LEGACY_TOO)
        return fake_object(given, FAKE_STREAM, call);
    const int device = fake_current_device();
    if (device < 0)
        fake_die("%s: on a default stream, but no context is current", call);
    struct stream **found = given == PER_THREAD ? &per_thread[device] : &legacy[device];
    if (!*found) {
        *found = new_stream(device, 0);
        (*found)->is_legacy = given != PER_THREAD;
        fake_count(FAKE_STREAM, -1); /* the caller did not create it */
    }
    return *found;
}

int fake_stream_device(rnl_cu_stream stream)
{
    return stream_of(stream, "the stream")->device;
}

int fake_is_capturing(rnl_cu_stream stream)
{
    return stream_of(stream, "the stream")->capture != NULL;
}

/* The legacy stream waits for all blocking streams of its device, and they for it. */
static void join_implicit(struct stream *stream)
{
    for (int i = 0; i < stream_count; i++) {
        const struct stream *other = streams[i];
        if (other != stream && other->device == stream->device && !stream->non_blocking &&
            !other->non_blocking && (stream->is_legacy || other->is_legacy))
            join(&stream->clock, &other->clock);
    }
}

/* Would it have to wait for a stream whose work is only recorded? */
static int is_blocked(const struct stream *stream)
{
    for (int i = 0; i < stream_count; i++)
        if (stream->is_legacy && streams[i]->capture && !streams[i]->non_blocking &&
            streams[i]->device == stream->device)
            return 1;
    return 0;
}

/* The stream, which may be used now. */
static struct stream *usable(rnl_cu_stream given, const char *call)
{
    struct stream *const stream = stream_of(given, call);
    if (is_blocked(stream))
        fake_die("%s on the legacy stream while a blocking stream is capturing", call);
    return stream;
}

/* ---- work ---- */

void fake_access(struct fake_work *work, rnl_cu_address at, size_t nbytes, int write,
                 const char *what)
{
    for (int i = 0; i < work->accesses; i++) {
        const struct fake_access *other = &work->access[i];
        if ((write || other->write) && at < other->at + other->nbytes && other->at < at + nbytes)
            fake_die("%s: %s overlaps %s", work->name, what, other->what);
    }
    if (nbytes)
        work->access[work->accesses++] = (struct fake_access){at, nbytes, write, what};
}

void fake_submit(rnl_cu_stream given, const struct fake_work *work)
{
    struct stream *const stream = usable(given, work->name);
    struct graph *const graph = stream->capture;
    if (graph) {
        graph->work = realloc(graph->work, (size_t)(graph->count + 1) * sizeof *work);
        graph->work[graph->count++] = *work;
        return;
    }
    join(&stream->clock, &host);
    join_implicit(stream);
    stream->clock.at[stream->index]++;
    for (int i = 0; i < work->accesses; i++)
        fake_touch(&work->access[i], work->name, stream->index, &stream->clock);
    work->run(work);
    pieces++;
}

void fake_wait(rnl_cu_stream given)
{
    struct stream *const stream = usable(given, "a wait");
    if (stream->capture)
        fake_die("a wait for a stream that is capturing");
    join_implicit(stream);
    join(&host, &stream->clock);
}

void fake_wait_for_all(void)
{
    for (int i = 0; i < stream_count; i++)
        join(&host, &streams[i]->clock);
}

void fake_host_access(rnl_cu_address at, size_t nbytes, int write)
{
    const struct fake_access access = {at, nbytes, write, "the memory"};
    if (nbytes)
        fake_touch(&access, "the host", -1, &host);
}

/* ---- the driver's streams ---- */

rnl_cu_result cuStreamCreate(rnl_cu_stream *stream, unsigned flags)
{
    DRIVER_CALL("flags=%u", flags);
    *stream = (rnl_cu_stream)new_stream(fake_current_device(), flags == RNL_CU_STREAM_NON_BLOCKING);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamDestroy_v2(rnl_cu_stream stream);
rnl_cu_result cuStreamDestroy_v2(rnl_cu_stream stream)
{
    LOCKED;
    const int status = fake_driver_call(__func__, "stream=%p", (void *)stream);
    fake_end(stream, FAKE_STREAM, __func__);
    return (rnl_cu_result)status;
}

rnl_cu_result cuStreamSynchronize(rnl_cu_stream stream)
{
    DRIVER_CALL("stream=%p", (void *)stream);
    fake_refuse_in_capture(__func__);
    fake_wait(stream);
    return RNL_CUDA_SUCCESS;
}

/* Work is done at the second query. While FAKE_CUDA_SIGNAL is set it is not, and the first such
 * query sends that signal. */
rnl_cu_result cuStreamQuery(rnl_cu_stream given)
{
    static int sent;
    DRIVER_CALL("stream=%p", (void *)given);
    fake_refuse_in_capture(__func__);
    struct stream *const stream = usable(given, __func__);
    const uint32_t last = stream->clock.at[stream->index];
    const int number = fake_environment("FAKE_CUDA_SIGNAL", 0);
    if (number && !sent++)
        raise(number);
    if (number || stream->queried != last) {
        stream->queried = last;
        return RNL_CUDA_ERROR_NOT_READY;
    }
    fake_wait(given);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamWaitEvent(rnl_cu_stream given, rnl_cu_event waited, unsigned flags)
{
    DRIVER_CALL("stream=%p event=%p flags=%u", (void *)given, (void *)waited, flags);
    struct stream *const stream = usable(given, __func__);
    const struct event *const event = fake_object(waited, FAKE_EVENT, __func__);
    if (event->capture != stream->capture)
        fake_die("cuStreamWaitEvent: one of event and stream is in a capture");
    join(&stream->clock, &event->clock);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuCtxSynchronize(void);
rnl_cu_result cuCtxSynchronize(void)
{
    DRIVER_CALL("%s", "");
    if (in_progress)
        fake_die("cuCtxSynchronize waits for the device, which breaks every capture");
    fake_wait_for_all();
    return RNL_CUDA_SUCCESS;
}

/* ---- events ---- */

rnl_cu_result cuEventCreate(rnl_cu_event *event, unsigned flags)
{
    DRIVER_CALL("flags=%u", flags);
    *event = fake_new(FAKE_EVENT, sizeof(struct event));
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuEventDestroy_v2(rnl_cu_event event)
{
    LOCKED;
    const int status = fake_driver_call(__func__, "event=%p", (void *)event);
    fake_end(event, FAKE_EVENT, __func__);
    return (rnl_cu_result)status;
}

rnl_cu_result cuEventRecord(rnl_cu_event recorded, rnl_cu_stream given)
{
    DRIVER_CALL("event=%p stream=%p", (void *)recorded, (void *)given);
    struct event *const event = fake_object(recorded, FAKE_EVENT, __func__);
    struct stream *const stream = usable(given, __func__);
    event->capture = stream->capture;
    event->pieces = pieces;
    join(&stream->clock, &host);
    join_implicit(stream);
    event->clock = stream->clock;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuEventSynchronize(rnl_cu_event waited);
rnl_cu_result cuEventSynchronize(rnl_cu_event waited)
{
    DRIVER_CALL("event=%p", (void *)waited);
    fake_refuse_in_capture(__func__);
    const struct event *const event = fake_object(waited, FAKE_EVENT, __func__);
    join(&host, &event->clock);
    return RNL_CUDA_SUCCESS;
}

/* Time is not modelled: every piece of work takes 10 microseconds. */
rnl_cu_result cuEventElapsedTime(float *milliseconds, rnl_cu_event from, rnl_cu_event to);
rnl_cu_result cuEventElapsedTime(float *milliseconds, rnl_cu_event from, rnl_cu_event to)
{
    DRIVER_CALL("from=%p to=%p", (void *)from, (void *)to);
    const struct event *const first = fake_object(from, FAKE_EVENT, __func__);
    const struct event *const last = fake_object(to, FAKE_EVENT, __func__);
    *milliseconds = 0.01f * (float)(last->pieces - first->pieces);
    return RNL_CUDA_SUCCESS;
}

/* ---- captures and graphs ---- */

/* The thread's capture mode: which captures forbid it unsafe calls. */
static _Thread_local int thread_mode = CAPTURE_GLOBAL;

void fake_refuse_in_capture(const char *call)
{
    for (const struct graph *c = in_progress; c; c = c->next) {
        const int is_mine = pthread_equal(c->thread, pthread_self());
        if (thread_mode != CAPTURE_RELAXED &&
            (is_mine ? c->mode != CAPTURE_RELAXED
                     : c->mode == CAPTURE_GLOBAL && thread_mode == CAPTURE_GLOBAL))
            fake_die("%s during a capture", call);
    }
}

rnl_cu_result cuThreadExchangeStreamCaptureMode(rnl_cu_capture_mode *mode)
{
    DRIVER_CALL("mode=%d", (int)*mode);
    const int before = thread_mode;
    thread_mode = (int)*mode;
    *mode = (rnl_cu_capture_mode)before;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamIsCapturing(rnl_cu_stream given, rnl_cu_capture_status *found)
{
    DRIVER_CALL("stream=%p", (void *)given);
    const struct stream *const stream = stream_of(given, __func__);
    if (is_blocked(stream))
        return RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *found = (rnl_cu_capture_status)(stream->capture ? CAPTURE_ACTIVE : 0);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamBeginCapture_v2(rnl_cu_stream given, int mode);
rnl_cu_result cuStreamBeginCapture_v2(rnl_cu_stream given, int mode)
{
    DRIVER_CALL("stream=%p mode=%d", (void *)given, mode);
    struct stream *const stream = stream_of(given, __func__);
    if (stream->is_legacy || stream->capture)
        fake_die("cuStreamBeginCapture_v2 of the legacy stream, or twice");
    struct graph *const made = fake_new(FAKE_GRAPH, sizeof *made);
    made->thread = pthread_self();
    made->mode = mode;
    made->next = in_progress;
    in_progress = stream->capture = made;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamEndCapture(rnl_cu_stream given, void **graph);
rnl_cu_result cuStreamEndCapture(rnl_cu_stream given, void **graph)
{
    DRIVER_CALL("stream=%p", (void *)given);
    struct stream *const stream = stream_of(given, __func__);
    struct graph **at = &in_progress;
    while (*at && *at != stream->capture)
        at = &(*at)->next;
    if (!*at)
        fake_die("cuStreamEndCapture: the stream is not capturing");
    *graph = *at;
    *at = (*at)->next;
    stream->capture = NULL;
    return RNL_CUDA_SUCCESS;
}

/* The executable graph is the graph. */
rnl_cu_result cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags);
rnl_cu_result cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags)
{
    DRIVER_CALL("graph=%p flags=%llu", graph, flags);
    *made = fake_object(graph, FAKE_GRAPH, __func__);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuGraphLaunch(void *graph, rnl_cu_stream stream);
rnl_cu_result cuGraphLaunch(void *graph, rnl_cu_stream stream)
{
    DRIVER_CALL("graph=%p stream=%p", graph, (void *)stream);
    const struct graph *const launched = fake_object(graph, FAKE_GRAPH, __func__);
    for (int i = 0; i < launched->count; i++)
        fake_submit(stream, &launched->work[i]);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuGraphDestroy(void *graph);
rnl_cu_result cuGraphDestroy(void *graph)
{
    DRIVER_CALL("graph=%p", graph); /* an executable one may still be launched */
    return RNL_CUDA_SUCCESS;
}
