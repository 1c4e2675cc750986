/*
 * Memory, streams, events and captures: who uses which memory, and what is ordered before what.
 *
 * Work is done as soon as it is submitted. Every stream has a clock: for each stream, the number of
 * the last piece of work that is ordered before the next piece here, by the stream itself, by
 * events, by the legacy stream or by the host. Two pieces that use the same block without an order
 * between their clocks are a race, whatever the order in which they were done.
 *
 * Work in a capturing stream is kept with its arguments, and done at each launch of the graph. A
 * stream that waits for an event of a capture joins it until its end; another stream of the capture
 * must wait for it before.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 2048, CAPTURE_ACTIVE = 1 };

struct clock {
    uint32_t at[STREAMS];
};

/* The graph of a capture, and the executable graph that is made of it. */
struct graph {
    struct fake_object object;
    uint64_t id; /* of its capture */
    int count;
    struct fake_work *work;
};

struct stream {
    struct fake_object object;
    int index, is_blocking, is_legacy;
    struct clock clock;
    struct graph *capture; /* or NULL */
    int unjoined;          /* it was forked, and no stream of the capture has waited for it since */
};

struct event {
    struct fake_object object;
    struct clock clock;
    long pieces;           /* of work, done before it was recorded */
    struct graph *capture; /* where it was recorded, or NULL */
    struct stream *stream; /* likewise */
};

static struct stream *streams[STREAMS], *legacy;
static _Thread_local struct stream *per_thread;
static int stream_count;
static struct clock host; /* the work that some thread of the host waited for */
static int captures;      /* in progress */
static long pieces;

static void join(struct clock *into, const struct clock *other)
{
    for (int i = 0; i < stream_count; i++)
        if (into->at[i] < other->at[i])
            into->at[i] = other->at[i];
}

/* The stream whose work in `first` is not ordered before `second`; -1: none. */
static int unordered(const struct clock *first, const struct clock *second)
{
    for (int i = 0; i < stream_count; i++)
        if (first->at[i] > second->at[i])
            return i;
    return -1;
}

/* ---- memory, in a table of blocks. A device address is not valid on the host, and is used only
 * once: freed memory stays known as freed. New memory is filled with NaN ---- */

struct block {
    struct fake_object object;
    struct block *next;
    rnl_cu_address at;
    size_t nbytes;
    char *host;
    struct clock reads, writes; /* the last work of each stream that does */
};

/* What the work in progress uses. */
static struct {
    const char *name, *what[8];
    struct stream *stream; /* NULL: the host uses it */
    rnl_cu_address from[8], to[8];
    int write[8], uses;
} now = {.name = "the host"};

static struct block *blocks;

rnl_cu_address fake_new_block(size_t nbytes, const char *kind)
{
    enum { ALIGNMENT = 256, GAP = 4096, NAN_BYTE = 0xff };
    static rnl_cu_address next = 1ULL << 60; /* no x86-64 or AArch64 process uses it */
    struct block *made = fake_new(kind, sizeof *made);
    const size_t whole = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->next = blocks;
    made->nbytes = nbytes;
    made->host = memset(aligned_alloc(ALIGNMENT, whole), NAN_BYTE, whole);
    made->at = next;
    next += whole + GAP - whole % GAP + GAP;
    blocks = made;
    return made->at;
}

static struct block *find(rnl_cu_address at, size_t nbytes, const char *what)
{
    struct block *found = blocks;
    while (found && !(at >= found->at && at - found->at < found->nbytes))
        found = found->next;
    if (!found)
        fake_die("%s: %llx is not device memory", what, at);
    if (!found->host)
        fake_die("%s: %llx was freed already", what, at);
    if (nbytes > found->nbytes - (at - found->at))
        fake_die("%s: %zu bytes are used, the block has %zu", what, nbytes,
                 (size_t)(found->nbytes - (at - found->at)));
    return found;
}

