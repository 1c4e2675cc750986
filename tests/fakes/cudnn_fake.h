/* What the files of the fake libcudnn share. */
#ifndef FAKE_CUDNN_FAKE_H
#define FAKE_CUDNN_FAKE_H

#include "fake.h"

/* ---- cudnn_status.c ---- */

enum fake_class { TAKEN, WRONG, UNSUPPORTED, INTERNAL, STREAM_MISMATCH, NO_DEVICE, MISSING };

/* The status of a class ; the text is kept for cudnnGetLastErrorString. */
int fake_has_no_persist(int algo, const char *where); /* FAKE_CUDNN_NO_PERSIST */
cudnnStatus_t fake_refuse(enum fake_class found, const char *text);
int fake_version(void); /* 92800 */
void fake_need_siblings(int is_rnn, cudnnStatus_t *status);

/* The contract test passes a block of zeros for a handle; it has no such head. */
struct handle {
    struct fake_object object;
    int device, busy;
    CUstream stream;
};

/* Begin a call of cuDNN: sub-libraries, the log, a failure on request. failed == 0: go on. */
#define CUDNN_LOG(name, is_rnn, ...)                                                               \
    LOCKED;                                                                                        \
    cudnnStatus_t failed = (cudnnStatus_t)fake_cudnn_call(name, __VA_ARGS__);                      \
    fake_need_siblings(is_rnn, &failed)

/* The same, and return if it failed. */
#define CUDNN_CALL(...)                                                                            \
    CUDNN_LOG(__VA_ARGS__);                                                                        \
    if (failed)                                                                                    \
    return failed

/* At the start of a call with a handle: only one thread may use it. */
int *fake_enter_handle(cudnnHandle_t given, const char *call);
void fake_leave_handle(int **busy);
#define USES_HANDLE(given, call)                                                                   \
    __attribute__((cleanup(fake_leave_handle), unused)) int *busy = fake_enter_handle(given, call)

/* The object of a handle; NULL for the block of zeros. Dies if its context is not current. */
struct handle *fake_handle(cudnnHandle_t given, const char *call);
int fake_handle_capability(cudnnHandle_t given); /* 100 major + 10 minor */

/* ---- cudnn_descriptors.c ---- */

struct dropout {
    struct fake_object object;
};

struct rnn {
    struct fake_object object;
    int is_set, algo, cell, bias, bidirectional, skip, dtype, precision, math;
    int64_t input_size, hidden_size, proj_size, layers; /* proj_size = hidden_size: no projection */
    const struct dropout *dropout;
    unsigned flags;
    int clip_mode;
    double clip_low, clip_high;
};

struct data {
    struct fake_object object;
    int is_set, dtype, layout, T, N, width;
    int *lengths; /* N, or NULL */
    int has_fill;
    unsigned char fill[8];
};

enum { MAX_DIMS = 8 };

struct tensor {
    struct fake_object object;
    int dtype, dims; /* 0: not set */
    int dim[MAX_DIMS], stride[MAX_DIMS];
};

size_t fake_dtype_bytes(int dtype); /* 0: not a dtype of an RNN */
int64_t fake_gates(const struct rnn *rnn);
int64_t fake_directions(const struct rnn *rnn);
int64_t fake_data_rows(const struct data *data); /* of `width` numbers each, in memory */

/* ---- cudnn_weights.c ---- */

/* The place and size of a matrix or bias, in elements; rows 0: it does not exist. */
struct piece_at {
    int64_t at, rows, cols;
};

int64_t fake_weight_elements(const struct rnn *rnn);
struct piece_at fake_matrix(const struct rnn *rnn, int64_t pseudo_layer, int64_t id);
struct piece_at fake_bias(const struct rnn *rnn, int64_t pseudo_layer, int64_t id);

/* ---- cudnn_compute.c ---- */

struct forward {
    struct rnn rnn;
    struct data x_data, y_data;                           /* copies, as at the call */
    const struct data *x_desc;                            /* the caller's descriptor */
    CUdeviceptr x, y, hx, hy, cx, cy, weights, workspace; /* hx to cy: 0 if not given */
    size_t workspace_bytes;
};

/* Compute the result in double; each stored number is rounded once. */
void fake_compute(const struct forward *forward);

#endif
