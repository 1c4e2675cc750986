/* An RNN on a GPU, its descriptors, and a checked call of it. */
#ifndef RNL_CUDNN_RNN_H
#define RNL_CUDNN_RNN_H

#include "forward/cudnn/lane.h"

enum { RNL_NUM_ALGOS = RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H + 1 };

/* What decides which of cuDNN's kernels run, besides the RNN. */
typedef struct rnl_gpu_sizes {
    int64_t T, N; /* T: of the longest sequence, if no padding is needed for that */
    rnl_cudnn_algo algo;
    bool batch_first, padded;
} rnl_gpu_sizes;

/* cuDNN's descriptors of an RNN and of the arrays of a call. */
typedef struct rnl_gpu_plan {
    struct rnl_gpu_plan *next; /* of those that graphs use */
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
    rnl_cudnn_data_type type;
    rnl_cu_address weights;
    size_t nbytes;
    atomic_bool refused[RNL_NUM_ALGOS]; /* by cuDNN, when they were tried */
    rnl_gpu_plan *_Atomic spare;        /* of the last call; NULL: none, or a call has it */

    /* protected by the device's lock */
    rnl_gpu_plan *captured; /* of calls in graphs, which may use them until the end */

    pthread_mutex_t block_lock; /* for the members below */
    rnl_cu_address block;       /* memory of calls that bring none; 0: not needed yet */
    size_t block_nbytes;
    rnl_cu_event block_used; /* after the last call that used it; NULL: not made yet */
};

enum { RNL_X, RNL_H0, RNL_C0, RNL_Y, RNL_HN, RNL_CN, RNL_NUM_ARRAYS };

typedef struct rnl_gpu_array {
    const void *given; /* the caller's; NULL: not given, not wanted */
    size_t nbytes;
    size_t offset;     /* in the memory of the call; 0: not there */
    rnl_cu_address at; /* on the device; 0: none */
} rnl_gpu_array;

/* A call that was checked. */
typedef struct rnl_gpu_job {
    rnl_gpu_sizes sizes;
    const int64_t *lengths; /* NULL: all are T */
    rnl_gpu_array arrays[RNL_NUM_ARRAYS];
    size_t tail_nbytes; /* part of y past T */
    rnl_cu_stream stream;
    bool on_host, capturing;
} rnl_gpu_job;

/* algo.c: check the options algo and math; choose the algorithm of a job. */
rnl_status rnl_algo_check(const rnl_spec *spec, const rnl_gpu_options *options, rnl_error *err);
rnl_cudnn_algo rnl_algo_choose(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job);

/* Did cuDNN refuse the algorithm that was chosen? Then the job has the standard one now, and so
 * have all later ones. */
bool rnl_algo_gives_way(rnl_gpu_rnn *rnn, rnl_gpu_job *job, rnl_status status,
                        const rnl_error *err);

/* check.c: check a call; what it cannot check is whether addresses are on the device. RNL_E_SPEC.
 */
rnl_status rnl_gpu_job_new(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err);

/* plan.c: describe a job to cuDNN, with the last call's descriptors if that had the same sizes, and
 * give them back. */
rnl_status rnl_gpu_plan_take(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                             rnl_gpu_plan **plan, rnl_error *err);
void rnl_gpu_plan_give(rnl_gpu_rnn *rnn, rnl_gpu_plan *plan, bool captured);

/* Free them all. works: cuDNN may still be called. */
void rnl_gpu_plans_free(rnl_gpu_rnn *rnn, bool works);

/* Has the last call's description the sizes and lengths of this one? Then *work_nbytes is its
 * workspace. */
bool rnl_gpu_plan_knows(rnl_gpu_rnn *rnn, const rnl_gpu_job *job, size_t *work_nbytes);

#endif