void fake_end_block(rnl_cu_address at, const char *kind)
{
    struct block *const block = find(at, 1, "the memory to free");
    fake_wait_for_all();
    if (block->at != at)
        fake_die("%llx is not the start of an allocation", at);
    fake_end(block, kind, "the memory to free");
    free(block->host);
    block->host = NULL;
}

size_t fake_bytes_in_use(void)
{
    size_t sum = 0;
    for (const struct block *one = blocks; one; one = one->next)
        sum += one->host ? one->nbytes : 0;
    return sum;
}

void *fake_use(rnl_cu_address at, size_t nbytes, int write, const char *what)
{
    if (!nbytes)
        return NULL;
    struct block *const block = find(at, nbytes, what);
    const struct clock *const before = now.stream ? &now.stream->clock : &host;
    const int written = unordered(&block->writes, before);
    const int used = written < 0 && write ? unordered(&block->reads, before) : written;
    if (used >= 0)
        fake_die("race: %s of %s %s %llx, which is used on stream %d, and nothing orders the two",
                 what, now.name, write ? "writes" : "reads", at, used);
    for (int i = 0; i < now.uses; i++)
        if ((write || now.write[i]) && at < now.to[i] && now.from[i] < at + nbytes)
            fake_die("%s: %s overlaps %s", now.name, what, now.what[i]);
    if (now.stream) {
        const int index = now.stream->index, use = now.uses++;
        (write ? &block->writes : &block->reads)->at[index] = now.stream->clock.at[index];
        now.from[use] = at;
        now.to[use] = at + nbytes;
        now.write[use] = write;
        now.what[use] = what;
    }
    return block->host + (at - block->at);
}

/* ---- streams ---- */

#define PER_THREAD ((rnl_cu_stream)2)
#define LEGACY_TOO ((rnl_cu_stream)1)

static struct stream *new_stream(const char *kind, int is_blocking)
{
    if (stream_count == STREAMS)
        fake_die("more than %d streams in one process", STREAMS);
    struct stream *made = fake_new(kind, sizeof *made);
    made->index = stream_count;
    made->is_blocking = is_blocking;
    return streams[stream_count++] = made;
}

static struct stream *stream_of(rnl_cu_stream given, const char *call)
{
    if (given && given != PER_THREAD && given != LEGACY_TOO)
        return fake_object(given, "stream", call);
    if (fake_current_device() < 0)
        fake_die("%s: on a default stream, but no context is current", call);
    struct stream **found = given == PER_THREAD ? &per_thread : &legacy;
    if (!*found)
        *found = new_stream("default stream", 1);
    (*found)->is_legacy = given != PER_THREAD;
    return *found;
}

/* The legacy stream waits for all blocking streams, and they for it. */
static int wait_for_each_other(const struct stream *a, const struct stream *b)
{
    return a->is_blocking && b->is_blocking && (a->is_legacy || b->is_legacy);
}

/* Would it have to wait for a stream whose work is only recorded? */
static int is_blocked(const struct stream *stream)
{
    for (int i = 0; i < stream_count; i++)
        if (stream->is_legacy && streams[i]->capture && wait_for_each_other(stream, streams[i]))
            return 1;
    return 0;
}

/* The stream, which must be usable now, with all that is ordered before its next work. */
static struct stream *up_to_date(rnl_cu_stream given, const char *call)
{
    struct stream *const stream = stream_of(given, call);
    if (is_blocked(stream))
        fake_die("%s on the legacy stream while a blocking stream is capturing", call);
    join(&stream->clock, &host);
    for (int i = 0; i < stream_count; i++)
        if (wait_for_each_other(stream, streams[i]))
            join(&stream->clock, &streams[i]->clock);
    return stream;
}

