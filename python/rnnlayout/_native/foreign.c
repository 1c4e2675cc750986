/* Arrays in a GPU's memory, read as their owners export them by DLPack: by a table of functions or
 * by __dlpack__(). What a call cannot use is a LayoutError. */
#include "device_array.h"

#include <numpy/arrayobject.h>

/* ------------------------------------------------------------------------------------- errors --
 */

int foreign_refuse(const foreign_reader *reader, const foreign *array, const char *why)
{
    PyObject *kind = PyType_GetName(Py_TYPE(array->value));
    if (kind)
        PyErr_Format(reader->state->layout_error, "%s is a %U %s", array->what, kind, why);
    Py_XDECREF(kind);
    return -1;
}

/* May an array be the cause of the exception that is set? */
static int is_of_array(void)
{
    return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError);
}

/* Turn the exception that an exporter has raised into a LayoutError, unless the array is not its
 * cause. how: the exporter's mistake. Returns -1. */
static int failed(const foreign_reader *reader, const foreign *array, const char *how)
{
    PyObject *type, *error, *traceback;
    if (!is_of_array())
        return -1;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyErr_Format(reader->state->layout_error, "%s %s: %S", array->what, how, error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return -1;
}

static const char EXPORT[] = "does not export its memory";

/* Clear the exception of an attribute or a method that an array may lack. -1: it had another cause.
 */
static int lacks(void)
{
    if (!is_of_array())
        return -1;
    PyErr_Clear();
    return 0;
}

static int refuse_dtype(const foreign_reader *reader, const foreign *array, PyObject *found)
{
    if (found)
        PyErr_Format(reader->state->layout_error, "%s is %U, need %s like the weights", array->what,
                     found, rnl_name(RNL_NAMES_DTYPE, (int)reader->dtype));
    return -1;
}

/* The device by DLPack's numbers. */
static int refuse_place(const foreign_reader *reader, const foreign *array, int type, int id)
{
    PyObject *place = type == DL_CUDA ? PyUnicode_FromFormat("on cuda:%d", id)
                      : type == DL_CUDA_MANAGED
                          ? PyUnicode_FromString("in managed memory, which is not supported")
                          : PyUnicode_FromFormat("on device %d of DLPack's type %d", id, type);
    if (place)
        PyErr_Format(reader->state->layout_error, "%s is %U, this RNN is on cuda:%d", array->what,
                     place, reader->device);
    Py_XDECREF(place);
    return -1;
}

/* ------------------------------------------------------------------------------------- memory --
 */

/* Set the shape of an array that is C-contiguous, and not NULL, which the core takes for no array.
 * strides: in elements; NULL: contiguous. 1, or -1. */
static int set_shape(const foreign_reader *reader, foreign *array, int64_t ndim,
                     const int64_t *sizes, const int64_t *strides)
{
    PyObject *const error = reader->state->layout_error;
    int64_t nelems = 1;
    int is_contiguous = 1;
    if (ndim < 0 || ndim > MAX_DIMS || (ndim && !sizes)) {
        PyErr_Format(error, "%s: a shape of %lld axes, need at most %d", array->what,
                     (long long)ndim, MAX_DIMS);
        return -1;
    }
    array->shape.ndim = (int)ndim;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        array->shape.sizes[d] = sizes[d];
        is_contiguous &= !strides || sizes[d] < 2 || strides[d] == nelems;
        if (sizes[d] < 0 || __builtin_mul_overflow(nelems, sizes[d], &nelems)) {
            PyErr_Format(error, "%s: an axis has the size %lld", array->what, (long long)sizes[d]);
            return -1;
        }
    }
    if (nelems && !array->address) {
        PyErr_Format(error, "%s: its address is 0, but it has elements", array->what);
        return -1;
    }
    if (!nelems || is_contiguous)
        return 1;
    PyObject *shape = sizes_to_tuple(sizes, (int)ndim), *found = NULL;
    if (shape && (found = sizes_to_tuple(strides, (int)ndim)))
        PyErr_Format(error,
                     "%s: strides %R (in elements) with shape %R: it must be C-contiguous, use"
                     " x.contiguous() in PyTorch, ascontiguousarray(x) in CuPy",
                     array->what, found, shape);
    Py_XDECREF(shape);
    Py_XDECREF(found);
    return -1;
}

/* ------------------------------------------------------------------------------------- DLPack --
 */

static int has_dtype(const foreign_reader *reader, const dl_tensor *tensor)
{
    const int code = reader->dtype == RNL_BFLOAT16 ? DL_BFLOAT : DL_FLOAT;
    return tensor->dtype.code == code && tensor->dtype.lanes == 1 &&
           tensor->dtype.bits == 8 * rnl_dtype_nbytes(reader->dtype);
}

