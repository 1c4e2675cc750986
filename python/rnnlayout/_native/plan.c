/* The type Plan: a conversion of an RNN between two layouts, to be run on many arrays. */
#include "native.h"

typedef struct plan_object {
    PyObject_HEAD
    rnl_plan *plan;
    rnl_cell cell;
    PyObject *sources, *targets; /* lists of (name, shape) */
    PyObject *rows[2];           /* of the layouts: the plan refers to them */
} plan_object;

static const native_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "src", "optional", "dst", "kind", NULL};
    const native_state *state = PyType_GetModuleState(type);
    PyObject *spec_object, *src_object, *dst_object, *kind_name = NULL;
    unsigned optional;
    int kind = RNL_WEIGHTS;
    rnl_spec spec;
    rnl_layout src, dst;
    rnl_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOIO|U:Plan", names, &spec_object, &src_object,
                                     &optional, &dst_object, &kind_name) ||
        (kind_name && value_from_name(state, RNL_NAMES_KIND, kind_name, &kind) < 0) ||
        spec_from_object(state, spec_object, &spec) < 0 ||
        layout_from_object(state, src_object, &src) < 0 ||
        layout_from_object(state, dst_object, &dst) < 0)
        return NULL;
    plan_object *self = (plan_object *)object_new(type);
    if (!self)
        return NULL;
    self->cell = spec.cell;
    self->rows[0] = PyObject_GetAttrString(src_object, "rows");
    self->rows[1] = self->rows[0] ? PyObject_GetAttrString(dst_object, "rows") : NULL;
    if (!self->rows[1])
        goto fail;
    if (rnl_plan_new(&spec, &src, optional, &dst, (rnl_kind)kind, &self->plan, &err) != RNL_OK) {
        raise_status(state, &err);
        goto fail;
    }
    self->sources = list_tensors(state, &src, &spec, optional);
    self->targets = list_tensors(state, &dst, &spec, rnl_spec_optional(&spec));
    if (!self->sources || !self->targets)
        goto fail;
    return (PyObject *)self;
fail:
    Py_DECREF(self);
    return NULL;
}

static void plan_dealloc(PyObject *object)
{
    plan_object *self = (plan_object *)object;
    rnl_plan_free(self->plan);
    Py_CLEAR(self->sources);
    Py_CLEAR(self->targets);
    Py_CLEAR(self->rows[0]);
    Py_CLEAR(self->rows[1]);
    object_free(object);
}

static PyObject *plan_sources(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((plan_object *)self)->sources);
}

static PyObject *plan_targets(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((plan_object *)self)->targets);
}

static PyObject *plan_num_ops(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(rnl_plan_num_ops(((plan_object *)self)->plan));
}

