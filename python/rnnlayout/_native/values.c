/* Python objects to the core's structs, and the core's tables to Python. */
#include "native.h"

#include <string.h>

/* Return a name for the core, NULL with an exception set; *owner keeps the name alive. A name that
 * a C string cannot contain (with a NUL or half a surrogate pair) is passed as its repr(), and the
 * core reports the unknown name. */
static const char *text_of(PyObject *name, PyObject **owner)
{
    Py_ssize_t nbytes;
    const char *text = PyUnicode_AsUTF8AndSize(name, &nbytes);
    *owner = NULL;
    if (text && strlen(text) == (size_t)nbytes)
        return text;
    if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear();
    *owner = PyObject_ASCII(name);
    return *owner ? PyUnicode_AsUTF8AndSize(*owner, NULL) : NULL;
}

int value_from_name(const native_state *state, rnl_family family, PyObject *name, int *value)
{
    rnl_error err;
    PyObject *owner;
    const char *text = text_of(name, &owner);
    const int failed = text && rnl_parse(family, text, value, &err) == RNL_OK ? 0 : -1;
    if (failed && text)
        raise_status(state, &err);
    Py_XDECREF(owner);
    return failed;
}

static int get_size(const native_state *state, PyObject *object, const char *name, int64_t *value)
{
    PyObject *attribute = PyObject_GetAttrString(object, name);
    if (!attribute)
        return -1;
    *value = PyLong_AsLongLong(attribute);
    if (*value == -1 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        /* the number is not shown: it may have more digits than Python prints */
        PyErr_Format(state->spec_error, "%s is too large, need at most 2^63 - 1", name);
    }
    Py_DECREF(attribute);
    return PyErr_Occurred() ? -1 : 0;
}

static int get_name(const native_state *state, PyObject *object, const char *name,
                    rnl_family family, int *value)
{
    PyObject *attribute = PyObject_GetAttrString(object, name);
    if (!attribute)
        return -1;
    const int failed = value_from_name(state, family, attribute, value);
    Py_DECREF(attribute);
    return failed;
}

static int get_truth(PyObject *object, const char *name, int *value)
{
    PyObject *attribute = PyObject_GetAttrString(object, name);
    if (!attribute)
        return -1;
    *value = PyObject_IsTrue(attribute);
    Py_DECREF(attribute);
    return *value < 0 ? -1 : 0;
}

int spec_from_object(const native_state *state, PyObject *object, rnl_spec *spec)
{
    int cell, bias, reset, gates, activation, dtype;
    rnl_error err;
    if (get_name(state, object, "cell", RNL_NAMES_CELL, &cell)) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            PyErr_Format(state->spec_error, "spec is a %S, need a Spec", Py_TYPE(object));
        }
        return -1;
    }
    if (get_name(state, object, "bias", RNL_NAMES_BIAS, &bias) ||
        get_name(state, object, "reset", RNL_NAMES_RESET, &reset) ||
        get_name(state, object, "recurrent_activation", RNL_NAMES_ACTIVATION, &gates) ||
        get_name(state, object, "activation", RNL_NAMES_STATE_ACTIVATION, &activation) ||
        get_name(state, object, "dtype", RNL_NAMES_DTYPE, &dtype) ||
        get_size(state, object, "input_size", &spec->input_size) ||
        get_size(state, object, "hidden_size", &spec->hidden_size) ||
        get_size(state, object, "num_layers", &spec->num_layers) ||
        get_size(state, object, "proj_size", &spec->proj_size) ||
        get_truth(object, "bidirectional", &spec->bidirectional) ||
        get_truth(object, "peepholes", &spec->peepholes) ||
        get_truth(object, "skip_input", &spec->skip_input))
        return -1;
    spec->cell = (rnl_cell)cell;
    spec->bias = (rnl_bias)bias;
    spec->reset = (rnl_reset)reset;
    spec->recurrent_activation = (rnl_activation)gates;
    spec->activation = (rnl_state_activation)activation;
    spec->dtype = (rnl_dtype)dtype;
    if (rnl_spec_check(spec, &err) == RNL_OK)
        return 0;
    raise_status(state, &err);
    return -1;
}

/* Read a clip; None: no clip. */
int clip_from_object(PyObject *clip, int *clips, double *low, double *high)
{
    *clips = clip != Py_None;
    return !*clips || PyArg_Parse(clip, "(dd)", low, high) ? 0 : -1;
}

