/* Arrays in a GPU's memory, read by DLPack from the libraries that own the arrays. An array that a
 * call cannot use is a LayoutError. */
#include "gpu_arrays.h" /* before the system's headers, as Python.h requires */

#include "dlpack.h"

#include <numpy/arrayobject.h>

/* ------------------------------------------------------------------------------------- errors */

int foreign_refuse(const foreign_reader *reader, const foreign *array, const char *why)
{
    PyObject *kind = PyType_GetName(Py_TYPE(array->value));
    if (kind)
        PyErr_Format(reader->state->layout_error, "%s is a %U %s", array->name, kind, why);
    Py_XDECREF(kind);
    return -1;
}

/* May an array be the cause of the exception that is set? */
static int is_of_array(void)
{
    return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError);
}

/* Turn the exception of an exporter into a LayoutError, if the array may be the cause. Returns -1.
 */
static int refuse_export(const foreign_reader *reader, const foreign *array)
{
    PyObject *type, *error, *traceback;
    if (!is_of_array())
        return -1;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyErr_Format(reader->state->layout_error, "%s does not export its memory: %S", array->name,
                 error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return -1;
}

static int refuse_dtype(const foreign_reader *reader, const foreign *array, const dl_tensor *tensor)
{
    static const char *const kinds[] = {"int",    "uint",    "float", "opaque",
                                        "bfloat", "complex", "bool"};
    const unsigned code = tensor->dtype.code, lanes = tensor->dtype.lanes;
    PyObject *dtype = PyUnicode_FromFormat(
        "%s%u", code > DL_BOOL ? "an unknown type of bits " : kinds[code],
        (unsigned)tensor->dtype.bits);
    if (dtype)
        PyErr_Format(reader->state->layout_error, "%s is %U%s, need %s like the weights",
                     array->name, dtype, lanes == 1 ? "" : " in vectors",
                     rnl_name(RNL_NAMES_DTYPE, (int)reader->dtype));
    Py_XDECREF(dtype);
    return -1;
}

/* Refuse an array on another device. type, id: the device by DLPack's numbers. */
static int refuse_place(const foreign_reader *reader, const foreign *array, int type, int id)
{
    PyObject *place = type == DL_CUDA ? PyUnicode_FromFormat("on cuda:%d", id)
                      : type == DL_CUDA_MANAGED
                          ? PyUnicode_FromString("in managed memory, which is not supported")
                          : PyUnicode_FromFormat("on device %d of DLPack's type %d", id, type);
    if (place)
        PyErr_Format(reader->state->layout_error, "%s is %U, this RNN is on cuda:%d", array->name,
                     place, reader->device);
    Py_XDECREF(place);
    return -1;
}

/* ------------------------------------------------------------------------------------- memory */

/* Set the shape of an array. 1; -1: the array is not C-contiguous, or the address is NULL, which
 * would mean no array to the core. */
static int set_shape(const foreign_reader *reader, foreign *array, const dl_tensor *tensor)
{
    PyObject *const error = reader->state->layout_error;
    const int ndim = tensor->ndim;
    const int64_t *const sizes = tensor->shape, *const strides = tensor->strides;
    int64_t nelems = 1;
    int is_contiguous = 1;
    if (ndim < 0 || ndim > MAX_DIMS || (ndim && !sizes)) {
        PyErr_Format(error, "%s: a shape of %d axes, need at most %d", array->name, ndim, MAX_DIMS);
        return -1;
    }
    array->shape.ndim = ndim;
    for (int d = ndim - 1; d >= 0; d--) {
        array->shape.sizes[d] = sizes[d];
        is_contiguous &= !strides || sizes[d] < 2 || strides[d] == nelems;
        if (sizes[d] < 0 || __builtin_mul_overflow(nelems, sizes[d], &nelems)) {
            PyErr_Format(error, "%s: an axis has the size %lld", array->name, (long long)sizes[d]);
            return -1;
        }
    }
    if (nelems && !array->address) {
        PyErr_Format(error, "%s: its address is 0, but it has elements", array->name);
        return -1;
    }
    if (!nelems || is_contiguous)
        return 1;
    PyObject *shape = sizes_to_tuple(sizes, ndim), *stride_tuple = NULL;
    if (shape && (stride_tuple = sizes_to_tuple(strides, ndim)))
        PyErr_Format(error,
                     "%s: strides %R (in elements) with shape %R: it must be C-contiguous, use"
                     " x.contiguous() in PyTorch, ascontiguousarray(x) in CuPy",
                     array->name, stride_tuple, shape);
    Py_XDECREF(shape);
    Py_XDECREF(stride_tuple);
    return -1;
}

/* ------------------------------------------------------------------------------------- DLPack */

static int has_dtype(const foreign_reader *reader, const dl_tensor *tensor)
{
    const int code = reader->dtype == RNL_BFLOAT16 ? DL_BFLOAT : DL_FLOAT;
    return tensor->dtype.code == code && tensor->dtype.lanes == 1 &&
           tensor->dtype.bits == 8 * rnl_dtype_nbytes(reader->dtype);
}

static int read_tensor(const foreign_reader *reader, const dl_tensor *tensor, foreign *array)
{
    array->address = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    if (tensor->device.type != DL_CUDA || tensor->device.id != reader->device)
        return refuse_place(reader, array, tensor->device.type, tensor->device.id);
    if (!has_dtype(reader, tensor))
        return refuse_dtype(reader, array, tensor);
    return set_shape(reader, array, tensor);
}

/* Get the device by __dlpack_device__(). type 0: the array lacks DLPack. 0, or -1. */
static int find_place(const foreign_reader *reader, PyObject *value, int *type, int *id)
{
    PyObject *place = PyObject_CallMethodObjArgs(value, reader->state->words[WORD_DLPACK_DEVICE],
                                                 NULL);
    *type = *id = 0;
    if (place && PyTuple_Check(place) && !PyArg_ParseTuple(place, "ii", type, id))
        Py_CLEAR(place);
    const int status = place || is_of_array() ? 0 : -1;
    if (!status)
        PyErr_Clear();
    Py_XDECREF(place);
    return status;
}

const dl_exchange *exchange_of(const native_state *state, PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, state->words[WORD_EXCHANGE]);
    const dl_exchange *exchange = NULL;
    if (capsule && PyCapsule_IsValid(capsule, DL_EXCHANGE_CAPSULE))
        exchange = PyCapsule_GetPointer(capsule, DL_EXCHANGE_CAPSULE);
    if (!capsule)
        PyErr_Clear();
    Py_XDECREF(capsule); /* the functions live as long as the process */
    return exchange && exchange->major == 1 && exchange->borrow ? exchange : NULL;
}

