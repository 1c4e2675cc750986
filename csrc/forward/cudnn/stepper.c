/* A stepper on a GPU: a step of one sequence that is captured into a graph once, and launched. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "forward/cudnn/rnn.h"

enum { STEP_H, STEP_C, STEP_X, STEP_Y, STEP_ARRAYS };

struct rnl_gpu_stepper {
    rnl_gpu_rnn *rnn;
    size_t nbytes[STEP_ARRAYS]; /* of C: 0 unless the RNN is an LSTM */
    rnl_cu_address at[STEP_ARRAYS];
    rnl_cu_address arrays, workspace; /* memory of the device */
    void *x; /* memory of the host that the GPU reads, and y after x that the GPU writes */
    char *y;
    rnl_cu_stream stream;
    rnl_cu_graph_exec step; /* copies x to the device, runs the RNN, copies y to the host */
};

/* ---- making: memory, a first step, the graph ---- */

/* The step as a call on the memory of the stepper. */
static rnl_gpu_call call_of(const rnl_gpu_stepper *stepper)
{
    void *at[STEP_ARRAYS] = {NULL};
    for (int k = 0; k < STEP_ARRAYS; k++)
        if (stepper->nbytes[k])
            at[k] = rnl_gpu_pointer(stepper->at[k]);
    return (rnl_gpu_call){.T = 1,
                          .N = 1,
                          .x = at[STEP_X],
                          .h0 = at[STEP_H],
                          .c0 = at[STEP_C],
                          .y = at[STEP_Y],
                          .hn = at[STEP_H],
                          .cn = at[STEP_C],
                          .stream = stepper->stream};
}

/* Reserve memory for the arrays of a step, each at an address that the driver aligns. */
static rnl_status reserve(rnl_gpu_stepper *stepper, rnl_error *err)
{
    rnl_gpu_device *const device = stepper->rnn->device;
    const size_t x_nbytes = stepper->nbytes[STEP_X], y_nbytes = stepper->nbytes[STEP_Y];
    size_t used = 0;
    for (int k = 0; k < STEP_ARRAYS; k++) {
        stepper->at[k] = used;
        used += rnl_gpu_aligned(stepper->nbytes[k]);
    }
    rnl_status status;
    if ((status = rnl_gpu_memory(device, used, "a stepper", &stepper->arrays, err)) ||
        (status = RNL_CU(device, err, cuMemHostAlloc, &stepper->x, x_nbytes + y_nbytes, 0)) ||
        (status = RNL_CU(device, err, cuStreamCreate, &stepper->stream,
                         RNL_CU_STREAM_NON_BLOCKING)))
        return status;
    for (int k = 0; k < STEP_ARRAYS; k++)
        stepper->at[k] += stepper->arrays;
    stepper->y = (char *)stepper->x + x_nbytes;
    return RNL_CU(device, err, cuMemsetD8Async, stepper->arrays, 0, used, stepper->stream);
}

/* Copy x, run the RNN and copy y in the stream of the stepper. */
static rnl_status submit(rnl_gpu_stepper *stepper, const rnl_gpu_call *call, rnl_gpu_handle *handle,
                         rnl_error *err)
{
    rnl_gpu_device *const device = stepper->rnn->device;
    rnl_status status;
    if ((status = RNL_CU(device, err, cuMemcpyHtoDAsync_v2, stepper->at[STEP_X], stepper->x,
                         stepper->nbytes[STEP_X], stepper->stream)) ||
        (status = rnl_gpu_run(stepper->rnn, call, handle, err)))
        return status;
    return RNL_CU(device, err, cuMemcpyDtoHAsync_v2, stepper->y, stepper->at[STEP_Y],
                  stepper->nbytes[STEP_Y], stepper->stream);
}

