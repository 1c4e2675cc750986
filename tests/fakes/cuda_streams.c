/*
 * Streams and events: work runs as late as possible.
 *
 * Submitted work stays in its stream's queue until the host waits for it, so that a host that reads
 * or reuses memory without a wait finds NaN or changes the result.
 *
 * Every piece of work has a clock: for each stream, the number of the last piece that is ordered
 * before it, by the stream itself, by events, by the legacy stream or by the host. These are run
 * before it. Two pieces that access the same memory without an order between their clocks are a
 * race, which fake_touch() finds even if the order of execution hides it.
 */
#include "cuda_streams.h"
#include "fake.h"

#include <stdlib.h>

struct piece {
    struct piece *next;
    struct fake_clock clock;
    struct fake_work work;
};

static struct stream *streams[FAKE_STREAMS];
static int stream_count;
static struct stream *legacy[FAKE_MAX_DEVICES];
static _Thread_local struct stream *per_thread[FAKE_MAX_DEVICES];
static struct fake_clock host; /* the work that some thread of the host waited for */

#define PER_THREAD ((CUstream)2)
#define LEGACY_TOO ((CUstream)1)

static void join(struct fake_clock *clock, const struct fake_clock *other)
{
    for (int i = 0; i < stream_count; i++)
        if (clock->at[i] < other->at[i])
            clock->at[i] = other->at[i];
}

static struct stream *new_stream(int device, int non_blocking)
{
    struct stream *made = fake_new(FAKE_STREAM, sizeof *made);
    if (stream_count == FAKE_STREAMS)
        fake_die("more than %d streams", FAKE_STREAMS);
    made->index = stream_count;
    made->device = device;
    made->non_blocking = non_blocking;
    return streams[stream_count++] = made;
}

/* NULL is the legacy stream of the current context, 2 the thread's own. */
struct stream *fake_stream(CUstream given, const char *call)
{
    if (given && given != LEGACY_TOO && given != PER_THREAD)
        return fake_object(given, FAKE_STREAM, call);
    int device = fake_current_device();
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

int fake_stream_device(CUstream stream)
{
    return fake_stream(stream, "the stream")->device;
}

int fake_is_capturing(CUstream stream)
{
    return fake_stream(stream, "the stream")->capture != NULL;
}

/* The legacy stream waits for all blocking streams of its device, and they for it. */
static void join_implicit(struct stream *stream, struct fake_clock *clock)
{
    for (int i = 0; i < stream_count; i++) {
        struct stream *other = streams[i];
        if (other != stream && other->device == stream->device && !stream->non_blocking &&
            !other->non_blocking && (stream->is_legacy || other->is_legacy))
            join(clock, &other->clock);
    }
}

/* ---- running ---- */

static void run_until(struct stream *stream, uint32_t number)
{
    while (stream->done < number) {
        struct piece *piece = stream->first;
        stream->first = piece->next;
        if (!stream->first)
            stream->last = NULL;
        for (int i = 0; i < stream_count; i++)
            if (streams[i] != stream)
                run_until(streams[i], piece->clock.at[i]);
        for (int i = 0; i < piece->work.accesses; i++)
            if (piece->work.access[i].nbytes)
                fake_bytes(piece->work.access[i].at, piece->work.access[i].nbytes,
                           piece->work.access[i].what);
        if (piece->work.run)
            piece->work.run(piece->work.argument);
        stream->done++;
        free(piece);
    }
}

static void wait_for(const struct fake_clock *clock)
{
    struct fake_clock now = *clock; /* running may add to the other */
    for (int i = 0; i < stream_count; i++)
        run_until(streams[i], now.at[i]);
    join(&host, &now);
}

void fake_wait_for_all(void)
{
    for (int i = 0; i < stream_count; i++)
        wait_for(&streams[i]->clock);
}

void fake_enqueue(struct stream *stream, const struct fake_work *work)
{
    join(&stream->clock, &host);
    join_implicit(stream, &stream->clock);
    stream->clock.at[stream->index]++;
    for (int i = 0; i < work->accesses; i++)
        fake_touch(&work->access[i], work->name, stream->index, &stream->clock);
    struct piece *piece = calloc(1, sizeof *piece);
    piece->work = *work;
    piece->clock = stream->clock;
    if (stream->last)
        stream->last->next = piece;
    else
        stream->first = piece;
    stream->last = piece;
}

/* Would it have to wait for a stream whose work is only recorded? */
int fake_is_blocked(const struct stream *stream)
{
    for (int i = 0; i < stream_count; i++)
        if (stream->is_legacy && streams[i]->capture && !streams[i]->non_blocking &&
            streams[i]->device == stream->device)
            return 1;
    return 0;
}

static void refuse_implicit(const struct stream *stream, const char *what)
{
    if (fake_is_blocked(stream))
        fake_die("%s on the legacy stream while a blocking stream is capturing", what);
}

CUresult fake_submit(CUstream given, const struct fake_work *work)
{
    struct stream *stream = fake_stream(given, work->name);
    refuse_implicit(stream, work->name);
    if (stream->capture)
        fake_capture_work(stream->capture, work);
    else
        fake_enqueue(stream, work);
    return CU_OK;
}

void fake_finish(CUstream given)
{
    struct stream *stream = fake_stream(given, "a wait");
    join_implicit(stream, &stream->clock);
    wait_for(&stream->clock);
}

/* ---- streams ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    DRIVER_CALL("flags=%u", flags);
    if (fake_current_device() < 0)
        return CU_INVALID_CONTEXT;
    *stream = (CUstream)new_stream(fake_current_device(), flags == STREAM_NON_BLOCKING);
    return CU_OK;
}

CUresult cuStreamDestroy_v2(CUstream given)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "stream=%p", (void *)given);
    struct stream *stream = fake_object(given, FAKE_STREAM, __func__);
    if (stream->capture)
        fake_die("cuStreamDestroy_v2: the stream is capturing");
    fake_end(stream); /* its work still runs */
    return status;
}

