/* CUDA streams: as numbers in Python, and the stream in which an array is written. */
#include "device_array.h" /* before the system's headers, as Python.h requires */

#define LEGACY_STREAM NULL
#define PER_THREAD_STREAM ((void *)2)

/* ------------------------------------------------------------------------------------ numbers --
 */

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

/* -------------------------------------------------------------------------------------- order --
 */

/* No other thread ever has the same number. */
static uint64_t this_thread(void)
{
    return PyThreadState_GetID(PyThreadState_Get());
}

void device_array_fill_in(device_array *self, void *stream)
{
    self->stream = stream;
    self->thread = this_thread();
}

void *device_array_stream(const device_array *self)
{
    const int is_anothers = self->stream == PER_THREAD_STREAM && self->thread != this_thread();
    return is_anothers ? LEGACY_STREAM : self->stream;
}
