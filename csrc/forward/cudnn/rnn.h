/* An RNN on a GPU, its descriptors, and a checked call of it. */
#ifndef RNL_CUDNN_RNN_H
#define RNL_CUDNN_RNN_H

#include "forward/cudnn/device.h"

/* What decides which of cuDNN's kernels run, besides the RNN. */
typedef struct rnl_gpu_sizes {
    int64_t T, N;
    rnl_cudnn_algo algo;
    bool batch_first, padded;
} rnl_gpu_sizes;

/* cuDNN's descriptors of an RNN and of the arrays of a call. */
typedef struct rnl_gpu_plan {
    rnl_gpu_sizes sizes;
    rnl_cudnn_rnn rnn;
    rnl_cudnn_rnn_data x, y;
    rnl_cudnn_tensor h, c; /* c: only of an LSTM */
    size_t work_nbytes;
    int32_t lengths[]; /* of N sequences, as x and y are described */
} rnl_gpu_plan;

struct rnl_gpu_rnn {
    rnl_spec spec;
    rnl_gpu_options options;
    rnl_gpu_device *device;
    int64_t directions, state_size; /* D, P' */
    size_t unit;                    /* bytes of an element */
    rnl_cu_address weights;
    size_t nbytes;

    pthread_mutex_t lock; /* for the members below, until a call returns; rnl_gpu_rnn_lock() */
    rnl_gpu_plan *plan;   /* of the last call; NULL: none. cuDNN keeps nothing of it */
    bool refuses_persist; /* cuDNN, when it was tried */
    rnl_cu_address block; /* memory of calls that bring none; 0: not needed yet */
    size_t block_nbytes;
    bool
        unfinished; /* a call on host arrays was interrupted or failed: its work may still use it */
};

enum { RNL_X, RNL_H0, RNL_C0, RNL_Y, RNL_HN, RNL_CN, RNL_NUM_ARRAYS };

typedef struct rnl_gpu_array {
    const void *given; /* the caller's; NULL: not given, not wanted */
    size_t nbytes;
    rnl_cu_address at; /* on the device; 0: none */
} rnl_gpu_array;

/* A call that was checked. */
typedef struct rnl_gpu_job {
    rnl_gpu_sizes sizes;
    const int64_t *lengths; /* NULL: all are T */
    rnl_gpu_array arrays[RNL_NUM_ARRAYS];
    rnl_cu_stream stream, follower; /* follower: the one that waits for the call */
    bool has_follower, on_host, capturing;
    bool waits; /* the call returns when it is done; not if it has a workspace, or is captured */
} rnl_gpu_job;

/* check.c: check a call, all but whether addresses are on the device. RNL_E_SPEC, RNL_E_LAYOUT. */
rnl_status rnl_gpu_job_new(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err);

/* rnn.c: lock an RNN. RNL_E_SPEC: this thread has it already, and runs a signal handler during its
 * call. RNL_E_NO_CUDNN: the process was forked. */
rnl_status rnl_gpu_rnn_lock(rnl_gpu_rnn *rnn, rnl_error *err);

/* plan.c: choose the algorithm of a job, and tell whether rnn->plan describes the job already. The
 * caller has the RNN's lock, here and below. */
bool rnl_gpu_plan_fits(const rnl_gpu_rnn *rnn, rnl_gpu_job *job);

/* Make rnn->plan describe a job, of which the algorithm is chosen, with a handle of cuDNN. */
rnl_status rnl_gpu_plan_make(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle, const rnl_gpu_job *job,
                             rnl_error *err);
void rnl_gpu_plan_free(rnl_gpu_rnn *rnn);

#endif
