/* The extension module rnnlayout._native: functions and state. */
#include "native.h"

#include <limits.h>

static const native_state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static PyObject *native_check(PyObject *module, PyObject *args)
{
    PyObject *spec_object, *layout_object = Py_None;
    rnl_spec spec;
    rnl_layout layout;
    rnl_error err;
    if (!PyArg_ParseTuple(args, "O|O:check", &spec_object, &layout_object) ||
        spec_from_object(state_of(module), spec_object, &spec) < 0)
        return NULL;
    if (layout_object != Py_None) {
        if (layout_from_object(state_of(module), layout_object, &layout) < 0)
            return NULL;
        if (rnl_layout_check(&layout, &spec, &err) != RNL_OK)
            return raise_status(state_of(module), &err);
    }
    Py_RETURN_NONE;
}

static PyObject *native_check_layout(PyObject *module, PyObject *object)
{
    rnl_layout layout;
    if (layout_from_object(state_of(module), object, &layout) < 0)
        return NULL;
    return PyUnicode_FromString(layout.name);
}

typedef PyObject *list_fn(const native_state *, const rnl_layout *, const rnl_spec *, unsigned);

static PyObject *list_of(PyObject *module, PyObject *args, list_fn *list)
{
    PyObject *layout_object, *spec_object, *optional_object = Py_None;
    rnl_spec spec;
    rnl_layout layout;
    if (!PyArg_ParseTuple(args, "OO|O", &layout_object, &spec_object, &optional_object) ||
        layout_from_object(state_of(module), layout_object, &layout) < 0 ||
        spec_from_object(state_of(module), spec_object, &spec) < 0)
        return NULL;
    unsigned optional = rnl_spec_optional(&spec);
    if (optional_object != Py_None) {
        optional = (unsigned)PyLong_AsUnsignedLong(optional_object);
        if (PyErr_Occurred())
            return NULL;
    }
    return list(state_of(module), &layout, &spec, optional);
}

static PyObject *native_tensors(PyObject *module, PyObject *args)
{
    return list_of(module, args, list_tensors);
}

static PyObject *native_blocks(PyObject *module, PyObject *args)
{
    return list_of(module, args, list_blocks);
}

static PyObject *native_names(PyObject *module, PyObject *layout_object)
{
    rnl_layout layout;
    if (layout_from_object(state_of(module), layout_object, &layout) < 0)
        return NULL;
    return list_names(&layout);
}

static PyObject *native_itemsize(PyObject *module, PyObject *name)
{
    int dtype;
    if (value_from_name(state_of(module), RNL_NAMES_DTYPE, name, &dtype) < 0)
        return NULL;
    return PyLong_FromLongLong(rnl_dtype_nbytes((rnl_dtype)dtype));
}

static PyObject *native_bfloat16(PyObject *module, PyObject *unused)
{
    (void)unused;
    return bfloat16_dtype(state_of(module));
}

static PyObject *native_cpu_tier(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(rnl_cpu_tier());
}

static PyObject *native_set_num_threads(PyObject *module, PyObject *n)
{
    int beyond;
    long wanted = PyLong_AsLongAndOverflow(n, &beyond);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(state_of(module)->spec_error, "n is a %S, need a whole number", Py_TYPE(n));
    }
    if (PyErr_Occurred())
        return NULL;
    if (beyond > 0 || wanted > INT_MAX)
        wanted = INT_MAX;
    rnl_set_num_threads(beyond < 0 || wanted < 1 ? 0 : (int)wanted);
    Py_RETURN_NONE;
}

static PyObject *native_num_threads(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLong(rnl_num_threads());
}

