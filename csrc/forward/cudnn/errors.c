/* Errors of failed calls of cuDNN and of the driver, with advice to the user. */
#include "core/status.h"
#include "forward/cudnn/device.h"

static const char NO_MEMORY[] = "the GPU is out of memory: free some, or make the batch smaller";

static rnl_status failed(const rnl_gpu_device *device, const char *call, int number,
                         const char *name, const char *text, const char *advice, rnl_error *err)
{
    rnl_fail(err, RNL_E_CUDNN, "%s on GPU %d: %d (%s)%s%.400s; %s", call, device->ordinal, number,
             name, *text ? ": " : "", text, advice);
    if (advice == NO_MEMORY)
        return err->status = RNL_E_NOMEM;
    err->call = call;
    err->number = number;
    return RNL_E_CUDNN;
}

rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err)
{
    const char *name = NULL, *text = NULL;
    if (result == RNL_CUDA_SUCCESS)
        return RNL_OK;
    device->cu->cuGetErrorName(result, &name);
    device->cu->cuGetErrorString(result, &text);
    return failed(device, call, (int)result, name ? name : "no name", text ? text : "no text",
                  result == RNL_CUDA_ERROR_OUT_OF_MEMORY
                      ? NO_MEMORY
                      : "earlier work of any code in this process may have caused it; if the next "
                        "call fails too, the GPU can only be used from a new process",
                  err);
}

rnl_status rnl_gpu_dnn(rnl_gpu_device *device, const char *call, rnl_cudnn_status result,
                       rnl_error *err)
{
    char text[400] = "";
    const int class = (int)result / 1000 * 1000;
    if (result == RNL_CUDNN_STATUS_SUCCESS)
        return RNL_OK;
    device->dnn->cudnnGetLastErrorString(text, sizeof text); /* also clears the string */
    return failed(
        device, call, (int)result, device->dnn->cudnnGetErrorString(result), text,
        result == RNL_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? NO_MEMORY
        : class == RNL_CUDNN_STATUS_BAD_PARAM ? "this is a bug in rnnlayout: please report it"
        : class == RNL_CUDNN_STATUS_NOT_SUPPORTED
            ? "this cuDNN or GPU does not support it: use another algo or dtype, or the CPU"
            : "if it happens again, restart the process",
        err);
}
