/*
 * rnnlayout: the weights of LSTM, GRU and plain RNNs, rewritten between cuDNN's packed weight
 * space and the layouts of the frameworks. Plain C11; no Python, no CUDA, no framework.
 *
 * Letters: I input_size, H hidden_size, P proj_size (P' = P, or H without a projection),
 * L num_layers, D directions (1 or 2), G gates (LSTM 4, GRU 3, RNN 1).
 *
 * Contract of every function below, where it does not say otherwise
 *   memory   the caller owns every buffer and struct; the library borrows them for the call
 *   threads  any thread may call anything, objects that are not being changed may be shared. The
 *            only global state are the forward pass's own threads, and the one cuDNN in use
 *   errors   the status is returned, its text is in the caller's rnl_error (never NULL); outputs
 *            are untouched unless the status is RNL_OK
 *   strings  static and NUL-terminated, UTF-8
 */
#ifndef RNNLAYOUT_H
#define RNNLAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RNL_VERSION "0.1.0"

/* ------------------------------------------------------------------------------- errors -- */

typedef enum rnl_status {
    RNL_OK = 0,
    RNL_E_SPEC,        /* the description of the RNN contradicts itself or a limit         */
    RNL_E_LAYOUT,      /* no such layout, option or tensor                                 */
    RNL_E_LOSSY,       /* the target has no place for a value, or for such an RNN at all   */
    RNL_E_NOMEM,       /* an allocation failed                                             */
    RNL_E_INTERRUPTED, /* the caller's poll function asked to stop                         */
    RNL_E_NO_CUDNN,    /* no cuDNN, driver or GPU that can be used                         */
    RNL_E_CUDNN        /* a call of cuDNN or of the driver failed                          */
} rnl_status;

/* call, number: of RNL_E_CUDNN alone, the function's name and what it returned. */
typedef struct rnl_error {
    rnl_status status;
    char text[1024];
    const char *call;
    int number;
} rnl_error;

/* -------------------------------------------------------------------- describing an RNN -- */

typedef enum rnl_cell { RNL_LSTM, RNL_GRU, RNL_RNN_TANH, RNL_RNN_RELU } rnl_cell;

/* cuDNN's bias modes: which of the two bias vectors of each gate its weight space holds. */
typedef enum rnl_bias {
    RNL_BIAS_DOUBLE,
    RNL_BIAS_INPUT,
    RNL_BIAS_RECURRENT,
    RNL_BIAS_NONE
} rnl_bias;

/* GRU: n = tanh(W x + bW + r * (R h + bR))  or  n = tanh(W x + bW + R (r * h) + bR). */
typedef enum rnl_reset { RNL_RESET_AFTER, RNL_RESET_BEFORE } rnl_reset;

/* What the gates i, f, o (LSTM) and r, z (GRU) pass through. */
typedef enum rnl_activation {
    RNL_SIGMOID,
    RNL_HARD_SIGMOID,       /* Keras 3:      clip(x / 6 + 0.5, 0, 1)   */
    RNL_HARD_SIGMOID_KERAS2 /* Keras 1 and 2: clip(0.2 x + 0.5, 0, 1)  */
} rnl_activation;

typedef enum rnl_dtype { RNL_FLOAT16, RNL_BFLOAT16, RNL_FLOAT32, RNL_FLOAT64 } rnl_dtype;

/* What a block of weights does: input matrix, recurrent matrix, projection, the two biases, and
 * the LSTM's peephole vectors, which cuDNN does not know. */
typedef enum rnl_role {
    RNL_NO_ROLE,
    RNL_W,   /* (H, I of the layer) a gate     */
    RNL_R,   /* (H, P')             a gate     */
    RNL_P,   /* (P, H)              one        */
    RNL_BW,  /* (H,)                a gate     */
    RNL_BR,  /* (H,)                a gate     */
    RNL_PEEP /* (H,)                i, f and o */
} rnl_role;

