/* Lanes: borrowing them, the order of the work in them, and their memory. */
#include "forward/cudnn/lane.h"

#include <stdlib.h>

#include "core/status.h"

#define LEGACY_STREAM ((rnl_cu_stream)0)

/* The number of this thread: each thread has its own per-thread stream. */
static uint64_t this_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t mine;
    if (!mine)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
}

static bool works_in(const rnl_lane *lane, rnl_cu_stream stream)
{
    if (stream == RNL_OWN_STREAM)
        return lane->own && lane->work_stream == lane->own;
    return lane->work_stream == stream &&
           (stream != RNL_PER_THREAD_STREAM || lane->work_thread == this_thread());
}

/* ---- making a lane, piece by piece: after a failure the next call makes the rest ---- */

static rnl_status make_handle(rnl_gpu_device *device, rnl_lane *lane, rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!lane->handle)
        status = RNL_DNN(device, err, cudnnCreate, &lane->handle);
    if (status == RNL_OK && !lane->dropout)
        status = RNL_DNN(device, err, cudnnCreateDropoutDescriptor, &lane->dropout);
    if (status == RNL_OK && !lane->dropout_set) {
        status = RNL_DNN(device, err, cudnnSetDropoutDescriptor, lane->dropout, lane->handle, 0,
                         NULL, 0, 0);
        lane->dropout_set = status == RNL_OK;
    }
    return status;
}

static rnl_status make_whole(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                             rnl_error *err)
{
    rnl_status status = make_handle(device, lane, err);
    if (status == RNL_OK && !lane->event)
        status = RNL_CU(device, err, cuEventCreate, &lane->event, RNL_CU_EVENT_DISABLE_TIMING);
    if (status == RNL_OK && stream == RNL_OWN_STREAM && !lane->own)
        status = RNL_CU(device, err, cuStreamCreate, &lane->own, RNL_CU_STREAM_NON_BLOCKING);
    return status;
}

/* ---- the pool ---- */

/* How well a lane suits a call. A new handle costs memory and time; a wait for another stream keeps
 * the two streams from running in parallel. */
static int rank(const rnl_lane *lane, rnl_cu_stream stream)
{
    if (!lane->used)
        return 2;
    return works_in(lane, stream) ? 4 : lane->work == RNL_NO_WORK ? 3 : 1;
}

/* The most suitable free lane; NULL: none. */
static rnl_lane *choose(rnl_gpu_device *device, rnl_cu_stream stream,
                        bool (*fits)(const rnl_lane *lane, void *arg), void *arg, bool *any_busy)
{
    rnl_lane *best = NULL;
    int best_rank = 0;
    *any_busy = false;
    for (int k = 0; k < RNL_NUM_LANES; k++) {
        rnl_lane *const lane = &device->lanes[k];
        *any_busy |= lane->busy;
        if (lane->busy || (fits && !fits(lane, arg)))
            continue;
        if (rank(lane, stream) > best_rank) {
            best = lane;
            best_rank = rank(lane, stream);
        }
    }
    return best;
}

rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream,
                           bool (*fits)(const rnl_lane *lane, void *arg), void *arg,
                           rnl_lane **lane, rnl_error *err)
{
    bool any_busy;
    pthread_mutex_lock(&device->lock);
    while (!(*lane = choose(device, stream, fits, arg, &any_busy)) && any_busy)
        pthread_cond_wait(&device->returned, &device->lock);
    if (*lane)
        (*lane)->busy = (*lane)->used = true;
    pthread_mutex_unlock(&device->lock);
    if (!*lane)
        return rnl_fail(
            err, RNL_E_SPEC,
            "the stream is capturing, but no call of these sizes has run on this RNN: make "
            "such a call and wait for it before the capture");
    if (fits)
        return RNL_OK;
    const rnl_status status = make_whole(device, *lane, stream, err);
    if (status != RNL_OK)
        rnl_lane_return(device, *lane);
    return status;
}

bool rnl_lane_borrow_this(rnl_gpu_device *device, int index, rnl_lane **lane)
{
    pthread_mutex_lock(&device->lock);
    *lane = &device->lanes[index];
    while ((*lane)->busy)
        pthread_cond_wait(&device->returned, &device->lock);
    const bool used = (*lane)->busy = (*lane)->used;
    pthread_mutex_unlock(&device->lock);
    return used;
}