int fake_submit(rnl_cu_stream given, const struct fake_work *work)
{
    struct stream *const stream = up_to_date(given, work->name);
    struct graph *const graph = stream->capture;
    if (graph && work->host && !fake_is_pinned(work->host))
        fake_die("%s: the stream is capturing, and the host's memory is not pinned", work->name);
    if (graph) {
        graph->work = realloc(graph->work, (size_t)(graph->count + 1) * sizeof *work);
        graph->work[graph->count++] = *work;
        return 1;
    }
    stream->clock.at[stream->index]++;
    pieces++;
    now.stream = stream;
    now.name = work->name;
    now.uses = 0;
    work->run(work);
    now.stream = NULL;
    now.name = "the host";
    now.uses = 0;
    return 0;
}

void fake_wait(rnl_cu_stream given)
{
    const struct stream *const stream = up_to_date(given, "a wait");
    if (stream->capture)
        fake_die("a wait for a stream that is capturing");
    join(&host, &stream->clock);
}

void fake_wait_for_all(void)
{
    for (int i = 0; i < stream_count; i++)
        join(&host, &streams[i]->clock);
}

FAKE(rnl_cu_result, cuStreamCreate, (rnl_cu_stream * stream, unsigned flags),
     *stream = (rnl_cu_stream)new_stream("stream", flags != RNL_CU_STREAM_NON_BLOCKING))
FAKE_END(rnl_cu_result, cuStreamDestroy_v2, rnl_cu_stream, "stream")