/* The families of names that the enums above have in files, Python and error texts. */
typedef enum rnl_family {
    RNL_NAMES_CELL,
    RNL_NAMES_BIAS,
    RNL_NAMES_RESET,
    RNL_NAMES_ACTIVATION,
    RNL_NAMES_DTYPE,
    RNL_NAMES_ROLE
} rnl_family;

/* The name of a value, NULL past the last one. */
const char *rnl_name(rnl_family family, int value);

/* The value of a name. RNL_E_SPEC: no such name; the text lists those that exist. */
rnl_status rnl_parse(rnl_family family, const char *name, int *value, rnl_error *err);

/* Bytes of one element. */
int64_t rnl_dtype_nbytes(rnl_dtype dtype);

typedef struct rnl_spec {
    rnl_cell cell;
    int64_t input_size;
    int64_t hidden_size;
    int64_t num_layers;
    int bidirectional;
    int64_t proj_size; /* 0: none; LSTM only, less than hidden_size */
    rnl_bias bias;     /* of the cuDNN form; other layouts only ask whether it is NONE */
    rnl_reset reset;   /* RNL_RESET_AFTER for all but GRUs */
    rnl_activation recurrent_activation; /* RNL_SIGMOID for the cells without gates */
    int skip_input; /* cuDNN form: layer 0 adds x itself, its W do not exist; needs I == H */
    rnl_dtype dtype;
} rnl_spec;

/* One layer, one direction, two biases, float32. */
rnl_spec rnl_spec_default(rnl_cell cell, int64_t input_size, int64_t hidden_size);

/* RNL_E_SPEC: a size below 1, a combination that no framework knows, or weights of 2^63 bytes
 * and more. Every function that takes a spec makes this check first. */
rnl_status rnl_spec_check(const rnl_spec *spec, rnl_error *err);

/* The tier of kernels that is run: "avx512", "avx2", "neon" or "plain". The best that the CPU has;
 * the environment variable RNNLAYOUT_CPU, read at the first use, may name a lower one. */
const char *rnl_cpu_tier(void);

/* ------------------------------------------------------------------------------ layouts -- */

enum { RNL_NUM_OPTIONS = 3, RNL_MAX_DIMS = 3, RNL_MAX_NAME = 64 };

/* A layout's name with its options, filled in by the two functions below. */
typedef struct rnl_layout {
    const char *name;
    int option[RNL_NUM_OPTIONS]; /* index of the chosen value, 0 is the default */
} rnl_layout;

/* RNL_E_LAYOUT: no such layout, the text lists those that exist. Options at their defaults. */
rnl_status rnl_layout_named(const char *name, rnl_layout *layout, rnl_error *err);

/* RNL_E_LAYOUT: the layout has no such option, or the option no such value; untouched then. */
rnl_status rnl_layout_set(rnl_layout *layout, const char *option, const char *value,
                          rnl_error *err);

/* One option: name, values (ended by NULL, the default first), a note on each value, and the
 * dtypes that it does not know (bit 1 << rnl_dtype). */
typedef struct rnl_option {
    const char *name;
    const char *values[4];
    const char *notes[4];
    unsigned lacks[4];
} rnl_option;

/* One row of the table of layouts, for display; a layout has one row or more. */
typedef struct rnl_row_info {
    const char *layout;
    const char *gates[4];  /* by rnl_cell: gates in their order in memory, NULL: not held */
    unsigned resets;       /* GRUs held: bit 1 << rnl_reset                               */
    unsigned activations;  /* recurrent activations held: bit 1 << rnl_activation         */
    unsigned roles;        /* roles held: bit 1 << rnl_role                               */
    int bias_always;       /* such layers have biases even where spec->bias is RNL_BIAS_NONE; they
                              are zero then                                               */
    int z_takes_candidate; /* h' = (1 - z) h + z n, else h' = z h + (1 - z) n             */
    const rnl_option *options[RNL_NUM_OPTIONS]; /* those it takes, then NULL              */
    const char *source; /* where the fact comes from                                   */
} rnl_row_info;

