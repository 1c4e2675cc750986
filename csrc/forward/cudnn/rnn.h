/* An RNN on a GPU, cuDNN's descriptors of the RNN, and a checked call of the RNN. */
#ifndef RNL_CUDNN_RNN_H
#define RNL_CUDNN_RNN_H

#include "forward/cudnn/device.h"

/* The largest T in a description: cuDNN 9.0 to 9.28 refuse 65,536 as not supported. A call with
 * more steps is made in parts. */
enum { RNL_CUDNN_MAX_STEPS = 65535 };

/* The properties of a call that decide, with the RNN, which of cuDNN's kernels run. */
typedef struct rnl_gpu_sizes {
    int64_t T, N;
    rnl_cudnn_algo algo;
    bool batch_first, padded;
} rnl_gpu_sizes;

/* cuDNN's descriptors of an RNN and of the arrays of a call. */
typedef struct rnl_gpu_descriptors {
    rnl_gpu_sizes sizes;
    rnl_cudnn_rnn rnn;
    rnl_cudnn_rnn_data x, y;
    rnl_cudnn_tensor h, c; /* c: only of an LSTM */
    size_t work_nbytes;
    int32_t lengths[]; /* of N sequences, in the descriptors of x and y */
} rnl_gpu_descriptors;

struct rnl_gpu_rnn {
    rnl_spec spec;
    rnl_gpu_options options;
    rnl_gpu_device *device;
    int64_t directions, state_size; /* D, P' */
    size_t unit;                    /* bytes of an element */
    rnl_cu_address weights;
    size_t nbytes;

    pthread_mutex_t lock; /* for the members below, until a call returns; rnl_gpu_rnn_lock() */
    rnl_gpu_descriptors *descriptors; /* of the last call; NULL: no call yet */
    bool refuses_persist; /* cuDNN has refused an algorithm that keeps weights in registers */
    rnl_cu_address block; /* memory of calls without a workspace; 0: not needed yet */
    size_t block_nbytes;
    rnl_cu_stream updates; /* waits for every call; NULL: no update yet */
    rnl_cu_event written;  /* the end of the last update, for which every call waits */
    void *staging;         /* the weights of the last update, in host memory that the GPU reads */
};

enum { RNL_X, RNL_H0, RNL_C0, RNL_Y, RNL_HN, RNL_CN, RNL_NUM_ARRAYS };

typedef struct rnl_gpu_array {
    const void *argument; /* the caller's pointer; NULL: no array */
    size_t nbytes;
    rnl_cu_address at; /* the address on the device; 0: no array */
} rnl_gpu_array;

/* A checked call. */
typedef struct rnl_gpu_job {
    rnl_gpu_sizes sizes;
    const int64_t *lengths; /* NULL: every length is T */
    rnl_gpu_array arrays[RNL_NUM_ARRAYS];
    rnl_cu_stream stream, follower; /* follower: the stream that waits for the call */
    rnl_gpu_capture capture;        /* of both streams */
    rnl_gpu_handle *handle; /* taken by the caller for this call; NULL: the call takes one */
    bool has_follower, on_host;
    bool saves_memory; /* use the standard algorithm, because memory for another is short */
    bool waits; /* the call returns when all work is done: without a workspace, not captured */
} rnl_gpu_job;

/* check.c: check a call, except that addresses are on the device. RNL_E_SPEC, RNL_E_LAYOUT. */
rnl_status rnl_gpu_job_new(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err);

/* call.c: rnl_gpu_rnn_run(), with a handle that the caller has taken, for a call that is made in
 * one part; NULL: the call takes one. */
rnl_status rnl_gpu_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_handle *handle,
                       rnl_error *err);

/* rnn.c: lock an RNN. RNL_E_NO_CUDNN: the process was forked. */
rnl_status rnl_gpu_rnn_lock(rnl_gpu_rnn *rnn, rnl_error *err);

/* descriptors.c: choose the algorithm of a job, and return whether rnn->descriptors describe the
 * job already. ..._locked: the caller holds rnn->lock. */
bool rnl_gpu_descriptors_fit_locked(const rnl_gpu_rnn *rnn, rnl_gpu_job *job);

/* Make rnn->descriptors describe a job with a chosen algorithm, by a handle of cuDNN. */
rnl_status rnl_gpu_descriptors_make_locked(rnl_gpu_rnn *rnn, rnl_gpu_handle *handle,
                                           const rnl_gpu_job *job, rnl_error *err);
void rnl_gpu_descriptors_free(rnl_gpu_rnn *rnn);

#endif