void rnl_lane_return(rnl_gpu_device *device, rnl_lane *lane)
{
    pthread_mutex_lock(&device->lock);
    lane->busy = false;
    pthread_cond_broadcast(&device->returned);
    pthread_mutex_unlock(&device->lock);
}

rnl_status rnl_lanes_join(rnl_gpu_device *device, rnl_error *err)
{
    pthread_mutex_lock(&device->lock);
    if (!device->lanes) {
        device->lanes = calloc(RNL_NUM_LANES, sizeof *device->lanes);
        for (int k = 0; device->lanes && k < RNL_NUM_LANES; k++)
            device->lanes[k].index = k;
    }
    const bool joins = device->lanes != NULL;
    device->num_rnns += joins;
    pthread_mutex_unlock(&device->lock);
    return joins ? RNL_OK : rnl_fail(err, RNL_E_NOMEM, "no host memory for a GPU's lanes");
}

/* No lane is in use when the last RNN leaves. */
void rnl_lanes_leave(rnl_gpu_device *device, bool works)
{
    rnl_workspace *workspaces[RNL_NUM_LANES] = {NULL};
    rnl_cu_address rooms[RNL_NUM_LANES] = {0};
    pthread_mutex_lock(&device->lock);
    const bool last = --device->num_rnns == 0;
    for (int k = 0; last && k < RNL_NUM_LANES; k++) {
        rnl_lane *const lane = &device->lanes[k];
        workspaces[k] = lane->workspace;
        rooms[k] = lane->room.memory;
        lane->workspace = NULL;
        lane->room = (rnl_gpu_room){0};
    }
    pthread_mutex_unlock(&device->lock);
    for (int k = 0; k < RNL_NUM_LANES; k++) {
        if (workspaces[k])
            rnl_workspace_drop(device, workspaces[k], works);
        if (works && rooms[k])
            device->cu->cuMemFree_v2(rooms[k]);
    }
}

/* ---- order ---- */

/* Does work submitted to the stream now run after the lane's work by itself? Not in a caller's
 * stream: the old one may have been destroyed, and this one may be new with the same handle. */
static bool is_behind(const rnl_lane *lane, rnl_cu_stream stream)
{
    return works_in(lane, stream) && (stream == LEGACY_STREAM || stream == RNL_PER_THREAD_STREAM);
}

static rnl_status set_stream(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                             rnl_error *err)
{
    const rnl_cudnn_status result = device->dnn->cudnnSetStream(lane->handle, stream);
    if ((int)result == RNL_CUDNN9_STATUS_BAD_PARAM_STREAM_MISMATCH ||
        (int)result == RNL_CUDNN8_STATUS_MAPPING_ERROR)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream belongs to another GPU or context: the RNN is on GPU %d, use a "
                        "stream of that GPU",
                        device->ordinal);
    const rnl_status status = rnl_gpu_dnn(device, "cudnnSetStream", result, err);
    if (status == RNL_OK)
        lane->handle_stream = stream;
    return status;
}

/* Make the stream wait for the lane's earlier work. */
static rnl_status wait_for_work(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                                rnl_error *err)
{
    rnl_status status = RNL_OK;
    bool captured;
    if (lane->work == RNL_WORK_IN_STREAM) {
        if (lane->work_stream == LEGACY_STREAM) /* recording there may break a capture */
            status = rnl_gpu_is_captured(device, LEGACY_STREAM, &captured, err);
        if (status == RNL_OK)
            status = RNL_CU(device, err, cuEventRecord, lane->event, lane->work_stream);
        if (status == RNL_OK)
            lane->work = RNL_WORK_IN_EVENT;
    }
    if (status == RNL_OK && lane->work == RNL_WORK_IN_EVENT)
        status = RNL_CU(device, err, cuStreamWaitEvent, stream, lane->event, 0);
    return status;
}