/* Row k of the table. RNL_E_LAYOUT: k is past the last one. */
rnl_status rnl_row_at(int k, rnl_row_info *info, rnl_error *err);

/* Which optional tensors there are: the biases as a whole, peepholes. cuDNN's form does not look
 * at RNL_HAS_BIAS: spec->bias decides; nor does a row with bias_always. */
enum { RNL_HAS_BIAS = 1, RNL_HAS_PEEPHOLES = 2 };

/* What spec says of a target's tensors: RNL_HAS_BIAS unless spec->bias is RNL_BIAS_NONE. */
unsigned rnl_spec_has(const rnl_spec *spec);

/* RNL_E_LOSSY: the layout has no form for such an RNN, the text says why. RNL_E_SPEC: a limit of
 * the chosen version of the layout's library. */
rnl_status rnl_layout_check(const rnl_layout *layout, const rnl_spec *spec, rnl_error *err);

typedef struct rnl_tensor {
    char name[RNL_MAX_NAME];
    int ndim;
    int64_t shape[RNL_MAX_DIMS]; /* elements, slowest axis first; row-major */
    int64_t nelems;
} rnl_tensor;

/* How many tensors the RNN has in this layout. Errors as rnl_layout_check. */
rnl_status rnl_layout_num_tensors(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                                  int64_t *n, rnl_error *err);

/* Tensor k, 0 <= k < n, in the framework's own order. */
rnl_status rnl_layout_tensor(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                             int64_t k, rnl_tensor *tensor, rnl_error *err);

/* One matrix or bias of one gate of one layer and direction. */
typedef struct rnl_block {
    int64_t layer;
    int direction; /* 0 forward, 1 backward */
    rnl_role role;
    int gate; /* cuDNN's order: LSTM i f g o, GRU r z n; 0 for the projection */
} rnl_block;

/* The letter of a gate: i f g o, r z n, h. */
char rnl_gate_letter(rnl_cell cell, int gate);

/* cuDNN's linLayerID of a block. */
int rnl_lin_layer_id(rnl_cell cell, const rnl_block *block);

/* Every block that any layout may have for this spec, in the order of cuDNN's weight space: all
 * matrices by layer, direction, role and gate, then all biases so, then peepholes. */
int64_t rnl_num_blocks(const rnl_spec *spec);
rnl_block rnl_block_at(const rnl_spec *spec, int64_t k);

/* Where a block lies: element (r, c) is element at + r * row_stride + c * col_stride of the
 * tensor. A bias has one column. ravel: rows and columns are not the matrix's own; read row by
 * row, the elements are those of the matrix read row by row. tensor -1: the layout has no such
 * block. All in elements. */
typedef struct rnl_view {
    int64_t tensor;
    int64_t at;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    int ravel;
} rnl_view;

rnl_status rnl_layout_locate(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                             const rnl_block *block, rnl_view *view, rnl_error *err);

/* -------------------------------------------------------------------------- conversions -- */

typedef enum rnl_grade {
    RNL_EXACT, /* every bit is moved; a changed sign counts as moved             */
    RNL_ROUNDS /* a sum of two non-zero biases, or a dtype that cannot hold all  */
} rnl_grade;

typedef enum rnl_op {
    RNL_OP_MOVE,           /* dst = +-src                                                 */
    RNL_OP_ADD,            /* dst = +-(src + src2); a zero operand copies the other       */
    RNL_OP_ZERO,           /* dst = 0                                                     */
    RNL_OP_IDENTITY,       /* dst = +-identity matrix                                     */
    RNL_OP_EXPECT_ZERO,    /* src must be zero: dst has no place for it                   */
    RNL_OP_EXPECT_IDENTITY /* src must be +-the identity matrix                           */
} rnl_op;