CUresult cuStreamSynchronize(CUstream given)
{
    DRIVER_CALL("stream=%p", (void *)given);
    fake_refuse_in_capture(__func__);
    struct stream *stream = fake_stream(given, __func__);
    refuse_implicit(stream, __func__);
    if (stream->capture)
        fake_die("cuStreamSynchronize: the stream is capturing");
    fake_finish(given);
    return CU_OK;
}

/* A query finds that work is not done and does it before the next query; FAKE_CUDA_SLOW: after so
 * many more. */
static CUresult query(const struct fake_clock *clock)
{
    static int asked;
    if (asked < fake_environment("FAKE_CUDA_SLOW", 0)) {
        asked++;
        return CU_NOT_READY;
    }
    struct fake_clock now = *clock;
    CUresult status = CU_OK;
    for (int i = 0; i < stream_count; i++)
        if (streams[i]->done < now.at[i])
            status = CU_NOT_READY;
    for (int i = 0; i < stream_count; i++)
        run_until(streams[i], now.at[i]);
    if (!status)
        join(&host, &now);
    return status;
}

CUresult cuStreamWaitEvent(CUstream given, CUevent waited, unsigned flags)
{
    DRIVER_CALL("stream=%p event=%p flags=%u", (void *)given, (void *)waited, flags);
    struct stream *stream = fake_stream(given, __func__);
    struct event *event = fake_object(waited, FAKE_EVENT, __func__);
    refuse_implicit(stream, __func__);
    if (event->capture != stream->capture) {
        if (event->capture)
            fake_die("cuStreamWaitEvent: the event was recorded in a capture");
        fake_capture_breaks(stream->capture);
        return CU_CAPTURE_ISOLATION;
    }
    join(&stream->clock, &event->clock);
    return CU_OK;
}

CUresult cuCtxSynchronize(void)
{
    LOCKED;
    fake_refuse_beside_capture(__func__);
    CUresult status = fake_driver_call(__func__, "%s", "");
    if (!status)
        fake_wait_for_all();
    return status;
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    DRIVER_CALL("flags=%u", flags);
    if (fake_current_device() < 0)
        return CU_INVALID_CONTEXT;
    *event = fake_new(FAKE_EVENT, sizeof(struct event));
    return CU_OK;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    LOCKED;
    CUresult status = fake_driver_call(__func__, "event=%p", (void *)event);
    fake_end(fake_object(event, FAKE_EVENT, __func__));
    return status;
}

CUresult cuEventRecord(CUevent recorded, CUstream given)
{
    DRIVER_CALL("event=%p stream=%p", (void *)recorded, (void *)given);
    struct event *event = fake_object(recorded, FAKE_EVENT, __func__);
    struct stream *stream = fake_stream(given, __func__);
    refuse_implicit(stream, __func__);
    event->capture = stream->capture;
    if (stream->capture)
        return CU_OK;
    join(&stream->clock, &host);
    join_implicit(stream, &stream->clock);
    event->clock = stream->clock;
    return CU_OK;
}

CUresult cuEventSynchronize(CUevent waited)
{
    DRIVER_CALL("event=%p", (void *)waited);
    fake_refuse_in_capture(__func__);
    struct event *event = fake_object(waited, FAKE_EVENT, __func__);
    if (event->capture)
        return CU_CAPTURED_EVENT;
    wait_for(&event->clock);
    return CU_OK;
}

CUresult cuStreamQuery(CUstream given)
{
    LOCKED;
    fake_refuse_in_capture(__func__);
    CUresult status = fake_driver_call(__func__, "stream=%p", (void *)given);
    return status ? status : query(&fake_stream(given, __func__)->clock);
}

/* Time is not modelled: every piece of work takes 10 microseconds. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    DRIVER_CALL("from=%p to=%p", (void *)from, (void *)to);
    struct event *first = fake_object(from, FAKE_EVENT, __func__);
    struct event *last = fake_object(to, FAKE_EVENT, __func__);
    *milliseconds = 0;
    for (int i = 0; i < stream_count; i++) {
        if (streams[i]->done < last->clock.at[i])
            return CU_NOT_READY;
        if (last->clock.at[i] > first->clock.at[i])
            *milliseconds += 0.01f * (float)(last->clock.at[i] - first->clock.at[i]);
    }
    return CU_OK;
}
