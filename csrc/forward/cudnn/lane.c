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
    if ((int)result == RNL_CUDNN9_STATUS_BAD_PARAM_STREAM_MISMATCH ||
        (int)result == RNL_CUDNN8_STATUS_MAPPING_ERROR)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream belongs to another GPU or context: the RNN is on GPU %d, use a "
                        "stream of that GPU",
                        device->ordinal);
    const rnl_status status = rnl_gpu_dnn(device, "cudnnSetStream", result, err);
    if (status == RNL_OK)
        lane->stream = stream;
    return status;
}

static rnl_lane *choose(rnl_gpu_device *device, bool capturing)
{
    for (int k = 0; k < RNL_NUM_LANES; k++)
        if (!device->lanes[k].busy && (device->lanes[k].made || !capturing))
            return &device->lanes[k];
    return NULL;
}

rnl_status rnl_lane_borrow(rnl_gpu_device *device, rnl_cu_stream stream, bool capturing,
                           rnl_lane **lane, rnl_error *err)
{
    pthread_mutex_lock(&device->lock);
    while (!(*lane = choose(device, capturing)))
        pthread_cond_wait(&device->returned, &device->lock);
    (*lane)->busy = true;
    pthread_mutex_unlock(&device->lock);
    rnl_status status = (*lane)->made ? RNL_OK : make(device, *lane, err);
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