/* Take an array by the library's function, without waiting for the work of the array. */
static int borrow(const foreign_reader *reader, PyObject *value, foreign *array)
{
    dl_tensor tensor;
    if (reader->exchange->borrow(value, &tensor) < 0)
        return refuse_export(reader, array);
    if (tensor.device.type == DL_CPU || tensor.device.type == DL_CUDA_HOST)
        return 0;
    return read_tensor(reader, &tensor, array);
}

/* Call __dlpack__() with the stream of the call: this stream then waits for the work of the array.
 * If the library itself works in this stream, pass -1: no wait is needed. */
static PyObject *export_array(const foreign_reader *reader, PyObject *value)
{
    PyObject *method = PyObject_GetAttr(value, reader->state->words[WORD_DLPACK]);
    PyObject *none = method ? PyTuple_New(0) : NULL, *options = NULL, *capsule = NULL;
    const int waits = Py_TYPE(value) != reader->at_home;
    PyObject *stream = waits ? PyLong_FromVoidPtr(reader->stream) : PyLong_FromLong(-1);
    if (none && stream)
        options = Py_BuildValue("{sO}", "stream", stream);
    if (options)
        capsule = PyObject_Call(method, none, options);
    Py_XDECREF(stream);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(options);
    return capsule;
}

int foreign_take(const foreign_reader *reader, PyObject *value, foreign *array)
{
    int type, id;
    array->value = value;
    if (PyArray_Check(value))
        return 0;
    if (reader->exchange && Py_TYPE(value) == reader->at_home)
        return borrow(reader, value, array);
    if (find_place(reader, value, &type, &id) < 0)
        return -1;
    if (!type || type == DL_CPU || type == DL_CUDA_HOST)
        return 0;
    if (type != DL_CUDA || id != reader->device)
        return refuse_place(reader, array, type, id);
    /* the capsule is not consumed: freeing the capsule gives the memory back */
    array->keeps = export_array(reader, value);
    if (array->keeps && !PyCapsule_IsValid(array->keeps, DL_CAPSULE))
        PyErr_SetString(PyExc_BufferError, "__dlpack__() did not return a new capsule");
    if (PyErr_Occurred())
        return refuse_export(reader, array);
    const dl_managed *const managed = PyCapsule_GetPointer(array->keeps, DL_CAPSULE);
    return read_tensor(reader, &managed->tensor, array);
}
