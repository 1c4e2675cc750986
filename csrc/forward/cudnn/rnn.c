/* An RNN on a GPU: check that cuDNN supports the RNN, upload the weights, free the RNN. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

/* ---- support by cuDNN, by the version of cuDNN and by the GPU ---- */

static rnl_status check_options(const rnl_spec *spec, const rnl_gpu_options *options,
                                rnl_error *err)
{
    if ((unsigned)options->algo > RNL_GPU_STANDARD || (unsigned)options->math > RNL_GPU_MATH_TF32)
        return rnl_fail(err, RNL_E_SPEC, "algo is %d, math is %d: need values of their enums",
                        (int)options->algo, (int)options->math);
    if (options->math == RNL_GPU_MATH_TF32 && spec->dtype != RNL_FLOAT32)
        return rnl_fail(err, RNL_E_SPEC, "math=\"tf32\" needs float32 weights, these are %s",
                        rnl_name(RNL_NAMES_DTYPE, (int)spec->dtype));
    return RNL_OK;
}

static rnl_status check_device(const rnl_spec *spec, const rnl_gpu_device *device, rnl_error *err)
{
    const int version = device->version;
    if (spec->dtype == RNL_BFLOAT16 && version < 91300)
        return rnl_fail(
            err, RNL_E_SPEC,
            "bfloat16 needs cuDNN 9.13, this is %d.%d.%d: install a newer one, or use float16",
            version / 10000, version % 10000 / 100, version % 100);
    if (spec->dtype == RNL_BFLOAT16 && device->capability < 80)
        return rnl_fail(err, RNL_E_SPEC,
                        "bfloat16 needs a GPU of compute capability 8.0, GPU %d has %d.%d: use "
                        "float16 or float32",
                        device->ordinal, device->capability / 10, device->capability % 10);
    return RNL_OK;
}

/* Get the number of bytes of cuDNN's weight space. RNL_E_SPEC: cuDNN does not support the RNN. */
static rnl_status measure(const rnl_spec *spec, size_t *nbytes, rnl_error *err)
{
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = 0};
    const int64_t D = spec->bidirectional ? 2 : 1;
    if (rnl_spec_check(spec, err) != RNL_OK || rnl_layout_named("cudnn", &layout, err) != RNL_OK ||
        rnl_layout_tensor(&layout, spec, rnl_spec_optional(spec), 0, &tensor, err) != RNL_OK)
        return err->status = RNL_E_SPEC;
    if (spec->input_size > INT_MAX || spec->hidden_size > INT_MAX / D ||
        spec->num_layers > INT_MAX / D)
        return rnl_fail(err, RNL_E_SPEC,
                        "input_size is %" PRId64 ", hidden_size %" PRId64 ", num_layers %" PRId64
                        ": cuDNN supports sizes up to %d, over both directions",
                        spec->input_size, spec->hidden_size, spec->num_layers, INT_MAX);
    *nbytes = (size_t)(tensor.nelems * rnl_dtype_nbytes(spec->dtype));
    return RNL_OK;
}

/* ---- upload ---- */

/* Describe the smallest call, and compare the size of cuDNN's weight space with our table's size.
 */
static rnl_status check_weight_space(rnl_gpu_rnn *rnn, rnl_error *err)
{
    const rnl_gpu_job job = {.sizes = {.T = 1, .N = 1, .algo = RNL_CUDNN_RNN_ALGO_STANDARD}};
    rnl_gpu_device *const device = rnn->device;
    rnl_gpu_handle *handle;
    size_t nbytes = 0;
    rnl_status status = rnl_gpu_take_handle(device, device->host_stream, &job.capture, &handle,
                                            err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_descriptors_make_locked(rnn, handle, &job, err);
    if (status == RNL_OK)
        status = RNL_DNN(device, err, cudnnGetRNNWeightSpaceSize, handle->cudnn,
                         rnn->descriptors->rnn, &nbytes);
    rnl_gpu_return_handle(device, handle);
    if (status != RNL_OK || nbytes == rnn->nbytes)
        return status;
    rnl_fail(err, RNL_E_CUDNN,
             "cudnnGetRNNWeightSpaceSize returned %zu bytes, rnnlayout's own table has %zu: please "
             "report this with the spec",
             nbytes, rnn->nbytes);
    err->call = "cudnnGetRNNWeightSpaceSize";
    err->number = 0;
    return RNL_E_CUDNN;
}

static rnl_status upload(rnl_gpu_rnn *rnn, const void *weights, rnl_error *err)
{
    /* Never NULL here. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    rnl_gpu_device *const device = rnn->device;
    rnl_status status = check_weight_space(rnn, err);
    if (status != RNL_OK ||
        (status = rnl_gpu_memory(device, rnn->nbytes, "weights", &rnn->weights, err)) ||
        (status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, rnn->weights, weights, rnn->nbytes,
                         device->host_stream)))
        return status;
    /* wait now, so that no call on any stream needs to wait */
    return RNL_CU(device, err, cuStreamSynchronize, device->host_stream);
}

static rnl_status make(const rnl_spec *spec, const rnl_gpu_options *options, size_t nbytes,
                       rnl_gpu_device *device, rnl_gpu_rnn **result, rnl_error *err)
{
    const rnl_status status = check_device(spec, device, err);
    if (status != RNL_OK)
        return status;
    rnl_gpu_rnn *const rnn = calloc(1, sizeof *rnn);
    if (!rnn)
        return rnl_fail(err, RNL_E_NOMEM, "no host memory for an RNN");
    rnn->spec = *spec;
    rnn->options = *options;
    rnn->device = device;
    rnn->directions = spec->bidirectional ? 2 : 1;
    rnn->state_size = spec->proj_size ? spec->proj_size : spec->hidden_size;
    rnn->unit = (size_t)rnl_dtype_nbytes(spec->dtype);
    rnn->nbytes = nbytes;
    pthread_mutex_init(&rnn->lock, NULL);
    *result = rnn;
    return RNL_OK;
}

rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                           const rnl_gpu_options *options, rnl_gpu_rnn **rnn, rnl_error *err)
{
    static const rnl_gpu_options none = {0};
    rnl_gpu_entry in;
    rnl_gpu_rnn *result = NULL;
    size_t nbytes = 0;
    rnl_status status;
    options = options ? options : &none;
    if ((status = measure(spec, &nbytes, err)) || (status = check_options(spec, options, err)) ||
        (status = rnl_gpu_enter(options->device, &in, err)))
        return status;
    status = make(spec, options, nbytes, in.device, &result, err);
    if (status == RNL_OK)
        status = upload(result, weights, err);
    rnl_gpu_leave(&in, status);
    if (status == RNL_OK)
        *rnn = result;
    else
        rnl_gpu_rnn_free(result);
    return status;
}

