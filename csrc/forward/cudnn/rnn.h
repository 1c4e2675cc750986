/* An RNN on a GPU, its descriptors, and a checked call of it. */
#ifndef RNL_CUDNN_RNN_H
#define RNL_CUDNN_RNN_H

#include "forward/cudnn/lane.h"

enum { RNL_NUM_GPU_ALGOS = RNL_GPU_PERSIST_SMALL + 1 };

/* cuDNN's descriptors of the arrays of a call. */
typedef struct rnl_gpu_plan {
    struct rnl_gpu_plan *next; /* used longer ago */
    int64_t T, N;
    rnl_gpu_algo algo;
    bool batch_first, padded;
    rnl_cudnn_rnn_data x, y;
    rnl_cudnn_tensor h, c; /* c: only of an LSTM */
    bool described;        /* x and y have these lengths ... */
    int32_t *lengths;      /* ... of N sequences             */
    size_t work_nbytes;
    bool ran;      /* a call with it was submitted         */
    bool captured; /* a graph uses it: it must not change  */
} rnl_gpu_plan;

/* The descriptors of one RNN in one lane; used only by the borrower of the lane. */
typedef struct rnl_seat {
    rnl_cudnn_rnn rnn[RNL_NUM_GPU_ALGOS][2]; /* without, with padded arrays; NULL: not made yet */
    rnl_gpu_plan *plans;                     /* most recently used first */
    int num_plans;
} rnl_seat;

typedef struct rnl_held {
    struct rnl_held *next;
    rnl_workspace *workspace;
} rnl_held;

struct rnl_gpu_rnn {
    rnl_spec spec;
    rnl_gpu_options options;
    rnl_gpu_device *device;
    int64_t directions, state_size; /* D, P' */
    size_t unit;                    /* bytes of an element */
    rnl_cudnn_data_type type;
    rnl_cu_address weights;
    size_t nbytes;
    rnl_seat seats[RNL_NUM_LANES];
    atomic_bool refused[RNL_NUM_GPU_ALGOS]; /* by cuDNN, when they were tried */
    rnl_held *held; /* workspaces of graphs that run this RNN; protected by the device's lock */
};

/* A call: sizes in bytes, device addresses (0: not given, not wanted). */
typedef struct rnl_gpu_job {
    int64_t T, N;      /* T: of the longest sequence, if no padding is needed for that */
    rnl_gpu_algo algo; /* not RNL_GPU_AUTO */
    bool batch_first, padded;
    const int64_t *lengths; /* NULL: all are T */
    size_t x_nbytes, y_nbytes, h_nbytes, c_nbytes;
    size_t tail_nbytes; /* part of y past T */
    rnl_cu_address x, h0, c0, y, hn, cn;
    bool copies_h0, copies_c0; /* the result has the same address */
    size_t scratch_nbytes;     /* after cuDNN's part of the workspace */
    rnl_cu_stream stream;
    bool capturing;
} rnl_gpu_job;

/* algo.c: the name of the option; check it, and math; choose the algorithm of a job. */
const char *rnl_algo_name(const rnl_gpu_options *options);
rnl_status rnl_algo_check(const rnl_spec *spec, const rnl_gpu_options *options, rnl_error *err);
rnl_gpu_algo rnl_algo_choose(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job);

/* Did cuDNN refuse the algorithm that was chosen? Then the job has the standard one now, and so
 * have all later ones. */
bool rnl_algo_gives_way(rnl_gpu_rnn *rnn, rnl_gpu_job *job, rnl_status status,
                        const rnl_error *err);

/* check.c: check a call, except whether its arrays are on the device, and fill in everything but
 * the addresses. RNL_E_SPEC. */
rnl_status rnl_gpu_job_new(const rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_gpu_job *job,
                           rnl_error *err);

/* Check that an array of the caller's is on the device. RNL_E_SPEC. */
rnl_status rnl_gpu_check_array(rnl_gpu_device *device, const char *name, const void *array,
                               rnl_error *err);

/* plan.c: make the RNN's descriptor in a lane, if it does not exist yet. */
rnl_status rnl_seat_describe(rnl_gpu_rnn *rnn, rnl_lane *lane, rnl_gpu_algo algo, bool padded,
                             rnl_error *err);

/* Find or make the plan of a job in a lane, with its lengths described. */
rnl_status rnl_gpu_plan_get(rnl_gpu_rnn *rnn, rnl_lane *lane, const rnl_gpu_job *job,
                            rnl_gpu_plan **plan, rnl_error *err);

/* Has a job of these sizes run in this lane, and is the workspace large enough? */
bool rnl_gpu_plan_ran(const rnl_gpu_rnn *rnn, const rnl_lane *lane, const rnl_gpu_job *job);

/* Free the RNN's descriptors in a lane. works: cuDNN may still be called. */
void rnl_seat_clear(rnl_gpu_rnn *rnn, int index, bool works);

#endif