/* One step of a conversion, before neighbours are merged. */
typedef struct rnl_step {
    rnl_op op;
    int negate;
    rnl_block block;         /* what it is about: the target's block, the source's for EXPECT_*   */
    rnl_role from;           /* MOVE, ADD: the role at the source (ADD: bW, and bR is src2)       */
    rnl_view src, src2, dst; /* tensor -1 where the op has none                            */
} rnl_step;

typedef struct rnl_plan rnl_plan;

/*
 * Plan the conversion of one RNN's weights from layout src to layout dst.
 *
 * src_has  which optional tensors the source has; those of the target follow from spec
 *
 * The plan belongs to the caller (rnl_plan_free, NULL is fine) and is never changed.
 * RNL_E_LOSSY: dst has no form for such an RNN, whatever the values.
 */
rnl_status rnl_plan_new(const rnl_spec *spec, const rnl_layout *src, unsigned src_has,
                        const rnl_layout *dst, rnl_plan **plan, rnl_error *err);
void rnl_plan_free(rnl_plan *plan);

int64_t rnl_plan_num_steps(const rnl_plan *plan);
const rnl_step *rnl_plan_step(const rnl_plan *plan, int64_t k);

/* The same once neighbours are merged: fewer steps, whose views may be larger than a block. */
int64_t rnl_plan_num_ops(const rnl_plan *plan);
const rnl_step *rnl_plan_op(const rnl_plan *plan, int64_t k);

typedef struct rnl_report {
    rnl_grade grade;      /* of these values in these dtypes                              */
    int64_t rounded_sums; /* elements that are the sum of two non-zero biases            */
} rnl_report;

typedef struct rnl_run_options {
    int exact;           /* refuse what would round: RNL_E_LOSSY                       */
    int dry_run;         /* check and report only: dst may be NULL                     */
    int dst_is_new;      /* dst is fresh from the allocator, and nobody will look at it
                            unless RNL_OK is returned: it may be written before all of src
                            is checked, in one pass where the dtype narrows, and is
                            written from its end on: what the system cleared last is
                            still in the caches                                       */
    int (*poll)(void *); /* called every few milliseconds; non-zero: stop              */
    void *poll_arg;
} rnl_run_options;

/*
 * Convert.
 *
 * src      one pointer a source tensor, in the order of rnl_layout_tensor(); row-major, aligned
 *          for src_dtype; only read
 * dst      one pointer a target tensor, so too; must not overlap src
 * options  NULL: round where needed, no poll
 * report   NULL, or what happened
 *
 * RNL_E_LOSSY: a value that dst has no place for is not zero, a finite value would become
 * infinite, or options->exact; nothing is written then. RNL_E_INTERRUPTED: poll said so; dst may
 * be half-written then, the one such case. Never allocates.
 */
rnl_status rnl_plan_run(const rnl_plan *plan, rnl_dtype src_dtype, const void *const *src,
                        rnl_dtype dst_dtype, void *const *dst, const rnl_run_options *options,
                        rnl_report *report, rnl_error *err);

/* ---------------------------------------------------------------------- the forward pass -- */

/*
 * An RNN prepared for the CPU: its weights in panels for the machine's vectors, kept in their own
 * dtype. Results are bit-identical over runs, numbers of threads, batch sizes, positions in a
 * batch, and T calls of one step against one call of T, on one tier of kernels.
 *
 *   LSTM      i, f, o = s(W x + bW + R h + bR), g = tanh(...), c' = f c + i g, h' = o tanh(c'),
 *             then h' <- P h' where there is a projection
 *   GRU       h' = (1 - z) n + z h; n as at rnl_reset
 *   RNN       h' = tanh or relu(...)
 *
 * Arithmetic is in float32, in float64 where the weights are.
 */
typedef struct rnl_rnn rnl_rnn;

