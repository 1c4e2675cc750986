/* What the files of the binding share. The binding parses, calls and wraps: no layout, no size is
 * computed here. */
#ifndef RNNLAYOUT_NATIVE_H
#define RNNLAYOUT_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rnnlayout.h"

/* NumPy's functions: one table for all files, which arrays.c fills. */
#define PY_ARRAY_UNIQUE_SYMBOL rnnlayout_numpy
#ifndef FILLS_NUMPY_TABLE
#define NO_IMPORT_ARRAY
#endif

/* Names that are looked up in arrays of others. */
enum {
    WORD_EXCHANGE,
    WORD_DLPACK,
    WORD_DLPACK_DEVICE,
    WORD_INTERFACE,
    WORD_STREAM,
    WORD_MAX_VERSION,
    WORD_SHAPE,
    WORD_TYPESTR,
    WORD_DATA,
    WORD_STRIDES,
    WORD_MASK,
    NUM_WORDS
};

typedef struct native_state {
    PyObject *spec_error, *layout_error, *lossy_error, *no_cudnn_error, *cudnn_error;
    PyTypeObject *plan_type, *rnn_type, *gpu_rnn_type, *device_array_type;
    PyObject *words[NUM_WORDS];
} native_state;

/* What a call's arrays run over. */
enum { STEP, TIME_FIRST, BATCH_FIRST, NUM_AXES };

/* Raise what a status stands for, with the core's text. Returns NULL. */
PyObject *raise_status(const native_state *state, const rnl_error *err);

/* For the core, which asks now and then whether to go on: let signal handlers run. */
int poll_signals(void *unused);

/* values.c: Python objects to the core's structs (0, or -1 with an exception set), and back. */
int spec_from_object(const native_state *state, PyObject *object, rnl_spec *spec);
int layout_from_object(const native_state *state, PyObject *object, rnl_layout *layout);
int value_from_name(const native_state *state, rnl_family family, PyObject *name, int *value);
PyObject *list_tensors(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                       unsigned has);
PyObject *list_blocks(const native_state *state, const rnl_layout *layout, const rnl_spec *spec,
                      unsigned has);
PyObject *list_rows(const native_state *state);
PyObject *block_to_tuple(rnl_cell cell, const rnl_block *block);

/* arrays.c: NumPy arrays as the core wants them. */
typedef struct borrowed {
    PyObject *arrays; /* a tuple that keeps them alive */
    Py_ssize_t n;
    void **data;
} borrowed;

int arrays_import(void);
int numpy_type_of(rnl_dtype dtype); /* the one that carries the bits */
PyObject *bfloat16_dtype(const native_state *state); /* LayoutError without ml_dtypes */
int arrays_borrow(PyObject *sequence, PyObject *tensors, rnl_dtype dtype, int writable,
                  const char *what, borrowed *out);
void arrays_release(borrowed *arrays);
/* 1 if an array of b shares memory with one of a or with another of b, -1 on error. */
int arrays_overlap(const borrowed *a, const borrowed *b);

/* plan.c */
extern PyType_Spec plan_type_spec;

/* cudnn.c */
PyObject *native_find_cudnn(PyObject *module, PyObject *args);
PyObject *native_choose_cudnn(PyObject *module, PyObject *path);

/* rnn.c */
extern PyType_Spec rnn_type_spec;
int rnn_add_constants(PyObject *module);

/* gpu_rnn.c. Streams are numbers to Python: 1 is NULL here, and 0 an error. */
extern PyType_Spec gpu_rnn_type_spec;
void *stream_from_object(PyObject *number);
int is_stream(PyObject *object, void **stream); /* 1, or 0: no int, or none of a stream */
PyObject *stream_to_object(void *stream);
PyObject *native_gpu_order(PyObject *module, PyObject *args);
PyObject *native_gpu_device_of(PyObject *module, PyObject *number);

/* device_array.c, device_memory.c */
extern PyType_Spec device_array_type_spec;
PyObject *native_device_arrays(PyObject *module, PyObject *args);

/* dlpack.c */
PyObject *native_take_dlpack(PyObject *module, PyObject *capsule);
PyObject *native_exchange(PyObject *module, PyObject *array);

#endif
