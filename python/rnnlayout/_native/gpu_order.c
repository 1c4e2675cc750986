/* The stream of a call, and its order with the streams of its arrays. */
#include "gpu_call.h"

/* None or a number, which stream_of() of rnnlayout/_run/streams.py has read. */
int gpu_call_read_stream(PyObject *stream, gpu_call *call)
{
    call->asked = stream != Py_None;
    if (call->asked)
        call->core.stream = stream_from_object(stream);
    return PyErr_Occurred() ? -1 : 1;
}

/* The stream passed by the caller; else that of the first array whose stream is known; else the
 * legacy default stream. */
int gpu_call_choose_stream(gpu_call *call)
{
    int is_chosen = call->asked;
    for (int k = 0; k < NUM_NAMED; k++) {
        const foreign *const array = &call->arrays[k];
        if (!array->value)
            continue;
        if (!array->knows_stream && k >= NUM_INPUTS && !call->asked)
            return foreign_refuse(&call->reader, array, "whose stream is unknown: pass stream=");
        if (array->knows_stream && !is_chosen)
            call->core.stream = array->stream;
        is_chosen |= array->knows_stream;
    }
    return 1;
}

/* Is the array used in another stream than the call's? */
static int is_elsewhere(const gpu_call *call, const foreign *array)
{
    return array->value && array->knows_stream && array->stream != call->core.stream;
}

/* The owner may reuse the memory as soon as it is released, unless its next use is known to come
 * after this call. Freeing a DeviceArray waits for all work. */
static int is_kept(const gpu_call *call, const foreign *array)
{
    return array->value && !array->is_ours &&
           (!array->knows_stream || (call->asked && is_elsewhere(call, array)));
}

PyObject *gpu_call_list_kept(const gpu_call *call)
{
    PyObject *pairs[NUM_INPUTS], *kept = NULL;
    Py_ssize_t n = 0;
    int failed = 0;
    for (int k = 0; k < NUM_INPUTS && !failed; k++) {
        const foreign *const array = &call->arrays[k];
        if (!is_kept(call, array))
            continue;
        pairs[n] = PyTuple_Pack(2, array->value, array->keeps ? array->keeps : Py_None);
        failed = !pairs[n];
        n += !failed;
    }
    kept = failed ? NULL : PyTuple_New(n);
    for (Py_ssize_t k = 0; k < n; k++)
        if (kept)
            PyTuple_SetItem(kept, k, pairs[k]);
        else
            Py_DECREF(pairs[k]);
    return kept;
}

/* Add a stream, unless it is in the list already. */
static void add(void **streams, int *n, void *stream)
{
    for (int k = 0; k < *n; k++)
        if (streams[k] == stream)
            return;
    streams[(*n)++] = stream;
}

rnl_status gpu_call_order_before(const gpu_call *call, rnl_error *err)
{
    void *streams[NUM_ARRAYS];
    int n = 0;
    rnl_status status = RNL_OK;
    for (int k = 0; k < NUM_ARRAYS; k++)
        if (is_elsewhere(call, &call->arrays[k]))
            add(streams, &n, call->arrays[k].stream);
    for (int k = 0; k < n && status == RNL_OK; k++)
        status = rnl_gpu_order(call->reader.device, streams[k], call->core.stream, err);
    return status;
}

/* Not for what the caller has passed with a stream: then the caller orders the others. A
 * DeviceArray notes its stream and makes its consumers wait. */
rnl_status gpu_call_order_behind(const gpu_call *call, rnl_error *err)
{
    void *streams[NUM_ARRAYS];
    int n = 0;
    rnl_status status = RNL_OK;
    for (int k = 0; k < NUM_ARRAYS; k++) {
        const foreign *const array = &call->arrays[k];
        const int orders_itself = k >= NUM_INPUTS && array->is_ours;
        if (is_elsewhere(call, array) && !orders_itself && (!call->asked || array->is_new))
            add(streams, &n, array->stream);
    }
    for (int k = 0; k < n && status == RNL_OK; k++)
        status = rnl_gpu_order(call->reader.device, call->core.stream, streams[k], err);
    return status;
}
