/* CUDA streams as numbers in Python. */
#include "native.h" /* before the system's headers, as Python.h requires */

/* The protocols' numbers: 1 is the legacy default stream, 2 the per-thread one; 0 is ambiguous. */
void *stream_from_object(PyObject *number)
{
    const unsigned long long stream = PyLong_AsUnsignedLongLong(number);
    if (!stream && !PyErr_Occurred())
        PyErr_SetString(
            PyExc_ValueError,
            "stream is 0, which may mean either default stream: pass 1 for the legacy one, or 2"
            " for the per-thread one");
    return stream == 1 || PyErr_Occurred()
               ? NULL
               : (void *)(uintptr_t)stream; /* NOLINT(performance-no-int-to-ptr) */
}

PyObject *stream_to_object(void *stream)
{
    return PyLong_FromVoidPtr(stream ? stream : (void *)1);
}