/* ---- update ---- */

/* Create what updates need, and wait for the device: calls before the first update record nothing,
 * so that an RNN without updates pays nothing for them. */
static rnl_status start_updates(rnl_gpu_rnn *rnn, rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_cu_address memory = 0;
    rnl_status status = RNL_OK;
    if (!rnn->staging)
        status = RNL_CU(device, err, cuMemHostAlloc, &rnn->staging, rnn->nbytes, 0);
    if (status == RNL_OK && !rnn->written)
        status = RNL_CU(device, err, cuEventCreate, &rnn->written, RNL_CU_EVENT_DISABLE_TIMING);
    if (status != RNL_OK ||
        (status = rnl_gpu_memory(device, 1, "an update of the weights", &memory, err)) ||
        (status = RNL_CU(device, err, cuMemFree_v2, memory))) /* waits, and breaks no capture */
        return status;
    return RNL_CU(device, err, cuStreamCreate, &rnn->updates, RNL_CU_STREAM_NON_BLOCKING);
}

static rnl_status update(rnl_gpu_rnn *rnn, const void *weights, rnl_cu_stream stream,
                         rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    rnl_gpu_capture capture;
    rnl_status status = rnl_gpu_get_capture(device, stream, &capture, err);
    if (status != RNL_OK)
        return status;
    if (capture.active)
        return rnl_fail(err, RNL_E_SPEC,
                        "the stream of an update is being captured: update before or after the "
                        "capture, or pass another stream");
    status = rnn->updates ? RNL_CU(device, err, cuEventSynchronize, rnn->written)
                          : start_updates(rnn, err);
    if (status != RNL_OK)
        return status;
    memcpy(rnn->staging, weights, rnn->nbytes);
    if ((status = rnl_gpu_order(device, stream, rnn->updates, err)) ||
        (status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, rnn->weights, rnn->staging, rnn->nbytes,
                         rnn->updates)) ||
        (status = RNL_CU(device, err, cuEventRecord, rnn->written, rnn->updates)))
        return status;
    return RNL_CU(device, err, cuStreamWaitEvent, stream, rnn->written, 0);
}

rnl_status rnl_gpu_rnn_update(rnl_gpu_rnn *rnn, const void *weights, void *stream, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_status status = rnl_gpu_rnn_lock(rnn, err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_enter(rnn->options.device, &in, err);
    if (status == RNL_OK)
        status = rnl_gpu_leave(&in, update(rnn, weights, stream, err));
    pthread_mutex_unlock(&rnn->lock);
    return status;
}

/* ---- locking and freeing ---- */

rnl_status rnl_gpu_rnn_lock(rnl_gpu_rnn *rnn, rnl_error *err)
{
    const rnl_status status = rnl_cudnn_check_fork(err);
    if (status == RNL_OK)
        pthread_mutex_lock(&rnn->lock);
    return status;
}

void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn)
{
    rnl_gpu_entry in;
    rnl_error ignored;
    if (!rnn)
        return;
    if (rnl_gpu_enter(rnn->options.device, &in, &ignored) == RNL_OK) {
        rnl_gpu_descriptors_free(rnn);
        if (rnn->weights)
            in.device->cu->cuMemFree_v2(
                rnn->weights); /* waits for the calls that read the weights */
        if (rnn->block)
            in.device->cu->cuMemFree_v2(rnn->block);
        if (rnn->updates)
            in.device->cu->cuStreamDestroy_v2(rnn->updates);
        if (rnn->written)
            in.device->cu->cuEventDestroy_v2(rnn->written);
        if (rnn->staging)
            in.device->cu->cuMemFreeHost(rnn->staging);
        rnl_gpu_leave(&in, RNL_OK);
    }
    pthread_mutex_destroy(&rnn->lock);
    free(rnn->descriptors); /* not NULL in a forked child only */
    free(rnn);
}
