/* An RNN on a GPU: check what cuDNN supports, upload the weights, free it, copy the weights back.
 */
#include "forward/cudnn/rnn.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/clip.h"
#include "core/status.h"
#include "forward/cudnn/clamp.h"
#include "forward/cudnn/stage.h"

static const rnl_cudnn_data_type TYPES[] = {
    [RNL_FLOAT16] = RNL_CUDNN_DATA_HALF,
    [RNL_BFLOAT16] = RNL_CUDNN_DATA_BFLOAT16,
    [RNL_FLOAT32] = RNL_CUDNN_DATA_FLOAT,
    [RNL_FLOAT64] = RNL_CUDNN_DATA_DOUBLE,
};

/* ---- what cuDNN, its version and the GPU support ---- */

static rnl_status check_device(const rnl_spec *spec, const rnl_gpu_options *options,
                               const rnl_cudnn_in_use *used, rnl_error *err)
{
    const int version = used->library->version;
    int parts[3];
    rnl_cudnn_version_parts(version, parts);
    if (spec->dtype == RNL_BFLOAT16 && version < 90000)
        return rnl_fail(
            err, RNL_E_SPEC,
            "bfloat16 needs cuDNN 9, this is %d.%d.%d: install a newer one, or use float16",
            parts[0], parts[1], parts[2]);
    if (spec->dtype == RNL_BFLOAT16 && used->capability < 80)
        return rnl_fail(err, RNL_E_SPEC,
                        "bfloat16 needs a GPU of compute capability 8.0, GPU %d has %d.%d: use "
                        "float16 or float32",
                        options->device, used->capability / 10, used->capability % 10);
    if (options->algo > RNL_GPU_STANDARD && used->capability < 60)
        return rnl_fail(err, RNL_E_SPEC,
                        "algo=\"%s\" needs a GPU of compute capability 6.0, GPU %d has %d.%d: use "
                        "\"standard\"",
                        rnl_algo_name(options), options->device, used->capability / 10,
                        used->capability % 10);
    return RNL_OK;
}

