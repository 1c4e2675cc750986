/* Open a cuDNN, and describe the cuDNN, the driver and the GPUs of the process. */
#include "native.h"

#include <string.h>

/* For "O&" of Py_BuildValue(). Texts from a file system or a loader need not be UTF-8. */
static PyObject *text(void *chars)
{
    if (!chars)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(chars, (Py_ssize_t)strlen(chars), "replace");
}

static PyObject *list_gpus(int num_gpus)
{
    PyObject *list = PyList_New(num_gpus);
    for (int k = 0; list && k < num_gpus; k++) {
        rnl_gpu gpu;
        rnl_error err;
        const rnl_status status = rnl_gpu_describe(k, &gpu, &err);
        PyObject *entry = Py_BuildValue("{sO&sisO&}", "name", text, gpu.name, "capability",
                                        gpu.capability, "why_not", text,
                                        status == RNL_OK ? NULL : err.text);
        if (!entry || PyList_SetItem(list, k, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *native_describe_cudnn(PyObject *module, PyObject *unused)
{
    rnl_cudnn_about about;
    rnl_error err;
    rnl_status status;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_cudnn_describe(&about, &err);
    Py_END_ALLOW_THREADS
    if (status != RNL_OK)
        return raise_status(PyModule_GetState(module), &err);
    PyObject *gpus = list_gpus(about.num_gpus);
    if (!gpus)
        return NULL;
    return Py_BuildValue("{sO&sisisO&sO&sO&sisN}", "path", text, about.path, "version",
                         about.version, "cuda_version", about.cuda_version, "cublas", text,
                         about.cublas, "driver", text, about.driver, "no_driver", text,
                         about.no_driver, "driver_cuda_version", about.driver_cuda_version, "gpus",
                         gpus);
}

PyObject *native_open_cudnn(PyObject *module, PyObject *path)
{
    rnl_error err;
    rnl_status status;
    const char *chars = path == Py_None ? NULL : PyBytes_AsString(path);
    if (!chars && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_cudnn_open(chars, &err);
    Py_END_ALLOW_THREADS
    if (status == RNL_OK)
        Py_RETURN_NONE;
    const native_state *const state = PyModule_GetState(module);
    PyObject *why = text(err.text);
    if (why)
        PyErr_SetObject(state->no_cudnn_error, why);
    Py_XDECREF(why);
    return NULL;
}
