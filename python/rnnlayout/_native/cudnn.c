/* The search for cuDNN: lists of folders in, the report out. */
#include "native.h"

#include <string.h>

/* The texts of a list of bytes, ended by NULL; they live as long as the list. Free the result with
 * PyMem_Free(). */
static const char **folders_from(PyObject *list)
{
    const Py_ssize_t n = PyList_Size(list);
    const char **folders = PyMem_Calloc((size_t)n + 1, sizeof *folders);
    if (!folders)
        PyErr_NoMemory();
    for (Py_ssize_t k = 0; folders && k < n; k++) {
        folders[k] = PyBytes_AsString(PyList_GetItem(list, k));
        if (!folders[k]) {
            PyMem_Free(folders);
            return NULL;
        }
    }
    return folders;
}

/* Texts from a file system or a loader need not be UTF-8. */
static PyObject *text_or_none(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* For "O&" of Py_BuildValue(). */
static PyObject *text(void *chars)
{
    return text_or_none(chars);
}

static PyObject *list_places(const rnl_cudnn_report *report)
{
    PyObject *list = PyList_New(report->num_places);
    for (int k = 0; list && k < report->num_places; k++) {
        const rnl_cudnn_place *place = &report->places[k];
        PyObject *entry = Py_BuildValue("{sO&sO&sO&}", "origin", text, place->origin, "path", text,
                                        place->path, "why_not", text, place->why_not);
        if (!entry || PyList_SetItem(list, k, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_gpus(const rnl_cudnn_report *report)
{
    PyObject *list = PyList_New(report->num_gpus);
    for (int k = 0; list && k < report->num_gpus; k++) {
        const rnl_gpu *gpu = &report->gpus[k];
        PyObject *entry = Py_BuildValue("{sO&sisO&}", "name", text, gpu->name, "capability",
                                        gpu->capability, "why_not", text, gpu->why_not);
        if (!entry || PyList_SetItem(list, k, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *report_to_dict(const rnl_cudnn_report *report)
{
    PyObject *places = list_places(report), *gpus = places ? list_gpus(report) : NULL;
    if (!gpus) {
        Py_XDECREF(places);
        return NULL;
    }
    return Py_BuildValue("{sO&sNsO&sisisO&sO&sO&sisN}", "why_not", text, report->why_not, "places",
                         places, "path", text, report->path, "version", report->version,
                         "cuda_version", report->cuda_version, "cublas", text, report->cublas,
                         "driver", text, report->driver, "no_driver", text, report->no_driver,
                         "driver_cuda_version", report->driver_cuda_version, "gpus", gpus);
}

PyObject *native_find_cudnn(PyObject *module, PyObject *args)
{
    PyObject *packages, *environments, *result = NULL;
    const rnl_cudnn_report *report = NULL;
    rnl_cudnn_search search = {0};
    rnl_status status;
    rnl_error err;
    if (!PyArg_ParseTuple(args, "O!O!:find_cudnn", &PyList_Type, &packages, &PyList_Type,
                          &environments))
        return NULL;
    const char **package_folders = folders_from(packages), **roots = NULL;
    if (!package_folders || !(roots = folders_from(environments)))
        goto done;
    search.packages = package_folders;
    search.environments = roots;
    Py_BEGIN_ALLOW_THREADS
    status = rnl_cudnn_find(&search, &report, &err);
    Py_END_ALLOW_THREADS
    result = status == RNL_OK ? report_to_dict(report)
                              : raise_status(PyModule_GetState(module), &err);
done:
    PyMem_Free(package_folders);
    PyMem_Free(roots);
    return result;
}

PyObject *native_choose_cudnn(PyObject *module, PyObject *path)
{
    rnl_error err;
    const char *chars = path == Py_None ? NULL : PyBytes_AsString(path);
    if (!chars && PyErr_Occurred())
        return NULL;
    if (rnl_cudnn_choose(chars, &err) != RNL_OK)
        return raise_status(PyModule_GetState(module), &err);
    Py_RETURN_NONE;
}
