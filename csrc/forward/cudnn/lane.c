/* Lanes: making and borrowing them. */
#include "forward/cudnn/lane.h"

#include "core/status.h"

/* Piece by piece: after a failure the next call makes the rest. */
static rnl_status make(rnl_gpu_device *device, rnl_lane *lane, rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!lane->handle)
        status = RNL_DNN(device, err, cudnnCreate, &lane->handle);
    if (status == RNL_OK && !lane->own)
        status = RNL_CU(device, err, cuStreamCreate, &lane->own, RNL_CU_STREAM_NON_BLOCKING);
    if (status == RNL_OK && !lane->dropout)
        status = RNL_DNN(device, err, cudnnCreateDropoutDescriptor, &lane->dropout);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnSetDropoutDescriptor, lane->dropout, lane->handle, 0,
                         NULL, 0, 0);
    lane->made = status == RNL_OK;
    return status;
}

static rnl_status set_stream(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream,
                             rnl_error *err)
{
    if (stream == RNL_OWN_STREAM)
        stream = lane->own;
    if (lane->stream == stream)
        return RNL_OK;
    const rnl_cudnn_status result = device->dnn->cudnnSetStream(lane->handle, stream);
    if (result == RNL_CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream belongs to another GPU or context: the RNN is on GPU %d, use a "
                        "stream of that GPU",
                        device->ordinal);
    const rnl_status status = rnl_gpu_dnn(device, "cudnnSetStream", result, err);
    if (status == RNL_OK)
        lane->stream = stream;
    return status;
}

/* May a call in this stream use it? cuDNN may fork onto streams of its handle, which stay in a
 * capture until that ends. A stream that was destroyed is not captured any more. */
static bool is_usable(rnl_gpu_device *device, rnl_lane *lane, rnl_cu_stream stream, bool capturing)
{
    rnl_cu_capture_status found = RNL_CU_STREAM_CAPTURE_STATUS_NONE;
    if (lane->busy || (capturing && !lane->made))
        return false;
    if (!lane->captured_in || lane->captured_in == stream)
        return true;
    if (device->cu->cuStreamIsCapturing(lane->captured_in, &found) == RNL_CUDA_SUCCESS &&
        found != RNL_CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    lane->captured_in = NULL;
    return true;
}

/* Wait for a lane. RNL_E_SPEC: all are in use by captures, which a wait would not end. */
static rnl_status choose(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                         rnl_lane **lane, rnl_error *err)
{
    for (;;) {
        bool any_busy = false;
        int made = 0;
        for (int k = 0; k < RNL_NUM_LANES; k++) {
            *lane = &device->lanes[k];
            any_busy |= (*lane)->busy;
            made += !(*lane)->busy && (*lane)->made; /* one that is in use may be half made */
            if (is_usable(device, *lane, stream, capturing))
                return RNL_OK;
        }
        if (!any_busy)
            return rnl_fail(err, RNL_E_SPEC,
                            "%d open captures use all of cuDNN's handles on GPU %d: end one of "
                            "them, or make a call outside of captures first, which makes a handle",
                            made, device->ordinal);
        pthread_cond_wait(&device->returned, &device->lock);
    }
}

rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                           rnl_lane **lane, rnl_error *err)
{
    pthread_mutex_lock(&device->lock);
    rnl_status status = choose(device, stream, capturing, lane, err);
    if (status == RNL_OK) {
        (*lane)->busy = true;
        if (capturing)
            (*lane)->captured_in = stream;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != RNL_OK)
        return status;
    if (!(*lane)->made)
        status = make(device, *lane, err);
    if (status == RNL_OK)
        status = set_stream(device, *lane, stream, err);
    if (status != RNL_OK)
        rnl_lane_return(device, *lane);
    return status;
}

void rnl_lane_return(rnl_gpu_device *device, rnl_lane *lane)
{
    pthread_mutex_lock(&device->lock);
    lane->busy = false;
    pthread_cond_broadcast(&device->returned);
    pthread_mutex_unlock(&device->lock);
}