rnl_cu_result cuStreamSynchronize(rnl_cu_stream stream)
{
    CALL("stream=%p", (void *)stream);
    fake_refuse_in_capture(__func__);
    fake_wait(stream);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamWaitEvent(rnl_cu_stream given, rnl_cu_event waited, unsigned flags)
{
    CALL("stream=%p flags=%u", (void *)given, flags);
    struct stream *const stream = up_to_date(given, __func__);
    const struct event *const event = fake_object(waited, "event", __func__);
    if (event->capture && event->stream->capture != event->capture)
        fake_die("cuStreamWaitEvent: the event is of a capture that has ended");
    if (event->capture && stream->capture && stream->capture != event->capture)
        fake_die("cuStreamWaitEvent: event and stream are in two captures");
    if (!event->capture && stream->capture)
        fake_die("cuStreamWaitEvent: the stream is in a capture, the event is not");
    if (event->capture && event->stream != stream)
        event->stream->unjoined = 0;
    if (event->capture && !stream->capture)
        stream->unjoined = 1;
    stream->capture = event->capture;
    join(&stream->clock, &event->clock);
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuCtxSynchronize(void)
{
    CALL();
    if (captures)
        fake_die("cuCtxSynchronize waits for the device, which breaks every capture");
    fake_wait_for_all();
    return RNL_CUDA_SUCCESS;
}

/* ---- events ---- */

FAKE(rnl_cu_result, cuEventCreate, (rnl_cu_event * event, unsigned flags), (void)flags,
     *event = fake_new("event", sizeof(struct event)))
FAKE_END(rnl_cu_result, cuEventDestroy_v2, rnl_cu_event, "event")

rnl_cu_result cuEventRecord(rnl_cu_event recorded, rnl_cu_stream given)
{
    CALL("stream=%p", (void *)given);
    struct event *const event = fake_object(recorded, "event", __func__);
    struct stream *const stream = up_to_date(given, __func__);
    event->capture = stream->capture;
    event->stream = stream;
    event->pieces = pieces;
    event->clock = stream->clock;
    return RNL_CUDA_SUCCESS;
}

FAKE(rnl_cu_result, cuEventSynchronize, (rnl_cu_event event),
     join(&host, &((struct event *)fake_object(event, "event", __func__))->clock))

/* Every piece of work takes 10 microseconds. */
rnl_cu_result cuEventElapsedTime(float *milliseconds, rnl_cu_event from, rnl_cu_event to)
{
    CALL();
    const struct event *const first = fake_object(from, "event", __func__);
    const struct event *const last = fake_object(to, "event", __func__);
    *milliseconds = 0.01f * (float)(last->pieces - first->pieces);
    return RNL_CUDA_SUCCESS;
}

/* ---- captures and graphs ---- */

/* Stricter than the driver, where some captures forbid it in their own thread alone. */
static _Thread_local rnl_cu_capture_mode thread_mode;

void fake_refuse_in_capture(const char *call)
{
    if (captures && thread_mode != RNL_CU_STREAM_CAPTURE_MODE_RELAXED)
        fake_die("%s during a capture", call);
}

rnl_cu_result cuThreadExchangeStreamCaptureMode(rnl_cu_capture_mode *mode)
{
    CALL();
    const rnl_cu_capture_mode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamGetCaptureInfo(rnl_cu_stream given, rnl_cu_capture_status *found,
                                     uint64_t *id)
{
    CALL("stream=%p", (void *)given);
    const struct stream *const stream = stream_of(given, __func__);
    if (is_blocked(stream))
        return RNL_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *found = (rnl_cu_capture_status)(stream->capture ? CAPTURE_ACTIVE : 0);
    if (stream->capture)
        *id = stream->capture->id;
    return RNL_CUDA_SUCCESS;
}

rnl_cu_result cuStreamBeginCapture_v2(rnl_cu_stream given, rnl_cu_capture_mode mode)
{
    static uint64_t last_id;
    CALL("mode=%d", mode);
    struct stream *const stream = stream_of(given, __func__);
    if (stream->is_legacy || stream->capture)
        fake_die("cuStreamBeginCapture_v2 of the legacy stream, or twice");
    stream->capture = fake_new("graph", sizeof *stream->capture);
    stream->capture->id = ++last_id;
    captures++;
    return RNL_CUDA_SUCCESS;
}

/* A call that fails may leave a capture without a join: its end fails then, and ends the capture.
 */
rnl_cu_result cuStreamEndCapture(rnl_cu_stream given, rnl_cu_graph *graph)
{
    enum { UNJOINED = 904 };
    BEGIN();
    struct stream *const stream = stream_of(given, __func__);
    if (!stream->capture)
        fake_die("cuStreamEndCapture: the stream is not capturing");
    struct graph *const ended = stream->capture;
    int unjoined = 0;
    for (int i = 0; i < stream_count; i++) {
        unjoined |= streams[i]->capture == ended && streams[i]->unjoined && streams[i] != stream;
        if (streams[i]->capture == ended)
            streams[i]->capture = NULL;
    }
    captures--;
    if (unjoined && !fake_has_failed())
        fake_die("cuStreamEndCapture: a stream of the capture was not joined");
    *graph = unjoined || failed ? NULL : (rnl_cu_graph)ended;
    if (!*graph)
        fake_end(ended, "graph", __func__);
    return unjoined ? UNJOINED : failed;
}

rnl_cu_result cuGraphInstantiateWithFlags(rnl_cu_graph_exec *exec, rnl_cu_graph graph,
                                          unsigned long long flags)
{
    CALL("flags=%llu", flags);
    const struct graph *const from = fake_object(graph, "graph", __func__);
    struct graph *const made = fake_new("graph_exec", sizeof *made);
    made->count = from->count;
    made->work = from->work; /* never freed */
    *exec = (rnl_cu_graph_exec)made;
    return RNL_CUDA_SUCCESS;
}

FAKE_END(rnl_cu_result, cuGraphDestroy, rnl_cu_graph, "graph")
FAKE_END(rnl_cu_result, cuGraphExecDestroy, rnl_cu_graph_exec, "graph_exec")

rnl_cu_result cuGraphLaunch(rnl_cu_graph_exec exec, rnl_cu_stream stream)
{
    CALL("stream=%p", (void *)stream);
    const struct graph *const launched = fake_object(exec, "graph_exec", __func__);
    for (int i = 0; i < launched->count; i++) {
        const struct fake_work *const work = &launched->work[i];
        if (work->host && !fake_is_pinned(work->host))
            fake_die("cuGraphLaunch: %s: the memory of the host was freed already", work->name);
        fake_submit(stream, work);
    }
    return RNL_CUDA_SUCCESS;
}