typedef struct rnl_rnn_options {
    int clips; /* LSTM: c' is clamped to [clip_low, clip_high] as it is stored; a NaN stays one */
    double clip_low, clip_high;
    int rounds;  /* bfloat16 weights: x and h are rounded to bfloat16 where they are multiplied with
                    a matrix; sums, gates and states stay in float32. Subnormals may count as zero */
    int borrows; /* for a single call: the weights are not packed before that is worth it, and have
                    to stay as they are; one call at a time */
} rnl_rnn_options;

/*
 * Prepare. weights: the tensor of layout "cpu" (cuDNN's weight space, also of RNNs that cuDNN does
 * not have), spec->dtype, rnl_layout_tensor() says how many elements; read and let go. options:
 * NULL for none.
 *
 * RNL_E_SPEC: the spec, a clip (not low <= high, or no LSTM) or rounds (weights not bfloat16) makes
 * no sense. RNL_E_NOMEM.
 */
rnl_status rnl_rnn_new(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options,
                       rnl_rnn **rnn, rnl_error *err);
void rnl_rnn_free(rnl_rnn *rnn);

/* New values for the same RNN; no call may be running. */
void rnl_rnn_update(rnl_rnn *rnn, const void *weights);

/* What was packed, bit for bit: into as many elements as rnl_rnn_new took. Not of an RNN that
 * borrows. */
void rnl_rnn_weights(const rnl_rnn *rnn, void *weights);

/*
 * One call. Strides are in elements, the last axis of every array is contiguous, all are aligned.
 *
 * dtype    of x, y and the states: that of the weights, or float32 where theirs is narrower
 * x        (T, N, I) at x_time, x_batch
 * lengths  NULL, or N of them, 0 <= length <= T: y is zero past the end, h_n and c_n are those of
 *          the last step, the second direction starts there; nothing of x past the end is read
 * h0, c0   (L * D, N, P'), (L * D, N, H), contiguous; NULL: zero
 * y        (T, N, D * P') at y_time, y_batch; NULL: not wanted
 * hn, cn   as h0, c0; may be the same memory; NULL: not wanted
 *
 * y may be x, of the same strides, where T is 1 and there is one direction. No other overlaps.
 */
typedef struct rnl_rnn_call {
    int64_t T, N;
    rnl_dtype dtype;
    const void *x;
    int64_t x_time, x_batch;
    const int64_t *lengths;
    const void *h0, *c0;
    void *y;
    int64_t y_time, y_batch;
    void *hn, *cn;
    int (*poll)(void *); /* as in rnl_run_options */
    void *poll_arg;
} rnl_rnn_call;

/*
 * Run. Any number of threads may run one RNN at a time.
 *
 * RNL_E_SPEC: a dtype, a length or a size that cannot be. RNL_E_NOMEM. RNL_E_INTERRUPTED: y, hn and
 * cn may be half-written. Allocates where a call needs more room than any before it did.
 */
rnl_status rnl_rnn_run(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err);

/* Threads that one call uses at most, 64 at the most; by default what RNNLAYOUT_NUM_THREADS says,
 * or OMP_NUM_THREADS, or the CPUs that this process may use (affinity and cgroup). n < 1: the
 * default again. They are started when first needed, and not inherited by a fork. */
void rnl_set_num_threads(int n);
int rnl_num_threads(void);

/* ------------------------------------------------------------------------- finding cuDNN -- */

/* What is looked at besides the system and the environment; each list ends with NULL, and may be
 * NULL itself. */
typedef struct rnl_cudnn_search {
    const char *const *packages;     /* folders that Python's packages lie in          */
    const char *const *environments; /* roots of environments, which have a lib folder */
} rnl_cudnn_search;

/* One place that was looked at. */
typedef struct rnl_cudnn_place {
    const char *origin;  /* what led there: "packages", "CUDA_HOME" ...   */
    const char *path;    /* the library, or the folder that has none      */
    const char *why_not; /* in words; NULL: this one is in use            */
} rnl_cudnn_place;