static PyObject *plan_shifts(PyObject *self, void *unused)
{
    (void)unused;
    const rnl_plan *plan = ((plan_object *)self)->plan;
    const int64_t n = rnl_plan_num_ops(plan);
    for (int64_t k = 0; k < n; k++)
        if (rnl_plan_op(plan, k)->kind == RNL_OP_SHIFT)
            Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

static PyObject *op_to_tuple(rnl_cell cell, const rnl_op *op)
{
    static const char *const kinds[] = {[RNL_OP_MOVE] = "move",
                                        [RNL_OP_ADD] = "add",
                                        [RNL_OP_EITHER] = "either",
                                        [RNL_OP_SHIFT] = "shift",
                                        [RNL_OP_ZERO] = "zero",
                                        [RNL_OP_IDENTITY] = "identity",
                                        [RNL_OP_EXPECT_ZERO] = "expect_zero",
                                        [RNL_OP_EXPECT_IDENTITY] = "expect_identity"};
    PyObject *block = block_to_tuple(cell, &op->block);
    if (!block)
        return NULL;
    return Py_BuildValue("(sNsOLLLOOd)", kinds[op->kind], block,
                         rnl_name(RNL_NAMES_ROLE, (int)op->from), op->negate ? Py_True : Py_False,
                         (long long)op->src.tensor, (long long)op->src2.tensor,
                         (long long)op->dst.tensor, op->src.ravel ? Py_True : Py_False,
                         op->dst.ravel ? Py_True : Py_False, op->shift);
}

static PyObject *plan_block_ops(PyObject *object, PyObject *unused)
{
    (void)unused;
    plan_object *self = (plan_object *)object;
    PyObject *list = PyList_New(0);
    const int64_t n = rnl_plan_num_block_ops(self->plan);
    for (int64_t k = 0; list && k < n; k++) {
        PyObject *op = op_to_tuple(self->cell, rnl_plan_block_op(self->plan, k));
        if (!op || PyList_Append(list, op) < 0)
            Py_CLEAR(list);
        Py_XDECREF(op);
    }
    return list;
}

static int is_run(const rnl_view *view)
{
    return view->rows == 1 && (view->cols == 1 || view->col_stride == 1);
}

/* Does the op only move a contiguous run of elements? */
static int only_moves(const rnl_op *op)
{
    return op->kind == RNL_OP_MOVE && !op->negate && is_run(&op->src) && is_run(&op->dst);
}

static PyObject *plan_moves(PyObject *object, PyObject *unused)
{
    (void)unused;
    const rnl_plan *plan = ((plan_object *)object)->plan;
    const int64_t n = rnl_plan_num_ops(plan);
    for (int64_t k = 0; k < n; k++)
        if (!only_moves(rnl_plan_op(plan, k)))
            Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    for (int64_t k = 0; list && k < n; k++) {
        const rnl_op *op = rnl_plan_op(plan, k);
        PyObject *move = Py_BuildValue("(LLLLL)", (long long)op->src.tensor, (long long)op->src.at,
                                       (long long)op->dst.tensor, (long long)op->dst.at,
                                       (long long)op->dst.cols);
        if (!move || PyList_Append(list, move) < 0)
            Py_CLEAR(list);
        Py_XDECREF(move);
    }
    return list;
}

static PyObject *plan_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"src", "dst", "src_dtype", "dst_dtype", "exact", "new", NULL};
    plan_object *self = (plan_object *)object;
    const native_state *state = state_of(object);
    PyObject *src, *dst, *src_name, *dst_name, *result = NULL;
    int exact, is_new, src_dtype, dst_dtype;
    borrowed in = {0}, out = {0};
    rnl_report report;
    rnl_error err;
    long_call meanwhile;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOUUpp:run", names, &src, &dst, &src_name,
                                     &dst_name, &exact, &is_new) ||
        value_from_name(state, RNL_NAMES_DTYPE, src_name, &src_dtype) < 0 ||
        value_from_name(state, RNL_NAMES_DTYPE, dst_name, &dst_dtype) < 0)
        return NULL;
    rnl_run_options options = {
        .exact = exact, .dry_run = dst == Py_None, .dst_is_new = is_new, .poll_arg = &meanwhile};
    if (arrays_borrow(src, self->sources, (rnl_dtype)src_dtype, 0, "source", &in) < 0)
        goto done;
    if (!options.dry_run) {
        if (arrays_borrow(dst, self->targets, (rnl_dtype)dst_dtype, 1, "target", &out) < 0)
            goto done;
        const int overlap = arrays_overlap(&in, &out);
        if (overlap > 0)
            PyErr_SetString(state->layout_error,
                            "out shares memory with a source array, or its arrays share memory with"
                            " each other: nothing was written; pass separate arrays");
        if (overlap)
            goto done;
    }
    if (long_call_begin(state, (double)in.nbytes, &meanwhile) < 0)
        goto done;
    options.poll = meanwhile.poll;
    const rnl_status status = rnl_plan_run(self->plan, (rnl_dtype)src_dtype,
                                           (const void *const *)in.data, (rnl_dtype)dst_dtype,
                                           out.data, &options, &report, &err);
    long_call_end(&meanwhile);
    if (status == RNL_OK)
        result = Py_BuildValue("(sL)", report.grade == RNL_EXACT ? "exact" : "rounds",
                               (long long)report.rounded_sums);
    else
        raise_status(state, &err);
done:
    arrays_release(&in);
    arrays_release(&out);
    return result;
}

static PyMethodDef plan_methods[] = {
    {"run", (PyCFunction)(void (*)(void))plan_run, METH_VARARGS | METH_KEYWORDS,
     "run($self, src, dst, src_dtype, dst_dtype, exact, new)\n--\n\n"
     "Convert a sequence of arrays and return (grade, rounded_sums); dst None: check and report"
     " only. new: dst is dropped on error."},
    {"block_ops", plan_block_ops, METH_NOARGS,
     "block_ops($self)\n--\n\nReturn the ops block by block: a list of (kind, block, from_role, negate,"
     " src, src2, dst, src_ravel, dst_ravel, shift); block is (layer, direction, role, lin_layer_id,"
     " gate), src, src2 and dst are indices of tensors or -1."},
    {"moves", plan_moves, METH_NOARGS,
     "moves($self)\n--\n\nReturn the runs of elements that a conversion copies unchanged, a list of (src, at,"
     " dst, at, n); None if the conversion does anything else."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef plan_getset[] = {
    {"sources", plan_sources, NULL, "The source's tensors: a list of (name, shape).", NULL},
    {"targets", plan_targets, NULL, "The target's tensors: a list of (name, shape).", NULL},
    {"num_ops", plan_num_ops, NULL, "The number of ops after neighbours are merged.", NULL},
    {"shifts", plan_shifts, NULL, "Does a bias of the target contain a forget bias?", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc,
     "Plan(spec, src, optional, dst, kind=\"weights\")\n--\n\nOne conversion, joined and folded."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {Py_tp_getset, plan_getset},
    {0, NULL}};

PyType_Spec plan_type_spec = TYPE_SPEC("rnnlayout._native.Plan", plan_object, 0, plan_slots);
