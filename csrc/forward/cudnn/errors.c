/* Failed calls of cuDNN and of the driver: what failed, and what the user can do. */
#include <inttypes.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/device.h"

/* Errors after which the context is lost, with all memory in it: those that leave the process in an
 * inconsistent state, by the vendor's header. */
static bool sticks(rnl_cu_result result)
{
    switch ((int)result) {
    case RNL_CUDA_ERROR_ECC_UNCORRECTABLE:
    case RNL_CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case RNL_CUDA_ERROR_CONTAINED:
    case RNL_CUDA_ERROR_ILLEGAL_ADDRESS:
    case RNL_CUDA_ERROR_LAUNCH_TIMEOUT:
    case RNL_CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case RNL_CUDA_ERROR_ASSERT:
    case RNL_CUDA_ERROR_HARDWARE_STACK_ERROR:
    case RNL_CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case RNL_CUDA_ERROR_MISALIGNED_ADDRESS:
    case RNL_CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case RNL_CUDA_ERROR_INVALID_PC:
    case RNL_CUDA_ERROR_LAUNCH_FAILED:
    case RNL_CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case RNL_CUDA_ERROR_EXTERNAL_DEVICE: return true;
    default: return false;
    }
}

static rnl_status failed(rnl_error *err, rnl_status status, const char *call, int number)
{
    err->call = call;
    err->number = number;
    return status;
}

static const char *name_of(const rnl_gpu_device *device, rnl_cu_result result)
{
    const char *name = NULL;
    device->cu->cuGetErrorName(result, &name);
    return name ? name : "no name";
}

rnl_status rnl_gpu_check_alive(rnl_gpu_device *device, rnl_error *err)
{
    const rnl_cu_result died = (rnl_cu_result)atomic_load(&device->died);
    if (died == RNL_CUDA_SUCCESS)
        return RNL_OK;
    rnl_fail(
        err, RNL_E_CUDNN,
        "GPU %d cannot be used by this process any more, since %s failed with %d (%s): restart "
        "the process",
        device->ordinal, device->died_call, (int)died, name_of(device, died));
    return failed(err, RNL_E_CUDNN, device->died_call, (int)died);
}

rnl_status rnl_gpu_cu(rnl_gpu_device *device, const char *call, rnl_cu_result result,
                      rnl_error *err)
{
    if (result == RNL_CUDA_SUCCESS)
        return RNL_OK;
    const char *text = NULL;
    const bool lost = sticks(result);
    if (lost && !atomic_load(&device->died)) {
        device->died_call = call;
        atomic_store(&device->died, (int)result);
    }
    device->cu->cuGetErrorString(result, &text);
    rnl_fail(
        err, RNL_E_CUDNN, "%s on GPU %d: %d (%s): %.300s%s", call, device->ordinal, (int)result,
        name_of(device, result), text ? text : "no text",
        lost ? "; all later calls on this GPU will fail, and other code of this process may have "
               "caused it: restart the process"
        : result == RNL_CUDA_ERROR_OUT_OF_MEMORY
            ? "; the GPU is out of memory: free some, or make the batch smaller"
            : "");
    if (result == RNL_CUDA_ERROR_OUT_OF_MEMORY)
        return err->status = RNL_E_NOMEM;
    return failed(err, RNL_E_CUDNN, call, (int)result);
}

/* ---- cuDNN's statuses, in classes ---- */

typedef enum { NOT_READY, BAD_PARAM, NOT_SUPPORTED, NO_ROOM, MISSING, OTHER } class_of_failure;

static class_of_failure classify(int status)
{
    switch (status) {
    case RNL_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: return NO_ROOM;
    case RNL_CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
    case RNL_CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
    case RNL_CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE: return MISSING;
    default: break;
    }
    switch (status / 1000 * 1000) {
    case 1000: return NOT_READY;
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
    [NOT_READY] = "cuDNN found no usable GPU, or no free memory on it",
    [BAD_PARAM] = "this is a bug in rnnlayout: please report it",
    [NOT_SUPPORTED] =
        "this cuDNN or GPU does not support it: use another algo or dtype, or the CPU",
    [NO_ROOM] = "the GPU is out of memory: free some, or make the batch smaller",
    [MISSING] = "a part of this cuDNN is missing or has another version: reinstall cuDNN",
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
    if (found == NO_ROOM)
        return err->status = RNL_E_NOMEM;
    return failed(err, RNL_E_CUDNN, call, (int)result);
}
