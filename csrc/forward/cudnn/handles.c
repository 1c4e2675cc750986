/* A GPU's handles of cuDNN: a pool, from which each call takes a handle of its own. */
#include <stdlib.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

/* May a call in a stream with this capture use the handle, which no call has? cuDNN may fork onto
 * streams of a handle: after a captured call, they and the witness stay in the capture until it
 * ends. */
static bool is_usable(rnl_gpu_device *device, const rnl_gpu_handle *handle,
                      const rnl_gpu_capture *capture)
{
    rnl_gpu_capture last;
    rnl_error ignored;
    return !handle->witness ||
           (rnl_gpu_get_capture(device, handle->witness, &last, &ignored) == RNL_OK &&
            (!last.active || (capture->active && capture->id == last.id)));
}

/* Return a usable handle, preferably a handle in this stream. NULL: no handle is usable. The call
 * that took a handle changes its stream and witness without the lock, so a taken handle's are not
 * read. */
static rnl_gpu_handle *choose_locked(rnl_gpu_device *device, rnl_cu_stream stream,
                                     const rnl_gpu_capture *capture)
{
    rnl_gpu_handle *chosen = NULL;
    for (rnl_gpu_handle *handle = device->handles; handle; handle = handle->next)
        if (!handle->taken && (!chosen || (handle->stream == stream && chosen->stream != stream)) &&
            is_usable(device, handle, capture))
            chosen = handle;
    return chosen;
}

/* Make a handle, and put it in the pool. */
static rnl_status make_locked(rnl_gpu_device *device, rnl_gpu_handle **handle, rnl_error *err)
{
    rnl_gpu_handle *const made = calloc(1, sizeof *made);
    if (!made)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for a handle of cuDNN");
    const rnl_status status = RNL_DNN(device, err, cudnnCreate, &made->cudnn);
    if (status != RNL_OK) {
        free(made);
        return status;
    }
    made->next = device->handles;
    *handle = device->handles = made;
    return RNL_OK;
}

/* Make the descriptor of no dropout, once. After a failure the next call makes the rest. */
static rnl_status describe_dropout_locked(rnl_gpu_device *device, rnl_gpu_handle *handle,
                                          rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (device->describes_dropout)
        return RNL_OK;
    if (!device->dropout)
        status = RNL_DNN(device, err, cudnnCreateDropoutDescriptor, &device->dropout);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnSetDropoutDescriptor, device->dropout, handle->cudnn, 0,
                         NULL, 0, 0);
    device->describes_dropout = status == RNL_OK;
    return status;
}

static rnl_status take(rnl_gpu_device *device, rnl_cu_stream stream, const rnl_gpu_capture *capture,
                       rnl_gpu_handle **handle, rnl_error *err)
{
    rnl_status status = RNL_OK;
    pthread_mutex_lock(&device->lock);
    *handle = choose_locked(device, stream, capture);
    if (!*handle && !capture->active)
        status = make_locked(device, handle, err);
    if (*handle) {
        status = describe_dropout_locked(device, *handle, err);
        (*handle)->taken = status == RNL_OK;
    }
    pthread_mutex_unlock(&device->lock);
    if (*handle || status != RNL_OK)
        return status;
    rnl_fail(err, RNL_E_SPEC,
             "the stream is capturing, and other calls or captures use all of cuDNN's "
             "handles on GPU %d; a capture makes none: end one of them, or make a call "
             "outside of captures first, during the other captures",
             device->ordinal);
    return RNL_E_SPEC;
}

static rnl_status set_stream(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                             rnl_error *err)
{
    if (handle->stream == stream)
        return RNL_OK;
    const rnl_cudnn_status result = device->dnn->cudnnSetStream(handle->cudnn, stream);
    if (result == RNL_CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream belongs to another GPU or context: the RNN is on GPU %d, use a "
                        "stream of that GPU",
                        device->ordinal);
    const rnl_status status = rnl_gpu_dnn(device, "cudnnSetStream", result, err);
    if (status == RNL_OK)
        handle->stream = stream;
    return status;
}

/* Bring the handle's witness into the capture of the stream. The stream then waits for the witness,
 * because a capture cannot end before its streams are joined. */
static rnl_status join_capture(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                               rnl_error *err)
{
    rnl_status status = RNL_OK;
    if (!handle->witness)
        status = RNL_CU(device, err, cuStreamCreate, &handle->witness, RNL_CU_STREAM_NON_BLOCKING);
    if (status != RNL_OK || (status = rnl_gpu_order(device, stream, handle->witness, err)))
        return status;
    return rnl_gpu_order(device, handle->witness, stream, err);
}

rnl_status rnl_gpu_move_handle(rnl_gpu_device *device, rnl_gpu_handle *handle, rnl_cu_stream stream,
                               const rnl_gpu_capture *capture, rnl_error *err)
{
    const rnl_status status = set_stream(device, handle, stream, err);
    return status == RNL_OK && capture->active ? join_capture(device, handle, stream, err) : status;
}

rnl_status rnl_gpu_take_handle(rnl_gpu_device *device, rnl_cu_stream stream,
                               const rnl_gpu_capture *capture, rnl_gpu_handle **handle,
                               rnl_error *err)
{
    rnl_status status = take(device, stream, capture, handle, err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_move_handle(device, *handle, stream, capture, err);
    if (status != RNL_OK)
        rnl_gpu_return_handle(device, *handle);
    return status;
}

void rnl_gpu_return_handle(rnl_gpu_device *device, rnl_gpu_handle *handle)
{
    pthread_mutex_lock(&device->lock);
    handle->taken = false;
    pthread_mutex_unlock(&device->lock);
}
