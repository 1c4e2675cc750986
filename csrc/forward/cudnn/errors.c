/* Failed calls of cuDNN and of the driver: what failed, and what the user can do. */
#include "core/status.h"
#include "forward/cudnn/device.h"

static const char NO_ROOM_ADVICE[] = "the GPU is out of memory: free some, or make the batch "
                                     "smaller";

static rnl_status failed(rnl_error *err, const char *call, int number, bool no_room)
{
    if (no_room)
        return err->status = RNL_E_NOMEM;
    err->call = call;
    err->number = number;
    return RNL_E_CUDNN;
}

rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err)
{
    if (result == RNL_CUDA_SUCCESS)
        return RNL_OK;
    const char *name = NULL, *text = NULL;
    const bool no_room = result == RNL_CUDA_ERROR_OUT_OF_MEMORY;
    device->cu->cuGetErrorName(result, &name);
    device->cu->cuGetErrorString(result, &text);
    rnl_fail(err, RNL_E_CUDNN, "%s on GPU %d: %d (%s): %.300s; %s", call, device->ordinal,
             (int)result, name ? name : "no name", text ? text : "no text",
             no_room ? NO_ROOM_ADVICE
                     : "earlier work of any code in this process may have caused it; if the next "
                       "call fails too, the GPU can only be used from a new process");
    return failed(err, call, (int)result, no_room);
}

/* ---- cuDNN's statuses, in classes ---- */

typedef enum { BAD_PARAM, NOT_SUPPORTED, NO_ROOM, OTHER } class_of_failure;

static class_of_failure classify(int status)
{
    if (status == RNL_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return NO_ROOM;
    switch (status / 1000 * 1000) {
    case RNL_CUDNN_STATUS_BAD_PARAM: return BAD_PARAM;
    case RNL_CUDNN_STATUS_NOT_SUPPORTED: return NOT_SUPPORTED;
    default: return OTHER;
    }
}

bool rnl_gpu_not_supported(const rnl_error *err)
{
    return classify(err->number) == NOT_SUPPORTED;
}

static const char *const ADVICE[] = {
    [BAD_PARAM] = "this is a bug in rnnlayout: please report it",
    [NOT_SUPPORTED] =
        "this cuDNN or GPU does not support it: use another algo or dtype, or the CPU",
    [NO_ROOM] = NO_ROOM_ADVICE,
    [OTHER] = "if it happens again, restart the process",
};

rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err)
{
    if (result == RNL_CUDNN_STATUS_SUCCESS)
        return RNL_OK;
    const class_of_failure found = classify((int)result);
    char text[400] = "";
    device->dnn->cudnnGetLastErrorString(text, sizeof text); /* which clears it */
    rnl_fail(err, RNL_E_CUDNN, "%s on GPU %d: %d (%s)%s%.400s; %s", call, device->ordinal,
             (int)result, device->dnn->cudnnGetErrorString(result), *text ? ": " : "", text,
             ADVICE[found]);
    return failed(err, call, (int)result, found == NO_ROOM);
}
