/* The declarations that the files of the binding share. The binding parses, calls and wraps, and
 * computes no layout and no size. */
#ifndef RNNLAYOUT_NATIVE_H
#define RNNLAYOUT_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rnnlayout.h"

/* NumPy's functions: arrays.c fills the table for all files. */
#define PY_ARRAY_UNIQUE_SYMBOL rnnlayout_numpy
#ifndef FILLS_NUMPY_TABLE
#define NO_IMPORT_ARRAY
#endif

/* Names of attributes of foreign arrays and of threads. */
enum { WORD_DLPACK, WORD_DLPACK_DEVICE, WORD_EXCHANGE, WORD_IDENT, WORD_NATIVE, NUM_WORDS };

typedef struct native_state {
    PyObject *spec_error, *layout_error, *lossy_error, *no_cudnn_error, *cudnn_error;
    PyTypeObject *plan_type, *rnn_type, *stepper_type, *gpu_rnn_type, *device_array_type,
        *bound_call_type;
    PyObject *words[NUM_WORDS];
    PyObject *main_thread; /* threading.main_thread */
} native_state;

/* The leading axes of a call's arrays. */
enum { STEP, TIME_FIRST, BATCH_FIRST, NUM_AXES };

/* status.c: raise the exception of a status, with the core's text. Returns NULL. */
PyObject *raise_status(const native_state *state, const rnl_error *err);

/* long_call.c: a call of the core. During a long call Python's threads run, and in the main thread
 * also signal handlers. A short call keeps the interpreter's lock: with threads that are busy in
 * Python, getting the lock back would take longer than the call. */
typedef struct long_call {
    int (*poll)(void *);   /* for the core, with this struct as argument; NULL: no poll */
    PyThreadState *thread; /* NULL: this call keeps the lock                            */
    int64_t polled_ms;
} long_call;

/* Multiply-adds, or bytes of weights to convert: tens of microseconds. */
enum { LONG_WORK = 1 << 20 };

int long_call_begin(const native_state *state, double work, long_call *call);
void long_call_end(long_call *call);

/* values.c: Python objects to the core's structs (0, or -1 with an exception), and back. */
int spec_from_object(const native_state *state, PyObject *object, rnl_spec *spec);
int layout_from_object(const native_state *state, PyObject *object, rnl_layout *layout);
int clip_from_object(PyObject *clip, int *clips, double *low, double *high);
int value_from_name(const native_state *state, rnl_family family, PyObject *name, int *value);
PyObject *list_tensors(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                       unsigned optional);
PyObject *list_blocks(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                      unsigned optional);
PyObject *list_names(const rnl_layout *layout);
PyObject *block_to_tuple(rnl_cell cell, const rnl_block *block);
PyObject *sizes_to_tuple(const int64_t *sizes, int n);
PyObject *result_to_tuple(PyObject *y, PyObject *hn, PyObject *cn); /* cn NULL: not an LSTM */

/* values.c: the functions of the module that return the tables of the core. */
PyObject *native_rows(PyObject *module, PyObject *unused);
PyObject *native_aliases(PyObject *module, PyObject *unused);
PyObject *native_layout_rows(PyObject *module, PyObject *object);

/* values.c: read rows from JSON and write them. */
PyObject *native_read_rows(PyObject *module, PyObject *text);
PyObject *native_write_rows(PyObject *module, PyObject *object);
PyObject *native_cells(PyObject *module, PyObject *unused);
PyObject *native_settings(PyObject *module, PyObject *unused);

/* arrays.c: NumPy arrays in the form that the core needs. */
typedef struct borrowed {
    PyObject *arrays; /* a tuple that keeps the arrays alive */
    Py_ssize_t n, nbytes;
    void **data;
} borrowed;

int arrays_import(void);
int numpy_type_of(rnl_dtype dtype);                  /* with the same bits: uint16 for bfloat16 */
PyObject *bfloat16_dtype(const native_state *state); /* LayoutError without ml_dtypes */
int arrays_borrow(PyObject *sequence, PyObject *tensors, rnl_dtype dtype, int writable,
                  const char *label, borrowed *out);
void arrays_release(borrowed *arrays);
/* Borrow the weights of an RNN, in a layout with a single tensor. */
int weights_borrow(const native_state *state, const char *layout_name, const rnl_spec *spec,
                   PyObject *weights, borrowed *out);
/* All bytes of an array, of any strides, are in [from, to). NULL, or an array without elements: an
 * empty span, which meets no other span. */
typedef struct span {
    uintptr_t from, to;
} span;
span span_of(PyObject *object);
int spans_meet(span a, span b);
/* Does an array of b share memory with an array of a, or with another array of b? -1: an error. */
int arrays_overlap(const borrowed *a, const borrowed *b);

/* Make a zeroed object of a heap type; free an object without references to release. */
static inline PyObject *object_new(PyTypeObject *type)
{
    const allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

static inline void object_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    const freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* The spec of a type that no code can change. The name is the full one; flags: more flags. */
#define TYPE_SPEC(full_name, struct_type, more_flags, type_slots)                                  \
    {                                                                                              \
        .name = full_name,                                                                         \
        .basicsize = sizeof(struct_type),                                                          \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | (more_flags),                     \
        .slots = type_slots,                                                                       \
    }

/* plan.c */
extern PyType_Spec plan_type_spec;

/* cudnn.c */
PyObject *native_open_cudnn(PyObject *module, PyObject *path);
PyObject *native_describe_cudnn(PyObject *module, PyObject *unused);

/* rnn.c */
extern PyType_Spec rnn_type_spec;
rnl_rnn *rnn_core(PyObject *rnn);
const rnl_spec *rnn_facts(PyObject *rnn, int64_t *num_params);

/* Return the multiply-adds of a call: a weight counts once per step and sequence, and the gates of
 * a step as about a thousand. */
static inline double rnn_work(int64_t num_params, int64_t T, int64_t N)
{
    return ((double)num_params + 1000) * (double)T * (double)N;
}

/* training.c: the functions of the module for recorded calls. */
PyObject *native_tape_nbytes(PyObject *module, PyObject *args);
PyObject *native_record(PyObject *module, PyObject *args);
PyObject *native_backward(PyObject *module, PyObject *args);

/* stepper.c */
extern PyType_Spec stepper_type_spec;

/* gpu_rnn.c */
extern PyType_Spec gpu_rnn_type_spec;

/* device_array.c */
extern PyType_Spec device_array_type_spec;

/* bound_call.c: a call with fixed arrays. run: make the call with the Rnn or GpuRnn `native`; 0, or
 * -1 with an exception. end: free the call. */
typedef struct bound_kind {
    int (*run)(const native_state *state, PyObject *native, void *call);
    void (*end)(void *call);
} bound_kind;

/* Make a BoundCall of an rnnlayout.RNN, which takes `call`, also if it fails. Each call returns
 * `result`. */
PyObject *bound_call_new(const native_state *state, const bound_kind *kind, void *call,
                         PyObject *rnn, PyObject *result);
extern PyType_Spec bound_call_type_spec;

#endif