typedef struct rnl_gpu {
    char name[128];
    int capability;      /* 10 * major + minor                            */
    const char *why_not; /* cuDNN cannot use it, in words; NULL: it can   */
} rnl_gpu;

typedef struct rnl_cudnn_report {
    const char *why_not; /* no GPU can be used, in words; NULL: the first one can */
    const rnl_cudnn_place *places;
    int num_places;
    const char *path;        /* of libcudnn; NULL: none that can be used              */
    int version;             /* 91900: 9.19.0; 8906: 8.9.6                            */
    int cuda_version;        /* 13010: it is built for CUDA 13.1                      */
    const char *cublas;      /* libcublasLt; NULL: not opened, for want of a driver   */
    const char *driver;      /* libcuda; NULL: there is none                          */
    const char *no_driver;   /* why it cannot be used; NULL: it can                   */
    int driver_cuda_version; /* the newest CUDA that it runs                          */
    const rnl_gpu *gpus;
    int num_gpus;
} rnl_cudnn_report;

/*
 * Find cuDNN 8.9 or 9 and the driver and open them, once a process; the answer is kept, a bad one
 * too. The first of these that can be used is taken:
 *
 *   1. what rnl_cudnn_choose() or the variable RNNLAYOUT_CUDNN names, a file or a folder: then
 * there is no 2, and "off" means none
 *   2. what something else has loaded into the process
 *   3. packages: <each>/nvidia/cudnn/lib, nvidia/cudnn_jit/lib, torch/lib
 *   4. environments: CONDA_PREFIX, then <each>/lib
 *   5. toolkits: CUDNN_PATH, CUDNN_HOME, CUDA_PATH, CUDA_HOME, /usr/local/cuda, /opt/cuda
 *   6. the loader: LD_LIBRARY_PATH, then its own folders
 *
 * report  belongs to the caller, who ends it with rnl_cudnn_report_free() (NULL is fine)
 *
 * RNL_OK whatever was found: the report tells. RNL_E_NO_CUDNN: this process was forked from one
 * that has initialized the driver. RNL_E_NOMEM. What is opened stays open.
 */
rnl_status rnl_cudnn_find(const rnl_cudnn_search *search, const rnl_cudnn_report **report,
                          rnl_error *err);
void rnl_cudnn_report_free(const rnl_cudnn_report *report);

/* Name the cuDNN to be used: a file, a folder, "off"; NULL: none any more. It is not looked at yet,
 * and comes before RNNLAYOUT_CUDNN. What was not found before is looked for again. RNL_E_SPEC: one
 * is in use. RNL_E_NOMEM. */
rnl_status rnl_cudnn_choose(const char *path, rnl_error *err);

/* ---------------------------------------------------------------- the forward pass on a GPU -- */

/*
 * An RNN on a GPU, run by cuDNN: its weights are uploaded once. What a call needs besides (a
 * handle, descriptors, workspace, pinned memory) is kept in a few lanes, each for one call at a
 * time.
 *
 * Semantics are those of rnl_rnn, where cuDNN's own differ too: c_n is clamped. Results are not
 * bit-identical over batches and devices. rnl_cudnn_find() has to have found a cuDNN and the GPU;
 * nothing else of the process's state is touched: the device's primary context is used, and the
 * caller's context is current again after each call. Not after a fork.
 */
typedef struct rnl_gpu_rnn rnl_gpu_rnn;

typedef enum rnl_gpu_math {
    RNL_GPU_MATH_DEFAULT, /* float32 and float64 by FMA, float16 and bfloat16 by tensor cores with
                             sums in float32                                                     */
    RNL_GPU_MATH_TF32     /* float32 may be rounded to TF32's 10 bits in products                */
} rnl_gpu_math;

typedef enum rnl_gpu_algo {
    RNL_GPU_STANDARD,
    RNL_GPU_PERSIST_STATIC, /* weights stay in the GPU's registers; cuDNN's limits apply       */
    RNL_GPU_PERSIST_SMALL   /* the same for H <= 192, of plain RNNs 384                         */
} rnl_gpu_algo;