static PyMethodDef native_methods[] = {
    {"cpu_tier", native_cpu_tier, METH_NOARGS,
     "cpu_tier()\n--\n\nReturn the tier of kernels in use on this CPU: \"amx\", \"avx512bf16\","
     " \"avx512vnni\", \"avx512\", \"avx2\", \"neon\" or \"plain\".\n\nThe environment variable RNNLAYOUT_CPU, read at the first"
     " use, may select a lower one."},
    {"set_num_threads", native_set_num_threads, METH_O,
     "set_num_threads(n, /)\n--\n\nSet how many threads one call of an RNN may use on the CPU;"
     " n < 1 restores the default.\n\nThe default is the environment variable"
     " RNNLAYOUT_NUM_THREADS, else OMP_NUM_THREADS, else the number of CPUs that this process may"
     " use, within a container's limit. Results do not depend on the number of threads."},
    {"num_threads", native_num_threads, METH_NOARGS,
     "num_threads()\n--\n\nReturn how many threads one call of an RNN may use on the CPU."},
    {"open_cudnn", native_open_cudnn, METH_O,
     "open_cudnn(path, /)\n--\n\nOpen a libcudnn.so.9 by its path, as bytes; None: the one that is"
     " loaded or that the loader finds. Raises CudnnNotFoundError."},
    {"describe_cudnn", native_describe_cudnn, METH_NOARGS,
     "describe_cudnn()\n--\n\nReturn the cuDNN, the driver and the GPUs of the process as a dict."},
    {"itemsize", native_itemsize, METH_O,
     "itemsize(dtype, /)\n--\n\nReturn the bytes of one element."},
    {"bfloat16", native_bfloat16, METH_NOARGS,
     "bfloat16()\n--\n\nThe dtype of bfloat16 arrays, which NumPy itself lacks. Raises LayoutError"
     " if ml_dtypes is not installed."},
    {"check", native_check, METH_VARARGS,
     "check(spec, layout=None, /)\n--\n\nRaise SpecError unless the spec is valid, and LossyError"
     " unless the layout can represent it."},
    {"check_layout", native_check_layout, METH_O,
     "check_layout(layout, /)\n--\n\nReturn the layout's name in the table, which may be another"
     " than its own. Raise LayoutError if the layout does not exist."},
    {"tensors", native_tensors, METH_VARARGS,
     "tensors(layout, spec, optional=None, /)\n--\n\nReturn a list of (name, shape): the tensors of an"
     " RNN in the framework's order. optional: HAS_BIAS | HAS_PEEPHOLES, by default as in the spec."},
    {"blocks", native_blocks, METH_VARARGS,
     "blocks(layout, spec, optional=None, /)\n--\n\nReturn a list of (block, view), the place of each"
     " block: block is (layer, direction, role, lin_layer_id, gate), view is (tensor, at, rows,"
     " cols, row_stride, col_stride, ravel), in elements."},
    {"names", native_names, METH_O,
     "names(layout, /)\n--\n\nReturn a list of the names that the tensors of one layer may have, in"
     " any cell and direction, without the prefix of a stack. Some are equal."},
    {"cells", native_cells, METH_NOARGS,
     "cells()\n--\n\nReturn the table of cells: name -> a dict of rnl_cell_facts."},
    {"settings", native_settings, METH_NOARGS,
     "settings()\n--\n\nReturn the table of settings: key -> a dict of rnl_setting."},
    {"rows", native_rows, METH_NOARGS,
     "rows()\n--\n\nReturn the rows of the table of layouts, each a dict."},
    {"layout_rows", native_layout_rows, METH_O,
     "layout_rows(layout, /)\n--\n\nReturn the rows of a layout, each a dict."},
    {"read_rows", native_read_rows, METH_O,
     "read_rows(text, /)\n--\n\nRead a layout from JSON, as bytes. Return the name, and a capsule to"
     " be the layout's attribute rows. Raise LayoutError, or SpecError if the text is not JSON."},
    {"write_rows", native_write_rows, METH_O,
     "write_rows(layout, /)\n--\n\nReturn the rows of a layout as JSON, options put into effect."},
    {"tape_nbytes", native_tape_nbytes, METH_VARARGS,
     "tape_nbytes(rnn, T, N, /)\n--\n\nReturn the bytes of a tape for T steps of N sequences."},
    {"record", native_record, METH_VARARGS,
     "record(rnn, x, h_0, c_0, lengths, y, h_n, c_n, tape, /)\n--\n\nRun an Rnn and fill the tape,"
     " bytes aligned to 64. x and y are (T, N, ...); all but x and tape may be None."},
    {"backward", native_backward, METH_VARARGS,
     "backward(rnn, tape, T, N, lengths, dy, dh_n, dc_n, dx, dh_0, dc_0, dweights, adds, /)\n--\n\n"
     "Run the backward pass of a recorded call into dx, dh_0, dc_0 and dweights. Arrays may be None."},
    {"aliases", native_aliases, METH_NOARGS,
     "aliases()\n--\n\nReturn the other names of layouts, each a dict."},
    {NULL, NULL, 0, NULL}};

/* Take the classes of errors from Python, which makes their texts; the module has them too. */
static int take_errors(PyObject *module, native_state *state)
{
    const struct {
        const char *name;
        PyObject **error;
    } errors[] = {
        {"SpecError", &state->spec_error},   {"LayoutError", &state->layout_error},
        {"LossyError", &state->lossy_error}, {"CudnnNotFoundError", &state->no_cudnn_error},
        {"CudnnError", &state->cudnn_error},
    };
    PyObject *python = PyImport_ImportModule("rnnlayout._model.errors");
    int taken = python != NULL;
    for (size_t k = 0; taken && k < sizeof errors / sizeof *errors; k++) {
        *errors[k].error = PyObject_GetAttrString(python, errors[k].name);
        taken = *errors[k].error &&
                !PyModule_AddObjectRef(module, errors[k].name, *errors[k].error);
    }
    Py_XDECREF(python);
    return taken ? 0 : -1;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (!*type && !PyErr_Occurred())
        PyErr_NoMemory(); /* CPython 3.11 sets no exception if the type's name gets no memory */
    return *type ? PyModule_AddType(module, *type) : -1;
}

