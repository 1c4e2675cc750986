/* Arrays on a GPU as other libraries export them, if a call can use them as they are: the fast
 * path. It follows the order of rnnlayout/_foreign.py, which reports what is wrong with all others.
 */
#include "device_array.h"

#include <numpy/arrayobject.h>

/* An exporter's function failed. 0: the Python path will report why; -1: not the array's fault. */
static int failed(void)
{
    if (PyErr_Occurred() &&
        (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
        return -1;
    PyErr_Clear();
    return 0;
}

/* ------------------------------------------------------------------------------------- memory --
 */

/* C-contiguous, and not NULL, which the core takes for no array. strides: in elements; NULL:
 * compact. */
static int fits(foreign *array, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t nelems = 1;
    int is_compact = 1;
    if (ndim < 0 || ndim > MAX_DIMS || (ndim && !sizes))
        return 0;
    array->shape.ndim = (int)ndim;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        array->shape.sizes[d] = sizes[d];
        is_compact &= !strides || sizes[d] < 2 || strides[d] == nelems;
        if (sizes[d] < 0 || __builtin_mul_overflow(nelems, sizes[d], &nelems))
            return 0;
    }
    return !nelems || (array->address && is_compact);
}

/* -------------------------------------------------------------------------------------- DLPack --
 */

static int dtype_of(const dl_tensor *tensor, rnl_dtype *dtype)
{
    static const struct {
        uint8_t code, bits;
        rnl_dtype dtype;
    } types[] = {{DL_FLOAT, 32, RNL_FLOAT32},
                 {DL_FLOAT, 16, RNL_FLOAT16},
                 {DL_BFLOAT, 16, RNL_BFLOAT16},
                 {DL_FLOAT, 64, RNL_FLOAT64}};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        if (tensor->dtype.code == types[k].code && tensor->dtype.bits == types[k].bits) {
            *dtype = types[k].dtype;
            return tensor->dtype.lanes == 1;
        }
    return 0;
}

/* Takes over the owner of the memory, also if the array does not fit. */
static int read_taken(const foreign_reader *reader, const dl_taken *taken, foreign *array)
{
    const dl_tensor *const tensor = taken->tensor;
    array->keeps = taken->kept;
    array->read_only = taken->read_only;
    array->address = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    array->located = tensor->device.type == DL_CUDA && tensor->device.id == reader->device;
    return array->located && dtype_of(tensor, &array->dtype) &&
           fits(array, tensor->ndim, tensor->shape, tensor->strides);
}

/* Is it a torch tensor that requires grad? The Python path decides on those: torch's functions do
 * not refuse to export them, unlike its __dlpack__. */
static int requires_grad(const foreign_reader *reader, PyObject *value)
{
    PyObject *found = PyObject_GetAttr(value, reader->state->words[WORD_REQUIRES_GRAD]);
    const int is_true = found == Py_True;
    if (!found)
        return failed();
    Py_DECREF(found);
    return is_true;
}

static int look_by_exchange(const foreign_reader *reader, PyObject *value, foreign *array)
{
    dl_taken taken;
    const int refuses = requires_grad(reader, value);
    if (refuses)
        return refuses < 0 ? -1 : 0;
    if (dlpack_take_by(reader->state, reader->table, value, &taken, &array->stream) < 0)
        return failed();
    array->knows_stream = 1;
    return read_taken(reader, &taken, array);
}

/* Is the array on this GPU by __dlpack_device__? 1, 0, or -1 on error. *has: it has this method;
 * without it: 1. */
static int is_here(const foreign_reader *reader, PyObject *value, int *has)
{
    PyObject *method = PyObject_GetAttr(value, reader->state->words[WORD_DLPACK_DEVICE]);
    PyObject *place = method ? PyObject_CallNoArgs(method) : NULL;
    *has = method != NULL;
    Py_XDECREF(method);
    if (!place)
        return failed() < 0 ? -1 : !*has;
    int here = 0;
    if (PyTuple_Check(place) && PyTuple_Size(place) == 2) {
        const long type = PyLong_AsLong(PyTuple_GetItem(place, 0));
        const long id = PyErr_Occurred() ? -1 : PyLong_AsLong(PyTuple_GetItem(place, 1));
        here = type == DL_CUDA && id == reader->device;
    }
    Py_DECREF(place);
    return PyErr_Occurred() ? failed() : here;
}

/* The keyword arguments of __dlpack__ for a stream; is_old: without max_version. */
static PyObject *options_for(foreign_reader *reader, void *stream, int is_old)
{
    PyObject **const options = is_old ? &reader->old_options : &reader->options;
    PyObject *const *const words = reader->state->words;
    if (*options)
        return *options;
    PyObject *number = stream_to_object(stream);
    PyObject *version = number ? Py_BuildValue("(ii)", DL_MAJOR, DL_MINOR) : NULL;
    PyObject *made = version ? PyDict_New() : NULL;
    if (made && (PyDict_SetItem(made, words[WORD_STREAM], number) < 0 ||
                 (!is_old && PyDict_SetItem(made, words[WORD_MAX_VERSION], version) < 0)))
        Py_CLEAR(made);
    Py_XDECREF(number);
    Py_XDECREF(version);
    return *options = made;
}

static PyObject *ask(foreign_reader *reader, void *stream, PyObject *method, int is_old)
{
    PyObject *options = options_for(reader, stream, is_old);
    PyObject *none = options ? PyTuple_New(0) : NULL;
    PyObject *capsule = none ? PyObject_Call(method, none, options) : NULL;
    Py_XDECREF(none);
    return capsule;
}

int foreign_take(foreign_reader *reader, void *stream, foreign *array)
{
    dl_taken taken;
    PyObject *method = PyObject_GetAttr(array->value, reader->state->words[WORD_DLPACK]);
    PyObject *capsule = method ? ask(reader, stream, method, 0) : NULL;
    if (method && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = ask(reader, stream, method, 1);
    }
    Py_XDECREF(method);
    if (!capsule)
        return failed();
    const int result = dlpack_take(reader->state, capsule, &taken) < 0
                           ? failed()
                           : read_taken(reader, &taken, array);
    Py_DECREF(capsule); /* may run the exporter's Python code: no exception of ours is set */
    return result;
}

/* ----------------------------------------------------------------------- CUDA array interface --
 */

/* An entry that exists and is not None, borrowed; NULL: no such entry, or an exception. */
static PyObject *entry(const foreign_reader *reader, PyObject *interface, int word)
{
    PyObject *found = PyDict_GetItemWithError(interface, reader->state->words[word]);
    return found == Py_None ? NULL : found;
}

/* Read a tuple of at most three ints; returns how many, or -1. */
static int read_sizes(PyObject *tuple, int64_t *sizes)
{
    if (!PyTuple_CheckExact(tuple) || PyTuple_Size(tuple) > MAX_DIMS)
        return -1;
    const int n = (int)PyTuple_Size(tuple);
    for (int d = 0; d < n; d++) {
        PyObject *size = PyTuple_GetItem(tuple, d);
        sizes[d] = PyLong_CheckExact(size) ? PyLong_AsLongLong(size) : -1;
        if (!PyLong_CheckExact(size) || PyErr_Occurred())
            return -1;
    }
    return n;
}

static int read_type(PyObject *typestr, rnl_dtype *dtype)
{
    static const struct {
        const char *name;
        rnl_dtype dtype;
    } types[] = {{"<f4", RNL_FLOAT32}, {"<f2", RNL_FLOAT16}, {"<f8", RNL_FLOAT64}};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        if (PyUnicode_CompareWithASCIIString(typestr, types[k].name) == 0) {
            *dtype = types[k].dtype;
            return 1;
        }
    return 0;
}

static int read_pointer(PyObject *data, foreign *array)
{
    if (!PyTuple_CheckExact(data) || PyTuple_Size(data) != 2 ||
        !PyLong_CheckExact(PyTuple_GetItem(data, 0)))
        return 0;
    array->address = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    array->read_only = PyErr_Occurred() ? -1 : PyObject_IsTrue(PyTuple_GetItem(data, 1));
    return array->read_only >= 0;
}

/* The core asks the driver which device the memory is on. */
static int read_interface(const foreign_reader *reader, PyObject *interface, PyObject *stream,
                          foreign *array)
{
    int64_t sizes[MAX_DIMS], steps[MAX_DIMS];
    PyObject *shape = entry(reader, interface, WORD_SHAPE);
    PyObject *type = entry(reader, interface, WORD_TYPESTR);
    PyObject *data = entry(reader, interface, WORD_DATA);
    PyObject *strides = entry(reader, interface, WORD_STRIDES);
    if (entry(reader, interface, WORD_MASK) || !shape || !type || !data || !PyUnicode_Check(type) ||
        !read_type(type, &array->dtype) || !read_pointer(data, array))
        return 0;
    const int ndim = read_sizes(shape, sizes);
    if (ndim < 0 || (strides && read_sizes(strides, steps) != ndim))
        return 0;
    const int64_t nbytes = rnl_dtype_nbytes(array->dtype);
    for (int d = 0; strides && d < ndim; d++)
        steps[d] = steps[d] % nbytes ? -1 : steps[d] / nbytes;
    if (stream) {
        array->knows_stream = 1;
        if (!is_stream(stream, &array->stream))
            return 0;
    }
    return fits(array, ndim, sizes, strides ? steps : NULL);
}

/* DLPack, which orders the streams, is preferred to an interface without a stream. */
static int look_by_protocols(const foreign_reader *reader, PyObject *value, foreign *array)
{
    int has_dlpack, result = is_here(reader, value, &has_dlpack);
    if (result <= 0)
        return result;
    PyObject *interface = PyObject_GetAttr(value, reader->state->words[WORD_INTERFACE]);
    if (!interface && failed() < 0)
        return -1;
    if (interface && !PyDict_CheckExact(interface)) {
        Py_DECREF(interface);
        return 0;
    }
    PyObject *stream = interface ? entry(reader, interface, WORD_STREAM) : NULL;
    array->waits = !stream && has_dlpack;
    result = array->waits;
    if (!array->waits && interface)
        result = read_interface(reader, interface, stream, array);
    Py_XDECREF(interface);
    return PyErr_Occurred() ? failed() : result;
}

/* ------------------------------------------------------------------------------------------------
 */

static int look_at_ours(const foreign_reader *reader, const device_array *ours, foreign *array)
{
    array->address = ours->address;
    array->stream = device_array_stream(ours);
    array->is_ours = array->knows_stream = array->located = 1;
    array->dtype = ours->dtype;
    array->shape = ours->shape;
    return ours->device == reader->device;
}

/* A Foreign of rnnlayout/_run/foreign.py, which Python has read and checked. */
static int look_at_checked(const foreign_reader *reader, PyObject *tuple, foreign *array)
{
    PyObject *what, *address, *shape, *strides, *dtype, *place, *stream, *keeps;
    int number;
    if (!PyArg_ParseTuple(tuple, "OOOOOOOpOO", &what, &array->value, &address, &shape, &strides,
                          &dtype, &place, &array->read_only, &stream, &keeps) ||
        value_from_name(reader->state, RNL_NAMES_DTYPE, dtype, &number) < 0)
        return -1;
    array->address = PyLong_AsVoidPtr(address);
    array->dtype = (rnl_dtype)number;
    array->shape.ndim = read_sizes(shape, array->shape.sizes);
    array->knows_stream = stream != Py_None;
    if (array->knows_stream)
        array->stream = stream_from_object(stream);
    array->is_ours = Py_TYPE(array->value) == reader->state->device_array_type;
    array->located = 1;
    array->keeps = keeps == Py_None ? NULL : Py_NewRef(keeps);
    return PyErr_Occurred() ? -1 : 1;
}

int foreign_look(foreign_reader *reader, PyObject *value, foreign *array)
{
    PyTypeObject *const type = Py_TYPE(value);
    array->value = value;
    if (PyTuple_Check(value))
        return look_at_checked(reader, value, array);
    if (type == reader->state->device_array_type)
        return look_at_ours(reader, (device_array *)value, array);
    if (PyArray_Check(value))
        return 0;
    if (type != reader->type) {
        const int found = dlpack_exchange_of(reader->state, type, &reader->table);
        if (found < 0)
            return failed();
        reader->type = type;
        reader->table = found ? reader->table : NULL;
    }
    return reader->table ? look_by_exchange(reader, value, array)
                         : look_by_protocols(reader, value, array);
}

void foreign_end(foreign_reader *reader)
{
    Py_CLEAR(reader->options);
    Py_CLEAR(reader->old_options);
}