/* Capture a step. A capture that has begun is ended whatever happens. */
static rnl_status capture(rnl_gpu_stepper *stepper, const rnl_gpu_call *call,
                          rnl_gpu_handle *handle, rnl_error *err)
{
    rnl_gpu_device *const device = stepper->rnn->device;
    rnl_cu_graph graph = NULL;
    rnl_error ignored;
    rnl_status status = RNL_CU(device, err, cuStreamBeginCapture_v2, stepper->stream,
                               RNL_CU_STREAM_CAPTURE_MODE_RELAXED);
    if (status != RNL_OK)
        return status;
    status = submit(stepper, call, handle, err);
    const rnl_status end = RNL_CU(device, status == RNL_OK ? err : &ignored, cuStreamEndCapture,
                                  stepper->stream, &graph);
    status = status == RNL_OK ? end : status;
    if (status == RNL_OK)
        status = RNL_CU(device, err, cuGraphInstantiateWithFlags, &stepper->step, graph, 0);
    if (graph)
        device->cu->cuGraphDestroy(graph);
    return status;
}

/* Run a step, so that cuDNN loads its kernels, and then capture a step, with one handle: another
 * thread might have all the handles when the capture begins, and no handle is made then. */
static rnl_status run_and_capture(rnl_gpu_stepper *stepper, const rnl_gpu_call *call,
                                  rnl_error *err)
{
    static const rnl_gpu_capture none = {.active = false};
    rnl_gpu_device *const device = stepper->rnn->device;
    rnl_gpu_handle *handle;
    rnl_status status = rnl_gpu_take_handle(device, stepper->stream, &none, &handle, err);
    if (status != RNL_OK)
        return status;
    status = submit(stepper, call, handle, err);
    if (status == RNL_OK)
        status = capture(stepper, call, handle, err);
    rnl_gpu_return_handle(device, handle);
    return status;
}

static rnl_status make(rnl_gpu_stepper *stepper, rnl_error *err)
{
    rnl_gpu_rnn *const rnn = stepper->rnn;
    int64_t work_nbytes = 0;
    rnl_status status = reserve(stepper, err);
    if (status != RNL_OK)
        return status;
    memset(stepper->x, 0, stepper->nbytes[STEP_X]);
    rnl_gpu_call call = call_of(stepper);
    if ((status = rnl_gpu_rnn_workspace(rnn, &call, &work_nbytes, err)) ||
        (status = rnl_gpu_memory(rnn->device, (size_t)work_nbytes, "the workspace of a stepper",
                                 &stepper->workspace, err)))
        return status;
    call.workspace = rnl_gpu_pointer(stepper->workspace);
    call.workspace_nbytes = work_nbytes;
    status = run_and_capture(stepper, &call, err);
    return status == RNL_OK ? rnl_gpu_stepper_set(stepper, NULL, NULL, err) : status;
}

rnl_status rnl_gpu_stepper_new(rnl_gpu_rnn *rnn, rnl_gpu_stepper **stepper, rnl_error *err)
{
    const rnl_spec *const spec = &rnn->spec;
    const size_t L = (size_t)spec->num_layers;
    rnl_gpu_entry in;
    if (rnn->directions == 2)
        return rnl_fail(err, RNL_E_SPEC,
                        "a stepper needs one direction: the backward direction begins at the last "
                        "step");
    rnl_status status = rnl_gpu_enter(rnn->options.device, &in, err);
    if (status != RNL_OK)
        return status;
    rnl_gpu_stepper *const made = calloc(1, sizeof *made);
    if (made) {
        made->rnn = rnn;
        made->nbytes[STEP_H] = L * (size_t)rnn->state_size * rnn->unit;
        made->nbytes[STEP_C] = spec->cell == RNL_LSTM ? L * (size_t)spec->hidden_size * rnn->unit
                                                      : 0;
        made->nbytes[STEP_X] = (size_t)spec->input_size * rnn->unit;
        made->nbytes[STEP_Y] = (size_t)rnn->state_size * rnn->unit;
        status = make(made, err);
    } else {
        status = rnl_fail(err, RNL_E_NOMEM, "no host memory for a stepper");
    }
    rnl_gpu_leave(&in, status);
    if (status == RNL_OK)
        *stepper = made;
    else
        rnl_gpu_stepper_free(made);
    return status;
}