static int set_option(const native_state *state, PyObject *pair, rnl_layout *layout)
{
    rnl_error err;
    PyObject *name = PySequence_GetItem(pair, 0),
             *value = name ? PySequence_GetItem(pair, 1) : NULL;
    PyObject *name_owner = NULL, *value_owner = NULL;
    const char *name_text = name ? text_of(name, &name_owner) : NULL;
    const char *value_text = name_text && value ? text_of(value, &value_owner) : NULL;
    int failed = -1;
    if (name_text && value_text) {
        failed = rnl_layout_set(layout, name_text, value_text, &err) == RNL_OK ? 0 : -1;
        if (failed)
            raise_status(state, &err);
    }
    Py_XDECREF(name);
    Py_XDECREF(value);
    Py_XDECREF(name_owner);
    Py_XDECREF(value_owner);
    return failed;
}

#define ROWS "rnnlayout.rows" /* the name of a capsule with a layout that was read from JSON */

static void free_rows(PyObject *capsule)
{
    rnl_layout *const layout = PyCapsule_GetPointer(capsule, ROWS);
    rnl_layout_free(layout);
    PyMem_Free(layout);
}

PyObject *native_read_rows(PyObject *module, PyObject *text)
{
    const native_state *state = PyModule_GetState(module);
    char *bytes;
    Py_ssize_t nbytes;
    rnl_error err;
    if (PyBytes_AsStringAndSize(text, &bytes, &nbytes) < 0)
        return NULL;
    rnl_layout *const layout = PyMem_Calloc(1, sizeof *layout);
    if (!layout)
        return PyErr_NoMemory();
    PyObject *capsule = NULL;
    if (rnl_layout_from_json(bytes, (size_t)nbytes, layout, &err) != RNL_OK)
        raise_status(state, &err);
    else
        capsule = PyCapsule_New(layout, ROWS, free_rows);
    if (!capsule) {
        rnl_layout_free(layout);
        PyMem_Free(layout);
        return NULL;
    }
    return Py_BuildValue("(sN)", layout->name, capsule);
}

PyObject *native_write_rows(PyObject *module, PyObject *object)
{
    const native_state *state = PyModule_GetState(module);
    rnl_layout layout;
    rnl_error err;
    char text[16384];
    if (layout_from_object(state, object, &layout) < 0)
        return NULL;
    if (rnl_layout_to_json(&layout, text, sizeof text, &err) != RNL_OK)
        return raise_status(state, &err);
    return PyUnicode_FromString(text);
}

int layout_from_object(const native_state *state, PyObject *object, rnl_layout *layout)
{
    rnl_error err;
    int failed = -1;
    PyObject *options = NULL, *owner = NULL, *name = NULL;
    const char *text = NULL;
    PyObject *rows = PyObject_GetAttrString(object, "rows");
    if (rows && rows != Py_None) { /* the capsule belongs to the object */
        const rnl_layout *const own = PyCapsule_GetPointer(rows, ROWS);
        failed = own ? 0 : -1;
        if (own)
            *layout = *own;
        goto done;
    }
    name = rows ? PyObject_GetAttrString(object, "name") : NULL;
    text = name ? text_of(name, &owner) : NULL;
    if (!text)
        goto done;
    if (rnl_layout_named(text, layout, &err) != RNL_OK) {
        raise_status(state, &err);
        goto done;
    }
    options = PyObject_GetAttrString(object, "options");
    if (!options)
        goto done;
    const Py_ssize_t n = PySequence_Size(options);
    failed = n < 0 ? -1 : 0;
    for (Py_ssize_t k = 0; !failed && k < n; k++) {
        PyObject *pair = PySequence_GetItem(options, k);
        failed = pair ? set_option(state, pair, layout) : -1;
        Py_XDECREF(pair);
    }
done:
    Py_XDECREF(rows);
    Py_XDECREF(name);
    Py_XDECREF(owner);
    Py_XDECREF(options);
    return failed;
}

/* ----------------------------------------------------------------------------- core to Python */

/* Append an item and release the reference; item NULL: an exception is set. */
static int append(PyObject *list, PyObject *item)
{
    const int failed = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return failed;
}

