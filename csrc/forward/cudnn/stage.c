/* Copies between the host and the device: plain ones, for which the driver has buffers of its own.
 */
#define _DEFAULT_SOURCE /* nanosleep; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "forward/cudnn/stage.h"

#include <time.h>

#include "core/clock.h"
#include "core/status.h"

enum {
    SPIN_NS = 200000, /* shorter calls do not sleep            */
    SLEEP_NS = 50000,
    POLL_NS = 50000000 /* Ctrl-C is answered within 0.2 s */
};

/* Wait for the work in the stream, and call the poll meanwhile. */
static rnl_status wait_for(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                           rnl_asked asked, rnl_error *err)
{
    const rnl_status status = RNL_CU(device, err, cuEventRecord, lane->event, stream);
    if (status != RNL_OK)
        return status;
    const int64_t since = rnl_now_ns();
    int64_t polled = since;
    for (;;) {
        const rnl_cu_result result = device->cu->cuEventQuery(lane->event);
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

rnl_status rnl_stage_in(rnl_gpu_device *device, rnl_cu_stream stream, rnl_cu_address to,
                        const rnl_piece *pieces, int num_pieces, rnl_error *err)
{
    rnl_status status = RNL_OK;
    for (int k = 0; status == RNL_OK && k < num_pieces; k++)
        if (pieces[k].nbytes)
            status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, to + pieces[k].at, pieces[k].host,
                            pieces[k].nbytes, stream);
    return status;
}

rnl_status rnl_stage_out(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                         rnl_cu_address from, const rnl_piece *pieces, int num_pieces,
                         rnl_asked asked, rnl_error *err)
{
    rnl_status status = asked.poll ? wait_for(device, lane, stream, asked, err) : RNL_OK;
    for (int k = 0; status == RNL_OK && k < num_pieces; k++)
        if (pieces[k].nbytes)
            status = RNL_CU(device, err, cuMemcpyDtoHAsync_v2, pieces[k].host, from + pieces[k].at,
                            pieces[k].nbytes, stream);
    if (status == RNL_OK) /* the caller's memory may be pinned: then the copies only begin above */
        status = RNL_CU(device, err, cuStreamSynchronize, stream);
    return status;
}

void rnl_piece_add(rnl_piece *pieces, int *num_pieces, size_t *used, const void *host,
                   size_t nbytes)
{
    *used = rnl_gpu_aligned(*used);
    pieces[(*num_pieces)++] = (rnl_piece){(char *)host, nbytes, *used};
    *used += nbytes;
}