typedef struct rnl_gpu_options {
    int device;
    int clips; /* as in rnl_rnn_options */
    double clip_low, clip_high;
    rnl_gpu_math math;
    rnl_gpu_algo algo;
} rnl_gpu_options;

/*
 * Upload. weights: cuDNN's weight space in the host's memory (layout "cudnn"), spec->dtype; read
 * and let go.
 *
 * RNL_E_SPEC: the spec, an option, or what this cuDNN or GPU has not (a reset-before GRU, bfloat16
 * before capability 8.0, an algorithm's limits), in words. RNL_E_NO_CUDNN. RNL_E_CUDNN.
 * RNL_E_NOMEM: of the host, or of the device: the text says how much was asked for.
 */
rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                           const rnl_gpu_options *options, rnl_gpu_rnn **rnn, rnl_error *err);

/* Waits for its calls. NULL is fine. Nothing is freed in a forked child or after a sticky error. */
void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn);

/* What was uploaded, bit for bit. */
rnl_status rnl_gpu_rnn_weights(rnl_gpu_rnn *rnn, void *weights, rnl_error *err);

/*
 * One call. All arrays are contiguous, of spec->dtype, and lie in the device's memory, or all in
 * the host's.
 *
 * on_host      the arrays lie in the host's memory: they are copied, and the call returns when the
 *              results are there; poll is asked now and then meanwhile. Otherwise the call returns
 *              as soon as its work is in the stream
 * batch_first  x is (N, T, I) and y (N, T, D * P'), else (T, N, I) and (T, N, D * P')
 * lengths, h0, c0, hn, cn, y   as in rnl_rnn_call; lengths lie in the host's memory
 * stream       the caller's, of the device; NULL: the legacy default stream, 2: the per-thread one
 *
 * y may not overlap x or a state; hn may be h0 and cn c0. With a clip c0 is clamped as it is read.
 *
 * While the caller captures the stream into a graph: such a call has to have run before, and to be
 * over; nothing is allocated, and lengths become those of the graph (cuDNN 8.9.7 or newer). Graphs
 * of one RNN between which no other call ran share memory: they are launched one after another.
 * They are gone before the RNN is freed.
 *
 * RNL_E_SPEC: a size, a length, a pointer that is NULL, unaligned, of the host's, of another
 * device, a stream of another one. RNL_E_CUDNN; RNL_E_NOMEM; RNL_E_INTERRUPTED (on_host alone:
 * outputs may be half-written).
 */
typedef struct rnl_gpu_call {
    int64_t T, N;
    int on_host, batch_first;
    const void *x;
    const int64_t *lengths;
    const void *h0, *c0;
    void *y, *hn, *cn;
    void *stream;
    int (*poll)(void *);
    void *poll_arg;
} rnl_gpu_call;

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err);

/* Device memory for results. To free it waits for the device: others may still read it. It does not
 * disturb a capture of the thread's. NULL is fine. */
rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err);
void rnl_gpu_free(int device, void *address);

/* Copy device memory to the host's behind the work in the stream, and wait for it. */
rnl_status rnl_gpu_copy_out(int device, const void *address, void *host, int64_t nbytes,
                            void *stream, rnl_error *err);

/* Whose memory is this? *device: its GPU, or -1 for the host's. RNL_E_SPEC: it is managed memory,
 * which cuDNN is not given. */
rnl_status rnl_gpu_device_of(const void *address, int *device, rnl_error *err);

/* Let the stream `after` go on only when all that is in `before` by now is done. Nothing is done
 * where just one of the two is captured into a graph: its launch is ordered by whoever launches it.
 */
rnl_status rnl_gpu_order(int device, void *before, void *after, rnl_error *err);

#ifdef __cplusplus
}
#endif
#endif