static int add_words(native_state *state)
{
    static const char *const words[NUM_WORDS] = {
        [WORD_DLPACK] = "__dlpack__",
        [WORD_DLPACK_DEVICE] = "__dlpack_device__",
        [WORD_EXCHANGE] = "__dlpack_c_exchange_api__",
        [WORD_IDENT] = "ident",
        [WORD_NATIVE] = "_native",
    };
    for (int k = 0; k < NUM_WORDS; k++)
        if (!(state->words[k] = PyUnicode_InternFromString(words[k])))
            return -1;
    return 0;
}

static int find_main_thread(native_state *state)
{
    PyObject *threading = PyImport_ImportModule("threading");
    state->main_thread = threading ? PyObject_GetAttrString(threading, "main_thread") : NULL;
    Py_XDECREF(threading);
    return state->main_thread ? 0 : -1;
}

static int native_exec(PyObject *module)
{
    native_state *state = PyModule_GetState(module);
    if (arrays_import() < 0 || add_words(state) < 0 || find_main_thread(state) < 0 ||
        take_errors(module, state) < 0)
        return -1;
    if (add_type(module, &plan_type_spec, &state->plan_type) < 0 ||
        add_type(module, &rnn_type_spec, &state->rnn_type) < 0 ||
        add_type(module, &stepper_type_spec, &state->stepper_type) < 0 ||
        add_type(module, &gpu_rnn_type_spec, &state->gpu_rnn_type) < 0 ||
        add_type(module, &device_array_type_spec, &state->device_array_type) < 0 ||
        add_type(module, &bound_call_type_spec, &state->bound_call_type) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "STEP", STEP) < 0 ||
        PyModule_AddIntConstant(module, "TIME_FIRST", TIME_FIRST) < 0 ||
        PyModule_AddIntConstant(module, "BATCH_FIRST", BATCH_FIRST) < 0 ||
        PyModule_AddIntConstant(module, "HAS_BIAS", RNL_HAS_BIAS) < 0 ||
        PyModule_AddIntConstant(module, "HAS_PEEPHOLES", RNL_HAS_PEEPHOLES) < 0 ||
        PyModule_AddStringConstant(module, "__version__", RNL_VERSION) < 0)
        return -1;
    return 0;
}

/* Do something with each reference of the state. */
#define EACH_REFERENCE(DO, state)                                                                  \
    DO((state)->spec_error);                                                                       \
    DO((state)->layout_error);                                                                     \
    DO((state)->lossy_error);                                                                      \
    DO((state)->no_cudnn_error);                                                                   \
    DO((state)->cudnn_error);                                                                      \
    DO((state)->plan_type);                                                                        \
    DO((state)->rnn_type);                                                                         \
    DO((state)->stepper_type);                                                                     \
    DO((state)->gpu_rnn_type);                                                                     \
    DO((state)->device_array_type);                                                                \
    DO((state)->bound_call_type);                                                                  \
    DO((state)->main_thread);                                                                      \
    for (int k = 0; k < NUM_WORDS; k++)                                                            \
        DO((state)->words[k]);

static int native_traverse(PyObject *module, visitproc visit, void *arg)
{
    native_state *state = PyModule_GetState(module);
    EACH_REFERENCE(Py_VISIT, state)
    return 0;
}

static int native_clear(PyObject *module)
{
    native_state *state = PyModule_GetState(module);
    EACH_REFERENCE(Py_CLEAR, state)
    return 0;
}

static PyModuleDef_Slot native_slots[] = {{Py_mod_exec, native_exec}, {0, NULL}};

static struct PyModuleDef native_module = {.m_base = PyModuleDef_HEAD_INIT,
                                           .m_name = "rnnlayout._native",
                                           .m_doc = "The binding of the C core.",
                                           .m_size = sizeof(native_state),
                                           .m_methods = native_methods,
                                           .m_slots = native_slots,
                                           .m_traverse = native_traverse,
                                           .m_clear = native_clear};

/* Python looks this function up by name. */
PyMODINIT_FUNC PyInit__native(void) /* NOLINT(misc-use-internal-linkage) */
{
    return PyModuleDef_Init(&native_module);
}