PyObject *sizes_to_tuple(const int64_t *sizes, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int k = 0; tuple && k < n; k++) {
        PyObject *size = PyLong_FromLongLong(sizes[k]);
        if (!size || PyTuple_SetItem(tuple, k, size) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *list_tensors(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                       unsigned optional)
{
    rnl_error err;
    rnl_tensor tensor;
    int64_t n;
    if (rnl_layout_num_tensors(layout, spec, optional, &n, &err) != RNL_OK)
        return raise_status(state, &err);
    PyObject *list = PyList_New(0);
    for (int64_t k = 0; list && k < n; k++) {
        if (rnl_layout_tensor(layout, spec, optional, k, &tensor, &err) != RNL_OK) {
            Py_DECREF(list);
            return raise_status(state, &err);
        }
        PyObject *shape = sizes_to_tuple(tensor.shape, tensor.ndim);
        if (!shape || append(list, Py_BuildValue("(sN)", tensor.name, shape)) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *list_names(const rnl_layout *layout)
{
    rnl_error err;
    char name[RNL_MAX_NAME];
    PyObject *list = PyList_New(0);
    for (int k = 0; list && rnl_layout_name_at(layout, k, name, &err) == RNL_OK; k++)
        if (append(list, PyUnicode_FromString(name)) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *result_to_tuple(PyObject *y, PyObject *hn, PyObject *cn)
{
    if (!cn)
        return PyTuple_Pack(2, y, hn);
    PyObject *state = PyTuple_Pack(2, hn, cn);
    PyObject *result = state ? PyTuple_Pack(2, y, state) : NULL;
    Py_XDECREF(state);
    return result;
}

PyObject *block_to_tuple(rnl_cell cell, const rnl_block *block)
{
    char gate[2] = "";
    if (block->role != RNL_P)
        gate[0] = rnl_gate_letter(cell, block->gate);
    return Py_BuildValue("(Lisis)", (long long)block->layer, block->direction,
                         rnl_name(RNL_NAMES_ROLE, (int)block->role), rnl_lin_layer_id(cell, block),
                         gate);
}

static PyObject *view_to_tuple(const rnl_view *view)
{
    return Py_BuildValue("(LLLLLLi)", (long long)view->tensor, (long long)view->at,
                         (long long)view->rows, (long long)view->cols, (long long)view->row_stride,
                         (long long)view->col_stride, view->ravel);
}

PyObject *list_blocks(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                      unsigned optional)
{
    rnl_error err;
    PyObject *list = PyList_New(0);
    const int64_t n = rnl_num_blocks(spec);
    for (int64_t k = 0; list && k < n; k++) {
        const rnl_block block = rnl_block_at(spec, k);
        rnl_view view;
        if (rnl_layout_locate(layout, spec, optional, &block, &view, &err) != RNL_OK) {
            Py_DECREF(list);
            return raise_status(state, &err);
        }
        if (view.tensor < 0)
            continue;
        PyObject *block_tuple = block_to_tuple(spec->cell, &block);
        PyObject *view_tuple = block_tuple ? view_to_tuple(&view) : NULL;
        if (!view_tuple) {
            Py_XDECREF(block_tuple);
            Py_CLEAR(list);
        } else if (append(list, Py_BuildValue("(NN)", block_tuple, view_tuple)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Return the names of the set bits. */
static PyObject *names_of_bits(rnl_family family, unsigned bits)
{
    PyObject *names = PyList_New(0);
    for (int k = 0; names && bits >> k; k++)
        if (bits >> k & 1 && append(names, PyUnicode_FromString(rnl_name(family, k))) < 0)
            Py_CLEAR(names);
    return names;
}

static PyObject *options_to_dict(const rnl_row_info *row)
{
    PyObject *all = PyDict_New();
    for (int k = 0; all && k < RNL_NUM_OPTIONS && row->options[k]; k++) {
        const rnl_option *option = row->options[k];
        PyObject *values = PyDict_New();
        int failed = values ? 0 : -1;
        for (int v = 0; !failed && option->values[v]; v++) {
            PyObject *note = PyUnicode_FromString(option->notes[v]);
            failed = note ? PyDict_SetItemString(values, option->values[v], note) : -1;
            Py_XDECREF(note);
        }
        if (failed || PyDict_SetItemString(all, option->name, values) < 0)
            Py_CLEAR(all);
        Py_XDECREF(values);
    }
    return all;
}

static PyObject *gates_to_dict(const rnl_row_info *row)
{
    PyObject *gates = PyDict_New();
    for (int cell = 0; gates && rnl_name(RNL_NAMES_CELL, cell); cell++) {
        PyObject *letters = row->gates[cell] ? PyUnicode_FromString(row->gates[cell]) : NULL;
        if (!letters && row->gates[cell])
            Py_CLEAR(gates);
        else if (letters &&
                 PyDict_SetItemString(gates, rnl_name(RNL_NAMES_CELL, cell), letters) < 0)
            Py_CLEAR(gates);
        Py_XDECREF(letters);
    }
    return gates;
}

static PyObject *row_to_dict(const rnl_row_info *row)
{
    return Py_BuildValue(
        "{s:s, s:N, s:N, s:N, s:O, s:N, s:O, s:s, s:N, s:O, s:s, s:s}", "layout", row->layout,
        "gates", gates_to_dict(row), "resets", names_of_bits(RNL_NAMES_RESET, row->resets),
        "recurrent_activations", names_of_bits(RNL_NAMES_ACTIVATION, row->activations), "relu",
        row->has_relu ? Py_True : Py_False, "roles", names_of_bits(RNL_NAMES_ROLE, row->roles),
        "bias_always", row->bias_always ? Py_True : Py_False, "z",
        row->z_takes_candidate ? "candidate" : "state", "options", options_to_dict(row),
        "must_name", row->must_name ? Py_True : Py_False, "checked",
        rnl_name(RNL_NAMES_CHECKED, (int)row->checked), "source", row->source);
}

PyObject *native_layout_rows(PyObject *module, PyObject *object)
{
    rnl_error err;
    rnl_row_info row;
    rnl_layout layout;
    if (layout_from_object(PyModule_GetState(module), object, &layout) < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (int k = 0; list && rnl_layout_row_at(&layout, k, &row, &err) == RNL_OK; k++)
        if (append(list, row_to_dict(&row)) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *native_rows(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    rnl_error err;
    rnl_row_info row;
    PyObject *list = PyList_New(0);
    for (int k = 0; list && rnl_row_at(k, &row, &err) == RNL_OK; k++)
        if (append(list, row_to_dict(&row)) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *native_cells(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *all = PyDict_New();
    for (int cell = 0; all && rnl_name(RNL_NAMES_CELL, cell); cell++) {
        const rnl_cell_facts *const facts = rnl_cell_facts_of((rnl_cell)cell);
        const char candidate[] = {facts->candidate, '\0'};
        PyObject *facts_dict = Py_BuildValue(
            "{s:s, s:s, s:s, s:O, s:O, s:O}", "gates", facts->gates, "peepholes", facts->peepholes,
            "candidate", candidate, "has_reset", facts->reset ? Py_True : Py_False, "has_c",
            facts->has_c ? Py_True : Py_False, "may_project",
            facts->may_project ? Py_True : Py_False);
        if (!facts_dict ||
            PyDict_SetItemString(all, rnl_name(RNL_NAMES_CELL, cell), facts_dict) < 0)
            Py_CLEAR(all);
        Py_XDECREF(facts_dict);
    }
    return all;
}

/* The texts before NULL. */
static PyObject *texts_to_list(const char *const *texts)
{
    PyObject *list = PyList_New(0);
    for (int k = 0; list && texts[k]; k++)
        if (append(list, PyUnicode_FromString(texts[k])) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *native_settings(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const rnl_setting *setting;
    PyObject *all = PyDict_New();
    for (int k = 0; all && (setting = rnl_setting_at(k)) != NULL; k++) {
        PyObject *facts = Py_BuildValue(
            "{s:s, s:N, s:(zz), s:s, s:i, s:O, s:N, s:s}", "kind",
            rnl_name(RNL_NAMES_SETTING_KIND, (int)setting->kind), "names",
            texts_to_list(setting->names), "neutral", setting->neutral[0], setting->neutral[1],
            "place", rnl_name(RNL_NAMES_SETTING_PLACE, (int)setting->place), "directions",
            setting->directions, "needs_c", setting->needs_c ? Py_True : Py_False, "layouts",
            texts_to_list(setting->layouts), "advice", setting->advice);
        if (!facts || PyDict_SetItemString(all, setting->key, facts) < 0)
            Py_CLEAR(all);
        Py_XDECREF(facts);
    }
    return all;
}

PyObject *native_aliases(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    rnl_error err;
    rnl_alias alias;
    PyObject *list = PyList_New(0);
    for (int k = 0; list && rnl_alias_at(k, &alias, &err) == RNL_OK; k++)
        if (append(list,
                   Py_BuildValue("{s:s, s:s, s:s, s:s}", "name", alias.name, "layout", alias.layout,
                                 "checked", rnl_name(RNL_NAMES_CHECKED, (int)alias.checked),
                                 "source", alias.source)) < 0)
            Py_CLEAR(list);
    return list;
}