rnl_status rnl_lane_begin(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                          bool capturing, rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!capturing && !is_behind(lane, stream)) {
        status = wait_for_work(device, lane, stream, err);
        if (status != RNL_OK)
            return status;
        lane->work_stream = stream;
        lane->work_thread = this_thread();
    }
    return lane->handle_stream == stream ? status : set_stream(device, lane, stream, err);
}

/* The event of a stream that lives as long as the lane is recorded when it is needed; a caller's
 * stream may be destroyed by then. */
rnl_status rnl_lane_end(rnl_gpu_device *device, rnl_lane *lane, rnl_status status, rnl_error *err)
{
    rnl_error ignored;
    if (status != RNL_OK) /* finds a sticky error, which cuDNN's statuses do not show */
        (void)RNL_CU(device, &ignored, cuEventQuery, lane->event);
    if (lane->work_stream == LEGACY_STREAM || lane->work_stream == lane->own) {
        lane->work = RNL_WORK_IN_STREAM;
        return status;
    }
    const rnl_status recorded = RNL_CU(device, status == RNL_OK ? err : &ignored, cuEventRecord,
                                       lane->event, lane->work_stream);
    lane->work = RNL_WORK_IN_EVENT;
    if (recorded != RNL_OK && device->cu->cuStreamSynchronize(lane->work_stream) == 0)
        lane->work = RNL_NO_WORK;
    return status != RNL_OK ? status : recorded;
}

void rnl_lane_finished(rnl_lane *lane)
{
    lane->work = RNL_NO_WORK;
}

/* ---- memory ---- */

void rnl_workspace_hold(rnl_gpu_device *device, rnl_workspace *workspace)
{
    pthread_mutex_lock(&device->lock);
    workspace->holders++;
    pthread_mutex_unlock(&device->lock);
}

void rnl_workspace_drop(rnl_gpu_device *device, rnl_workspace *workspace, bool works)
{
    pthread_mutex_lock(&device->lock);
    const bool last = --workspace->holders == 0;
    pthread_mutex_unlock(&device->lock);
    if (!last)
        return;
    if (works && workspace->memory)
        device->cu->cuMemFree_v2(workspace->memory);
    free(workspace);
}

/* Allocate memory after `old` bytes were freed: a quarter more than before if available, so that
 * lengths that grow from call to call rarely free and allocate, which waits for the device. */
static rnl_status more_memory(rnl_gpu_device *device, size_t old, size_t nbytes, const char *what,
                              rnl_cu_address *memory, size_t *got, rnl_error *err)
{
    const size_t ample = old + old / 4;
    rnl_status status = RNL_E_NOMEM;
    *got = ample > nbytes ? ample : nbytes;
    if (ample > nbytes)
        status = rnl_gpu_memory(device, ample, what, memory, err);
    if (status == RNL_E_NOMEM) {
        *got = nbytes;
        status = rnl_gpu_memory(device, nbytes, what, memory, err);
    }
    if (status != RNL_OK)
        *got = 0;
    return status;
}

/* Freeing memory waits for the work on it. The old workspace is freed first, since both may not
 * fit; one that a graph uses stays. */
rnl_status rnl_lane_workspace(rnl_gpu_device *device, rnl_lane *lane, size_t nbytes, rnl_error *err)
{
    rnl_workspace *const last = lane->workspace;
    if (last && !last->captured && last->nbytes >= nbytes)
        return RNL_OK;
    const size_t old = last && last->nbytes < nbytes ? last->nbytes : 0;
    rnl_workspace *const made = lane->workspace = calloc(1, sizeof *made);
    if (last)
        rnl_workspace_drop(device, last, true);
    if (!made)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for a workspace");
    made->holders = 1;
    return more_memory(device, old, nbytes, "the workspace of this call", &made->memory,
                       &made->nbytes, err);
}

rnl_status rnl_room_grow(rnl_gpu_device *device, rnl_gpu_room *room, size_t nbytes,
                         const char *what, rnl_error *err)
{
    const size_t old = room->nbytes;
    if (old >= nbytes)
        return RNL_OK;
    if (room->memory)
        device->cu->cuMemFree_v2(room->memory);
    *room = (rnl_gpu_room){0};
    return more_memory(device, old, nbytes, what, &room->memory, &room->nbytes, err);
}
