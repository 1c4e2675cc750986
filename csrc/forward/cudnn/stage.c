/* Copies between the host and the device, in chunks: one is copied while the other slot of pinned
 * memory is filled or emptied. */
#define _DEFAULT_SOURCE /* nanosleep; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/stage.h"

#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/status.h"

enum {
    CHUNK_NBYTES = 1 << 20, /* large enough for the bus's full speed */
    SPIN_NS = 200000,       /* shorter calls do not sleep            */
    SLEEP_NS = 50000,
    POLL_NS = 50000000 /* Ctrl-C is answered within 0.2 s */
};

/* Wait until the event has occurred. */
static rnl_status wait_for(rnl_gpu_device *device, rnl_cu_event event, rnl_asked asked,
                           rnl_error *err)
{
    if (!asked.poll)
        return RNL_CU(device, err, cuEventSynchronize, event);
    const int64_t since = rnl_now_ns();
    int64_t polled = since;
    for (;;) {
        const rnl_cu_result result = device->cu->cuEventQuery(event);
        if (result != (rnl_cu_result)RNL_CUDA_ERROR_NOT_READY)
            return rnl_gpu_cu(device, "cuEventQuery", result, err);
        const int64_t now = rnl_now_ns();
        if (now - polled >= POLL_NS) {
            if (asked.poll(asked.arg))
                return rnl_fail(err, RNL_E_INTERRUPTED, "interrupted");
            polled = now;
        }
        if (now - since >= SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* Wait until the host may use the slot; make it at the first time. */
static rnl_status take_slot(rnl_gpu_device *device, rnl_slot *slot, rnl_asked asked, rnl_error *err)
{
    rnl_status status = RNL_OK;
    void *memory = NULL;
    if (!slot->memory) {
        status = RNL_CU(device, err, cuMemHostAlloc, &memory, CHUNK_NBYTES,
                        RNL_CU_MEMHOSTALLOC_PORTABLE);
        if (status == RNL_OK)
            slot->memory = memory;
    }
    if (status == RNL_OK && !slot->event)
        status = RNL_CU(device, err, cuEventCreate, &slot->event, RNL_CU_EVENT_DISABLE_TIMING);
    if (status == RNL_OK && slot->in_flight) {
        status = wait_for(device, slot->event, asked, err);
        slot->in_flight = status != RNL_OK;
    }
    return status;
}

/* Note that a copy from or to the slot was submitted. If recording its event fails, wait for the
 * stream. */
static rnl_status leave_slot(rnl_gpu_device *device, rnl_slot *slot, rnl_cu_stream stream,
                             rnl_error *err)
{
    const rnl_status status = RNL_CU(device, err, cuEventRecord, slot->event, stream);
    slot->in_flight = status == RNL_OK;
    if (status != RNL_OK)
        device->cu->cuStreamSynchronize(stream);
    return status;
}

static size_t end_of(const rnl_piece *pieces, int num_pieces)
{
    return num_pieces ? pieces[num_pieces - 1].at + pieces[num_pieces - 1].nbytes : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copy the part of the pieces that is in a chunk to or from the slot. */
static void copy_chunk(const rnl_piece *pieces, int num_pieces, size_t at, size_t nbytes,
                       char *slot, bool in)
{
    for (int k = 0; k < num_pieces; k++) {
        const size_t first = pieces[k].at > at ? pieces[k].at : at;
        const size_t last = least(pieces[k].at + pieces[k].nbytes, at + nbytes);
        if (first >= last)
            continue;
        char *const host = pieces[k].host + (first - pieces[k].at);
        memcpy(in ? slot + (first - at) : host, in ? host : slot + (first - at), last - first);
    }
}

rnl_status rnl_stage_in(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                        rnl_cu_address to, const rnl_piece *pieces, int num_pieces, rnl_asked asked,
                        rnl_error *err)
{
    const size_t total = end_of(pieces, num_pieces);
    rnl_status status = RNL_OK;
    int k = 0;
    for (size_t at = 0; status == RNL_OK && at < total; at += CHUNK_NBYTES, k ^= 1) {
        const size_t nbytes = least(CHUNK_NBYTES, total - at);
        rnl_slot *const slot = &lane->slots[k];
        if ((status = take_slot(device, slot, asked, err)) != RNL_OK)
            break;
        copy_chunk(pieces, num_pieces, at, nbytes, slot->memory, true);
        status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, to + at, slot->memory, nbytes, stream);
        if (status == RNL_OK)
            status = leave_slot(device, slot, stream, err);
    }
    return status;
}

rnl_status rnl_stage_out(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                         rnl_cu_address from, const rnl_piece *pieces, int num_pieces,
                         rnl_asked asked, rnl_error *err)
{
    const size_t total = end_of(pieces, num_pieces);
    const size_t chunks = (total + CHUNK_NBYTES - 1) / CHUNK_NBYTES;
    rnl_status status = RNL_OK;
    for (size_t k = 0; status == RNL_OK && k <= chunks; k++) {
        if (k < chunks) { /* copy one chunk ... */
            rnl_slot *const slot = &lane->slots[k % RNL_NUM_SLOTS];
            const size_t at = k * CHUNK_NBYTES;
            if ((status = take_slot(device, slot, asked, err)) == RNL_OK)
                status = RNL_CU(device, err, cuMemcpyDtoHAsync_v2, slot->memory, from + at,
                                least(CHUNK_NBYTES, total - at), stream);
            if (status == RNL_OK)
                status = leave_slot(device, slot, stream, err);
        }
        if (status == RNL_OK && k > 0) { /* ... while the one before it is emptied to the host */
            rnl_slot *const slot = &lane->slots[(k - 1) % RNL_NUM_SLOTS];
            const size_t at = (k - 1) * CHUNK_NBYTES;
            if ((status = take_slot(device, slot, asked, err)) == RNL_OK)
                copy_chunk(pieces, num_pieces, at, least(CHUNK_NBYTES, total - at), slot->memory,
                           false);
        }
    }
    return status;
}

void rnl_piece_add(rnl_piece *pieces, int *num_pieces, size_t *used, const void *host,
                   size_t nbytes)
{
    *used = rnl_gpu_aligned(*used);
    pieces[(*num_pieces)++] = (rnl_piece){(char *)host, nbytes, *used};
    *used += nbytes;
}