static int is_host(int type)
{
    return type == DL_CPU || type == DL_CUDA_HOST;
}

/* Takes over the owner of the memory, also if it refuses the array. */
static int read_taken(const foreign_reader *reader, const dl_taken *taken, foreign *array)
{
    const dl_tensor *const tensor = taken->tensor;
    array->keeps = taken->kept;
    array->read_only = taken->read_only;
    array->address = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    if (is_host(tensor->device.type))
        return 0;
    if (tensor->device.type != DL_CUDA || tensor->device.id != reader->device)
        return refuse_place(reader, array, tensor->device.type, tensor->device.id);
    if (!has_dtype(reader, tensor)) {
        PyObject *found = dlpack_dtype_to_text(tensor);
        refuse_dtype(reader, array, found);
        Py_XDECREF(found);
        return -1;
    }
    return set_shape(reader, array, tensor->ndim, tensor->shape, tensor->strides);
}

static int look_by_exchange(const foreign_reader *reader, PyObject *value, foreign *array)
{
    dl_taken taken;
    if (dlpack_take_by(reader->state, reader->table, value, &taken, &array->stream) < 0)
        return failed(reader, array, EXPORT);
    array->knows_stream = 1;
    return read_taken(reader, &taken, array);
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
    PyObject *type, *error, *traceback;
    PyObject *method = PyObject_GetAttr(array->value, reader->state->words[WORD_DLPACK]);
    PyObject *capsule = method ? ask(reader, stream, method, 0) : NULL;
    if (method && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = ask(reader, stream, method, 1); /* it may be from before DLPack 1.0 */
    }
    Py_XDECREF(method);
    if (!capsule)
        return failed(reader, array, EXPORT);
    const int is_taken = dlpack_take(reader->state, capsule, &taken) == 0;
    const int result = is_taken ? read_taken(reader, &taken, array) : failed(reader, array, EXPORT);
    PyErr_Fetch(&type, &error, &traceback); /* the end of the capsule may run any code */
    Py_DECREF(capsule);
    PyErr_Restore(type, error, traceback);
    if (result == 0) /* it said that it was here, and is not */
        return refuse_place(reader, array, taken.tensor->device.type, taken.tensor->device.id);
    return result;
}

/* Get the device by __dlpack_device__(), or 0 as its type: the array lacks DLPack. 0, or -1. */
static int find_place(const foreign_reader *reader, PyObject *value, int *type, int *id)
{
    PyObject *place = PyObject_CallMethodObjArgs(value, reader->state->words[WORD_DLPACK_DEVICE],
                                                 NULL);
    *type = *id = 0;
    if (place && PyTuple_Check(place) && !PyArg_ParseTuple(place, "ii", type, id))
        Py_CLEAR(place);
    const int found = place ? 0 : lacks();
    Py_XDECREF(place);
    return found;
}

static int look_by_methods(const foreign_reader *reader, PyObject *value, foreign *array)
{
    int type, id;
    if (find_place(reader, value, &type, &id) < 0)
        return -1;
    if (!type || is_host(type))
        return 0;
    if (type != DL_CUDA || id != reader->device)
        return refuse_place(reader, array, type, id);
    array->waits = 1;
    array->knows_stream = reader->has_home && Py_TYPE(value) == reader->like;
    if (array->knows_stream)
        array->stream = reader->home;
    return 1;
}

/* ------------------------------------------------------------------------------------------------
 */

static int look_at_ours(const foreign_reader *reader, const device_array *ours, foreign *array)
{
    array->address = ours->address;
    array->stream = ours->stream;
    array->is_ours = array->knows_stream = 1;
    array->shape = ours->shape;
    if (ours->device != reader->device)
        return refuse_place(reader, array, DL_CUDA, ours->device);
    if (ours->dtype == reader->dtype)
        return 1;
    PyObject *found = PyUnicode_FromString(rnl_name(RNL_NAMES_DTYPE, (int)ours->dtype));
    refuse_dtype(reader, array, found);
    Py_XDECREF(found);
    return -1;
}

int foreign_look(foreign_reader *reader, PyObject *value, foreign *array)
{
    PyTypeObject *const type = Py_TYPE(value);
    array->value = value;
    if (type == reader->state->device_array_type)
        return look_at_ours(reader, (device_array *)value, array);
    if (PyArray_Check(value))
        return 0;
    if (type != reader->type) {
        const int found = dlpack_exchange_of(reader->state, type, &reader->table);
        if (found < 0)
            return -1;
        reader->type = type;
        reader->table = found ? reader->table : NULL;
    }
    return reader->table ? look_by_exchange(reader, value, array)
                         : look_by_methods(reader, value, array);
}

void foreign_end(foreign_reader *reader)
{
    Py_CLEAR(reader->options);
    Py_CLEAR(reader->old_options);
}