/* The bytes of cuDNN's weight space. RNL_E_SPEC: cuDNN does not support such an RNN. */
static rnl_status measure(const rnl_spec *spec, size_t *nbytes, rnl_error *err)
{
    rnl_layout layout;
    rnl_tensor tensor = {.nelems = 0};
    const int64_t D = spec->bidirectional ? 2 : 1;
    rnl_status status = rnl_spec_check(spec, err);
    if (status == RNL_OK)
        status = rnl_layout_named("cudnn", &layout, err);
    if (status == RNL_OK)
        status = rnl_layout_tensor(&layout, spec, rnl_spec_has(spec), 0, &tensor, err);
    if (status != RNL_OK)
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

/* An algorithm that cuDNN must support for this RNN. */
static rnl_gpu_algo always(const rnl_gpu_rnn *rnn)
{
    return rnn->options.algo == RNL_GPU_AUTO ? RNL_GPU_STANDARD : rnn->options.algo;
}

/* Check that cuDNN's weight space has the size of our table's. */
static rnl_status check_weight_space(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_error *err)
{
    size_t nbytes = 0;
    const rnl_status status = RNL_DNN(rnn->device, err, cudnnGetRNNWeightSpaceSize, lane->handle,
                                      rnn->seats[lane->index].rnn[always(rnn)][0], &nbytes);
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

/* To the GPU or back. The host waits until it is done, so no call on any stream needs to. */
static rnl_status copy_weights(rnl_gpu_rnn *rnn, rnl_lane *lane, const void *weights, bool to_gpu,
                               rnl_error *err)
{
    rnl_gpu_device *const device = rnn->device;
    const rnl_piece piece = {(char *)weights, rnn->nbytes, 0};
    const rnl_asked nobody = {0};
    rnl_status status = rnl_lane_begin(device, lane, lane->own, false, err);
    if (status != RNL_OK)
        return status;
    if (to_gpu) {
        status = rnl_stage_in(device, lane->own, rnn->weights, &piece, 1, err);
        if (status == RNL_OK)
            status = RNL_CU(device, err, cuStreamSynchronize, lane->own);
    } else {
        status = rnl_stage_out(device, lane, lane->own, rnn->weights, &piece, 1, nobody, err);
    }
    status = rnl_lane_end(device, lane, status, err);
    if (status == RNL_OK)
        rnl_lane_finished(lane);
    return status;
}

/* Ask cuDNN about the smallest call: it has limits of its own for the persistent algorithms. */
static rnl_status probe(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_error *err)
{
    const rnl_gpu_job job = {.T = 1, .N = 1, .algo = rnn->options.algo};
    rnl_gpu_plan *plan;
    if (job.algo == RNL_GPU_AUTO || job.algo == RNL_GPU_STANDARD)
        return RNL_OK;
    const rnl_status status = rnl_gpu_plan_get(rnn, lane, &job, &plan, err);
    if (status != RNL_E_CUDNN || !rnl_gpu_not_supported(err))
        return status;
    const rnl_error why = *err;
    return rnl_fail(err, RNL_E_SPEC,
                    "algo=\"%s\" cannot run this RNN on this GPU: use \"standard\" (%.700s)",
                    rnl_algo_name(&rnn->options), why.text);
}

static rnl_status upload(rnl_gpu_rnn *rnn, rnl_lane *lane, const void *weights, rnl_error *err)
{
    rnl_status status = rnl_seat_describe(rnn, lane, always(rnn), false, err);
    if (status == RNL_OK)
        status = check_weight_space(rnn, lane, err);
    if (status == RNL_OK)
        status = probe(rnn, lane, err);
    if (status == RNL_OK && rnn->options.clips)
        status = rnl_clamp_prepare(rnn->device, rnn->spec.dtype, err);
    if (status == RNL_OK)
        status = rnl_gpu_memory(rnn->device, rnn->nbytes, "weights", &rnn->weights, err);
    if (status == RNL_OK)
        status = copy_weights(rnn, lane, weights, true, err);
    return status;
}

static rnl_status fill(rnl_gpu_rnn *rnn, const void *weights, rnl_error *err)
{
    rnl_lane *lane;
    rnl_status status = rnl_lane_borrow(rnn->device, RNL_OWN_STREAM, NULL, NULL, &lane, err);
    if (status != RNL_OK)
        return status;
    status = upload(rnn, lane, weights, err);
    rnl_lane_return(rnn->device, lane);
    return status;
}

static rnl_status make(const rnl_spec *spec, const rnl_gpu_options *options, size_t nbytes,
                       rnl_gpu_device *device, rnl_gpu_rnn **made, rnl_error *err)
{
    rnl_status status = check_device(spec, options, &device->used, err);
    if (status != RNL_OK)
        return status;
    rnl_gpu_rnn *const rnn = calloc(1, sizeof *rnn);
    if (!rnn) {
        rnl_fail(err, RNL_E_NOMEM, "no host memory for an RNN");
        return RNL_E_NOMEM;
    }
    rnn->spec = *spec;
    rnn->options = *options;
    rnn->device = device;
    rnn->directions = spec->bidirectional ? 2 : 1;
    rnn->state_size = spec->proj_size ? spec->proj_size : spec->hidden_size;
    rnn->unit = (size_t)rnl_dtype_nbytes(spec->dtype);
    rnn->type = TYPES[spec->dtype];
    rnn->nbytes = nbytes;
    if ((status = rnl_lanes_join(device, err)) == RNL_OK)
        *made = rnn;
    else
        free(rnn);
    return status;
}

rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                           const rnl_gpu_options *options, rnl_gpu_rnn **rnn, rnl_error *err)
{
    static const rnl_gpu_options none = {0};
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode;
    rnl_gpu_rnn *made = NULL;
    size_t nbytes = 0;
    options = options ? options : &none;
    rnl_status status = measure(spec, &nbytes, err);
    if (status == RNL_OK && options->clips)
        status = rnl_clip_check(spec, options->clip_low, options->clip_high, err);
    if (status == RNL_OK)
        status = rnl_algo_check(spec, options, err);
    if (status == RNL_OK)
        status = rnl_gpu_enter(options->device, &device, &mode, err);
    if (status != RNL_OK)
        return status;
    status = make(spec, options, nbytes, device, &made, err);
    if (status == RNL_OK)
        status = fill(made, weights, err);
    status = rnl_gpu_leave(device, mode, status, err);
    if (status == RNL_OK)
        *rnn = made;
    else
        rnl_gpu_rnn_free(made);
    return status;
}

/* ---- the end ---- */

/* Free its descriptors in each lane; the lane is borrowed, so that no call is running in it. */
static void clear_seats(rnl_gpu_rnn *rnn, bool works)
{
    rnl_lane *lane;
    for (int k = 0; k < RNL_NUM_LANES; k++)
        if (rnl_lane_borrow_this(rnn->device, k, &lane)) {
            rnl_seat_clear(rnn, k, works);
            rnl_lane_return(rnn->device, lane);
        }
}

static void drop_held(rnl_gpu_rnn *rnn, bool works)
{
    while (rnn->held) {
        rnl_held *const first = rnn->held;
        rnn->held = first->next;
        rnl_workspace_drop(rnn->device, first->workspace, works);
        free(first);
    }
}

void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn)
{
    rnl_error ignored;
    if (!rnn)
        return;
    rnl_gpu_device *device = rnn->device;
    if (rnl_cudnn_check_fork(device->used.pid, &ignored) == RNL_OK) {
        rnl_cu_capture_mode mode;
        const bool works = rnl_gpu_enter_to_free(device->ordinal, &device, &mode);
        clear_seats(rnn, works);
        drop_held(rnn, works);
        if (works && rnn->weights)
            device->cu->cuMemFree_v2(rnn->weights); /* waits for the calls that read them */
        rnl_lanes_leave(device, works);
        if (works)
            rnl_gpu_leave(device, mode, RNL_OK, &ignored);
    }
    free(rnn);
}

/* ---- the weights back ---- */

rnl_status rnl_gpu_rnn_weights(rnl_gpu_rnn *rnn, void *weights, rnl_error *err)
{
    rnl_gpu_device *device;
    rnl_cu_capture_mode mode;
    rnl_lane *lane;
    rnl_status status = rnl_gpu_enter(rnn->options.device, &device, &mode, err);
    if (status != RNL_OK)
        return status;
    status = rnl_lane_borrow(device, RNL_OWN_STREAM, NULL, NULL, &lane, err);
    if (status == RNL_OK) {
        status = copy_weights(rnn, lane, weights, false, err);
        rnl_lane_return(device, lane);
    }
    return rnl_gpu_leave(device, mode, status, err);
}