void rnl_gpu_stepper_free(rnl_gpu_stepper *stepper)
{
    rnl_gpu_entry in;
    rnl_error ignored;
    if (!stepper)
        return;
    if (rnl_gpu_enter(stepper->rnn->options.device, &in, &ignored) == RNL_OK) {
        const rnl_driver_table *const cu = in.device->cu;
        if (stepper->stream)
            cu->cuStreamSynchronize(stepper->stream); /* after an error a step may still run */
        if (stepper->step)
            cu->cuGraphExecDestroy(stepper->step);
        if (stepper->stream)
            cu->cuStreamDestroy_v2(stepper->stream);
        if (stepper->workspace)
            cu->cuMemFree_v2(stepper->workspace);
        if (stepper->arrays)
            cu->cuMemFree_v2(stepper->arrays);
        if (stepper->x)
            cu->cuMemFreeHost(stepper->x);
        rnl_gpu_leave(&in, RNL_OK);
    }
    free(stepper);
}

/* ---- steps ---- */

static rnl_status launch(rnl_gpu_stepper *stepper, const char *x, char *y, int64_t n,
                         rnl_error *err)
{
    rnl_gpu_rnn *const rnn = stepper->rnn;
    const size_t x_nbytes = stepper->nbytes[STEP_X], y_nbytes = stepper->nbytes[STEP_Y];
    rnl_status status = RNL_OK;
    if (rnn->updates) /* a later update needs no order: every step ends below */
        status = RNL_CU(rnn->device, err, cuStreamWaitEvent, stepper->stream, rnn->written, 0);
    for (int64_t k = 0; k < n && status == RNL_OK; k++, x += x_nbytes, y += y_nbytes) {
        memcpy(stepper->x, x, x_nbytes);
        if ((status = RNL_CU(rnn->device, err, cuGraphLaunch, stepper->step, stepper->stream)) ||
            (status = RNL_CU(rnn->device, err, cuStreamSynchronize, stepper->stream)))
            return status;
        memcpy(y, stepper->y, y_nbytes);
    }
    return status;
}

rnl_status rnl_gpu_stepper_run(rnl_gpu_stepper *stepper, const void *x, void *y, int64_t n,
                               rnl_error *err)
{
    rnl_gpu_rnn *const rnn = stepper->rnn;
    rnl_gpu_entry in;
    rnl_status status = rnl_gpu_rnn_lock(rnn, err);
    if (status != RNL_OK)
        return status;
    status = rnl_gpu_enter(rnn->options.device, &in, err);
    if (status == RNL_OK)
        status = rnl_gpu_leave(&in, launch(stepper, x, y, n, err));
    pthread_mutex_unlock(&rnn->lock);
    return status;
}

/* ---- the state ---- */

static rnl_status set(rnl_gpu_stepper *stepper, int k, const void *from, rnl_error *err)
{
    rnl_gpu_device *const device = stepper->rnn->device;
    const size_t nbytes = stepper->nbytes[k];
    if (!nbytes)
        return RNL_OK;
    if (!from)
        return RNL_CU(device, err, cuMemsetD8Async, stepper->at[k], 0, nbytes, stepper->stream);
    return RNL_CU(device, err, cuMemcpyHtoDAsync_v2, stepper->at[k], from, nbytes, stepper->stream);
}

rnl_status rnl_gpu_stepper_set(rnl_gpu_stepper *stepper, const void *h, const void *c,
                               rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_status status = rnl_gpu_enter(stepper->rnn->options.device, &in, err);
    if (status != RNL_OK)
        return status;
    if (!(status = set(stepper, STEP_H, h, err)) && !(status = set(stepper, STEP_C, c, err)))
        status = RNL_CU(in.device, err, cuStreamSynchronize, stepper->stream);
    return rnl_gpu_leave(&in, status);
}

static rnl_status get(rnl_gpu_stepper *stepper, int k, void *to, rnl_error *err)
{
    if (!to || !stepper->nbytes[k])
        return RNL_OK;
    return RNL_CU(stepper->rnn->device, err, cuMemcpyDtoHAsync_v2, to, stepper->at[k],
                  stepper->nbytes[k], stepper->stream);
}

rnl_status rnl_gpu_stepper_get(rnl_gpu_stepper *stepper, void *h, void *c, rnl_error *err)
{
    rnl_gpu_entry in;
    rnl_status status = rnl_gpu_enter(stepper->rnn->options.device, &in, err);
    if (status != RNL_OK)
        return status;
    if (!(status = get(stepper, STEP_H, h, err)) && !(status = get(stepper, STEP_C, c, err)))
        status = RNL_CU(in.device, err, cuStreamSynchronize, stepper->stream);
    return rnl_gpu_leave(&in, status);
}
