/*
 * rnnlayout: convert the weights of LSTM, GRU and plain RNNs between cuDNN's packed weight space
 * and the layouts of the frameworks, and run the forward pass. Plain C11, without Python, CUDA or a
 * framework.
 *
 * Symbols: T time steps, N batch size, I input_size, H hidden_size, P proj_size (P' = P, or H
 * without a projection), L num_layers, D directions (1 or 2), G gates (LSTM 4, GRU 3, RNN 1).
 *
 * These rules apply to every function, unless its comment makes an exception:
 *   memory   The caller owns every buffer and struct. The library uses them only during the call.
 *   threads  Any thread may call any function. Threads may share an object that none of them
 *            changes. The only global state is the forward pass's thread pool and the cuDNN library
 *            in use.
 *   errors   The function returns the status and writes the message to *err, which must not be
 *            NULL. Outputs change only if the status is RNL_OK.
 *   enums    A function without err needs values that exist; rnl_name() alone takes any.
 *   strings  Strings that the library returns are static, NUL-terminated UTF-8.
 */
#ifndef RNNLAYOUT_H
#define RNNLAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the shared library exports these functions, no others */
#endif

#define RNL_VERSION "0.1.0"

/* Return the version of the library that runs; RNL_VERSION is that of the header. */
const char *rnl_version(void);

/* ------------------------------------------------------------------------------- errors -- */

typedef enum rnl_status {
    RNL_OK = 0,
    RNL_E_SPEC,        /* an argument is invalid: the RNN, a size, an option               */
    RNL_E_LAYOUT,      /* the layout, option or row does not exist; an array does not fit  */
    RNL_E_LOSSY,       /* the target layout or dtype cannot represent this RNN or a value  */
    RNL_E_NOMEM,       /* an allocation failed                                             */
    RNL_E_INTERRUPTED, /* the caller's poll function asked to stop                         */
    RNL_E_NO_CUDNN,    /* no usable cuDNN, driver or GPU was found                         */
    RNL_E_CUDNN        /* a call to cuDNN or to the driver failed                          */
} rnl_status;

typedef struct rnl_error {
    rnl_status status;
    char text[1024];
    const char *call; /* RNL_E_CUDNN only: the name of the function that failed ... */
    int number;       /* ... and the number that it returned                        */
} rnl_error;

/* -------------------------------------------------------------------- describing an RNN -- */

typedef enum rnl_cell { RNL_LSTM, RNL_GRU, RNL_RNN_TANH, RNL_RNN_RELU } rnl_cell;

/* What is true of a cell. A gate is a letter, '\0' if the cell has none of this kind. */
typedef struct rnl_cell_facts {
    const char *gates;     /* in cuDNN's order, in which gates are numbered everywhere        */
    const char *peepholes; /* the gates that peepholes may connect to the cell state; "": none */
    char forget;           /* multiplies the cell state: some frameworks add a forget bias    */
    char reset;            /* multiplies h or R h, see rnl_reset                              */
    char update;           /* weighs the old state and the candidate: z, of either convention */
    char candidate;        /* the gate with the other activation; reset after: its bR is inside
                              a product, apart from its bW                                    */
    int has_c;             /* 1: the state is h and c, otherwise h                            */
    int may_project;
} rnl_cell_facts;

const rnl_cell_facts *rnl_cell_facts_of(rnl_cell cell);

/* cuDNN's bias modes: which of the two bias vectors of each gate its weight space contains. */
typedef enum rnl_bias {
    RNL_BIAS_DOUBLE,
    RNL_BIAS_INPUT,
    RNL_BIAS_RECURRENT,
    RNL_BIAS_NONE
} rnl_bias;

/* Where a GRU applies its reset gate r. After the matrix: n = tanh(W x + bW + r * (R h + bR));
 * before it: n = tanh(W x + bW + R (r * h) + bR). */
typedef enum rnl_reset { RNL_RESET_AFTER, RNL_RESET_BEFORE } rnl_reset;

/* The activation of the gates i, f, o (LSTM) and r, z (GRU). */
typedef enum rnl_activation {
    RNL_SIGMOID,
    RNL_HARD_SIGMOID,       /* Keras 3:      clip(x / 6 + 0.5, 0, 1)   */
    RNL_HARD_SIGMOID_KERAS2 /* Keras 1 and 2: clip(0.2 x + 0.5, 0, 1)  */
} rnl_activation;

/* The other activation of an LSTM and a GRU: of the candidate, and of c' in h' = o tanh(c'). */
typedef enum rnl_state_activation { RNL_TANH, RNL_RELU } rnl_state_activation;

typedef enum rnl_dtype { RNL_FLOAT16, RNL_BFLOAT16, RNL_FLOAT32, RNL_FLOAT64 } rnl_dtype;

/* The role of a block of weights. Each layer and direction has the blocks below. */
typedef enum rnl_role {
    RNL_NO_ROLE,
    RNL_W,   /* input matrix, (H, inputs of the layer) per gate                      */
    RNL_R,   /* recurrent matrix, (H, P') per gate                                   */
    RNL_P,   /* projection, (P, H)                                                   */
    RNL_BW,  /* input bias, (H,) per gate                                            */
    RNL_BR,  /* recurrent bias, (H,) per gate                                        */
    RNL_PEEP /* peephole p of an LSTM, (H,) for each of i, f and o: the sums of i and f contain
                p * c, the sum of o contains p * c'                              */
} rnl_role;

/* The families of names: the values of the enums above have names in files, in Python and in error
 * messages. */
typedef enum rnl_family {
    RNL_NAMES_CELL,
    RNL_NAMES_BIAS,
    RNL_NAMES_RESET,
    RNL_NAMES_ACTIVATION,
    RNL_NAMES_STATE_ACTIVATION,
    RNL_NAMES_DTYPE,
    RNL_NAMES_ROLE,
    RNL_NAMES_CHECKED
} rnl_family;

/* Return the name of a value, or NULL if the family or the value does not exist. */
const char *rnl_name(rnl_family family, int value);

/* Find the value of a name. RNL_E_SPEC: the family or the name does not exist; the message lists
 * the names. */
rnl_status rnl_parse(rnl_family family, const char *name, int *value, rnl_error *err);

/* Return the number of bytes of one element. */
int64_t rnl_dtype_nbytes(rnl_dtype dtype);

typedef struct rnl_spec {
    rnl_cell cell;
    int64_t input_size;
    int64_t hidden_size;
    int64_t num_layers;
    int bidirectional;
    int64_t proj_size; /* 0: no projection; else less than hidden_size, and only for an LSTM */
    rnl_bias bias;     /* in layout "cudnn"; other layouts only check whether it is NONE */
    rnl_reset reset;   /* RNL_RESET_AFTER for every cell but the GRU */
    rnl_activation recurrent_activation; /* RNL_SIGMOID for the plain RNNs, which have no gates */
    rnl_state_activation activation;     /* RNL_TANH for the plain RNNs, whose cell names theirs */
    int peepholes;                       /* an LSTM's: see rnl_role; cuDNN has none */
    int skip_input; /* layout "cudnn": layer 0 adds x itself and has no W; needs I == H */
    rnl_dtype dtype;
} rnl_spec;

/* Return a spec with one layer, one direction, two biases and float32. */
rnl_spec rnl_spec_default(rnl_cell cell, int64_t input_size, int64_t hidden_size);

/* Check a spec. RNL_E_SPEC: a size is out of range, the fields contradict each other, or the
 * weights would have 2^63 bytes or more as float64. Every function below that takes a spec and an
 * rnl_error makes this check first; those without an rnl_error need a spec that passes it. */
rnl_status rnl_spec_check(const rnl_spec *spec, rnl_error *err);

/* Return the tier of kernels in use: "amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "neon" or
 * "plain". It is the best that the CPU supports, or the one that the environment variable
 * RNNLAYOUT_CPU names, if the CPU supports it. The variable is read once, at the first use. For
 * "amx" Linux is asked to let this process use the tile registers. */
const char *rnl_cpu_tier(void);

/* ------------------------------------------------------------------------------ layouts -- */

enum { RNL_NUM_OPTIONS = 4, RNL_MAX_DIMS = 5, RNL_MAX_NAME = 64 };

/* The layout of the weights of rnl_rnn_new(), named as in messages. It is not in the table. */
#define RNL_FORWARD_LAYOUT "the forward pass"

/* A layout's name and its options, set by the two functions below. */
typedef struct rnl_layout {
    const char *name;
    int option[RNL_NUM_OPTIONS]; /* index of the chosen value; 0 is the default */
    double forget_bias;          /* the value of the option "forget_bias"       */
} rnl_layout;

/* Find a layout by its name or an alias ("pytorch" is one of "torch"; layout->name is "torch"), and
 * set its options to their defaults. RNL_E_LAYOUT: the layout does not exist; the message
 * lists the layouts. */
rnl_status rnl_layout_named(const char *name, rnl_layout *layout, rnl_error *err);

/* Set one option of a layout. RNL_E_LAYOUT: the layout does not have this option, or the option
 * does not have this value. */
rnl_status rnl_layout_set(rnl_layout *layout, const char *option, const char *value,
                          rnl_error *err);

/* An option of a layout. */
typedef struct rnl_option {
    const char *name;
    const char *values[4]; /* the default first; the list ends with NULL                */
    const char *notes[4];  /* a note on each value                                      */
    unsigned lacks[4];     /* dtypes that a value does not support: bits 1 << rnl_dtype */
    int is_number;         /* 1: its value may be any finite number                     */
} rnl_option;

/* What a row of the table, or another name of a layout, is tested against. */
typedef enum rnl_checked {
    RNL_CHECKED_DOCUMENTS, /* an RNN that follows the equations in its source                   */
    RNL_CHECKED_RECORDED,  /* answers that the framework once gave, kept in the tests           */
    RNL_CHECKED_FRAMEWORK  /* the framework itself, in every run of the tests                   */
} rnl_checked;

/* One row of the table of layouts, for display. A layout has one or more rows. */
typedef struct rnl_row_info {
    const char *layout;
    const char *gates[4];  /* by rnl_cell: its gates in memory order; NULL: not supported  */
    unsigned resets;       /* GRUs that are supported: bits 1 << rnl_reset                 */
    unsigned activations;  /* recurrent activations, likewise: bits 1 << rnl_activation    */
    int has_relu;          /* 1: its LSTMs and GRUs may have activation RNL_RELU           */
    unsigned roles;        /* roles that the layout contains: bits 1 << rnl_role           */
    int bias_always;       /* the layout contains biases even if spec->bias is
                              RNL_BIAS_NONE; they are zero then                            */
    double forget_bias;    /* added to the bias of an LSTM's f whenever it runs, but not
                              part of the tensors; the default if it is an option          */
    int z_takes_candidate; /* 1: h' = (1 - z) h + z n; 0: h' = z h + (1 - z) n             */
    const rnl_option *options[RNL_NUM_OPTIONS]; /* the options of the row, then NULL       */
    int must_name; /* 1: its tensors look like those of another layout, so that a source
                      is read in it only if the caller names the layout        */
    rnl_checked checked;
    const char *source; /* where the facts of the row come from    */
} rnl_row_info;

/* Get row k of the table. RNL_E_LAYOUT: the table has no row k. Count k up from 0 until then. */
rnl_status rnl_row_at(int k, rnl_row_info *info, rnl_error *err);

/* Another name of a layout: a framework whose weights are exactly those of the layout. */
typedef struct rnl_alias {
    const char *name;
    const char *layout;
    rnl_checked checked;
    const char *source;
} rnl_alias;

/* Get alias k. RNL_E_LAYOUT: alias k does not exist. Count k up from 0 until then. */
rnl_status rnl_alias_at(int k, rnl_alias *alias, rnl_error *err);

/* The optional tensors that are present: all biases, all peepholes. RNL_HAS_BIAS has no effect in
 * layout "cudnn", where spec->bias decides, and in rows with bias_always. */
enum { RNL_HAS_BIAS = 1, RNL_HAS_PEEPHOLES = 2 };

/* Return the optional tensors that a spec asks for: RNL_HAS_BIAS unless spec->bias is
 * RNL_BIAS_NONE, RNL_HAS_PEEPHOLES if spec->peepholes is set. Layouts without peepholes ignore
 * RNL_HAS_PEEPHOLES, but refuse a spec with peepholes. */
unsigned rnl_spec_has(const rnl_spec *spec);

/* Check that a layout can represent an RNN. RNL_E_LOSSY: it cannot; the message gives the reason.
 * RNL_E_SPEC: the chosen version of the layout's library does not support the dtype. */
rnl_status rnl_layout_check(const rnl_layout *layout, const rnl_spec *spec, rnl_error *err);

typedef struct rnl_tensor {
    char name[RNL_MAX_NAME];
    int ndim;
    int64_t shape[RNL_MAX_DIMS]; /* in elements, slowest axis first; the tensor is row-major */
    int64_t nelems;
} rnl_tensor;

/* Get the number of tensors n that the RNN has in this layout. `has` is a sum of RNL_HAS_BIAS and
 * RNL_HAS_PEEPHOLES, here and below. Errors as in rnl_layout_check. */
rnl_status rnl_layout_num_tensors(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                                  int64_t *n, rnl_error *err);

/* Get tensor k, 0 <= k < n, in the framework's own order. Errors as in rnl_layout_check.
 * RNL_E_LAYOUT: tensor k does not exist. */
rnl_status rnl_layout_tensor(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                             int64_t k, rnl_tensor *tensor, rnl_error *err);

/*
 * Get name k of those that the tensors of one layer may have in a layout: of every cell and both
 * directions, with all optional tensors. In another layer only its number differs. The prefix of a
 * stack is left out. Some names are equal.
 *
 * name  receives the name, in at most RNL_MAX_NAME bytes
 *
 * RNL_E_LAYOUT: the layout does not have name k. Count k up from 0 until then.
 */
rnl_status rnl_layout_name_at(const rnl_layout *layout, int k, char *name, rnl_error *err);

/* One matrix or vector of one gate, in one layer and direction. */
typedef struct rnl_block {
    int64_t layer;
    int direction; /* 0 forward, 1 backward */
    rnl_role role;
    int gate; /* index in cuDNN's order: LSTM i f g o, GRU r z n; 0 for the projection */
} rnl_block;

/* Return the letter of a gate: one of i f g o (LSTM), r z n (GRU), h (RNN). */
char rnl_gate_letter(rnl_cell cell, int gate);

/* Return cuDNN's linLayerID of a block. */
int rnl_lin_layer_id(rnl_cell cell, const rnl_block *block);

/* The number of blocks, and block k, of all blocks that any layout may have for this spec. Their
 * order is that of cuDNN's weight space: all matrices by layer, direction, role and gate, then all
 * biases in the same order, then the peepholes. */
int64_t rnl_num_blocks(const rnl_spec *spec);
rnl_block rnl_block_at(const rnl_spec *spec, int64_t k);

/* The place of a block in a tensor. Element (r, c) of the block is element
 * at + r * row_stride + c * col_stride of the tensor. All numbers are in elements. */
typedef struct rnl_view {
    int64_t tensor; /* -1: the layout does not contain the block */
    int64_t at;
    int64_t rows, cols; /* a vector has one column */
    int64_t row_stride, col_stride;
    int ravel; /* 1: rows and cols are not those of the matrix, but both give the same sequence of
                  elements when they are read row by row */
} rnl_view;

/* Find the place of a block. Errors as in rnl_layout_check. RNL_E_SPEC: the RNN does not have this
 * layer or direction, the cell does not have this gate, or the role does not exist. */
rnl_status rnl_layout_locate(const rnl_layout *layout, const rnl_spec *spec, unsigned has,
                             const rnl_block *block, rnl_view *view, rnl_error *err);

/* -------------------------------------------------------------------------- conversions -- */

typedef enum rnl_grade {
    RNL_EXACT, /* no value is rounded; signs may be changed                               */
    RNL_ROUNDS /* two non-zero biases are added, the sum of a bias and a forget bias is
                  rounded, or the target dtype cannot represent all values of the source
                  dtype                                                                   */
} rnl_grade;

typedef enum rnl_op {
    RNL_OP_MOVE,           /* dst = +-src                                                    */
    RNL_OP_ADD,            /* dst = +-(src + src2); if one is zero, the other is copied      */
    RNL_OP_SHIFT,          /* dst = src + src2 + shift; src and src2 may be missing          */
    RNL_OP_ZERO,           /* dst = 0                                                        */
    RNL_OP_IDENTITY,       /* dst = +-identity matrix                                        */
    RNL_OP_EXPECT_ZERO,    /* src + shift must be zero, because the target cannot represent it */
    RNL_OP_EXPECT_IDENTITY /* src must be +-identity matrix, which the target leaves out     */
} rnl_op;

/* One step of a conversion. */
typedef struct rnl_step {
    rnl_op op;
    int negate;              /* 1: the minus of +-                                              */
    rnl_block block;         /* the target's block; for EXPECT_* the source's                   */
    rnl_role from;           /* the role of src; RNL_NO_ROLE without src. src2 is bR            */
    double shift;            /* SHIFT, EXPECT_ZERO: the source's forget bias minus the target's */
    rnl_view src, src2, dst; /* tensor is -1 if the op does not use it                          */
} rnl_step;

typedef struct rnl_plan rnl_plan;

/*
 * Plan the conversion of one RNN's weights from layout src to layout dst.
 *
 * src_has  the optional tensors that the source has; those of the target follow from spec. So a
 *          source's peepholes must be zero unless spec->peepholes is set
 *
 * The caller frees the plan with rnl_plan_free(), which accepts NULL. No function changes a plan.
 *
 * RNL_E_LOSSY: src or dst cannot represent this RNN, whatever its values are. RNL_E_SPEC: as in
 * rnl_layout_check. RNL_E_NOMEM.
 */
rnl_status rnl_plan_new(const rnl_spec *spec, const rnl_layout *src, unsigned src_has,
                        const rnl_layout *dst, rnl_plan **plan, rnl_error *err);
void rnl_plan_free(rnl_plan *plan);

/* The steps, at most two per block. */
int64_t rnl_plan_num_steps(const rnl_plan *plan);
const rnl_step *rnl_plan_step(const rnl_plan *plan, int64_t k);

/* The ops: the same steps with neighbours merged. Their views may be larger than a block. */
int64_t rnl_plan_num_ops(const rnl_plan *plan);
const rnl_step *rnl_plan_op(const rnl_plan *plan, int64_t k);

typedef struct rnl_report {
    rnl_grade grade;      /* for these values and dtypes                                 */
    int64_t rounded_sums; /* number of elements that are the sum of two non-zero biases, or the
                             rounded sum of a bias and a forget bias                     */
} rnl_report;

typedef struct rnl_run_options {
    int exact;           /* return RNL_E_LOSSY instead of rounding                     */
    int dry_run;         /* check and report only; dst may be NULL                     */
    int dst_is_new;      /* dst is newly allocated, and the caller discards it unless the
                            status is RNL_OK: then dst may be written before all of src is
                            checked, which is faster                           */
    int (*poll)(void *); /* called every few milliseconds, in the calling thread; return
                            non-zero to stop                                           */
    void *poll_arg;
} rnl_run_options;

/*
 * Run a plan: convert the weights.
 *
 * src      one pointer per source tensor, in the order of rnl_layout_tensor(); row-major and
 *          aligned for src_dtype; only read
 * dst      one pointer per target tensor, in the same order and form; must not overlap src
 * options  NULL: all zero, so that values are rounded if necessary
 * report   receives the report; may be NULL
 *
 * RNL_E_SPEC: a dtype does not exist. RNL_E_LOSSY: the target cannot represent a value that is not
 * zero, a finite value would become infinite, or the conversion would round and options->exact is
 * set. RNL_E_INTERRUPTED: poll returned non-zero; dst may be partly written. Allocates no memory.
 */
rnl_status rnl_plan_run(const rnl_plan *plan, rnl_dtype src_dtype, const void *const *src,
                        rnl_dtype dst_dtype, void *const *dst, const rnl_run_options *options,
                        rnl_report *report, rnl_error *err);

/* ---------------------------------------------------------------------- the forward pass -- */

/*
 * An RNN prepared for the CPU. Its weights are packed for the CPU's vector registers and keep their
 * dtype.
 *
 *   LSTM      i, f, o = s(W x + bW + R h + bR), g = tanh(...), c' = f c + i g, h' = o tanh(c'),
 *             then h' <- P h' if there is a projection; peepholes as at rnl_role
 *   GRU       h' = (1 - z) n + z h; n as at rnl_reset
 *   RNN       h' = tanh or relu(...)
 *
 * With spec->activation RNL_RELU, relu replaces each tanh of an LSTM and a GRU; relu(NaN) is NaN.
 *
 * Arithmetic is in float32, or in float64 if the weights are float64. On one tier of kernels,
 * results are bit-identical from run to run, for any number of threads, any batch size and any
 * position in the batch, and for T calls of one step as for one call of T steps; only the sign and
 * payload of a NaN may differ. Subnormal operands and results count as zero, on x86-64 and AArch64;
 * the caller's floating-point mode is restored.
 */
typedef struct rnl_rnn rnl_rnn;

/* What matrix products round. Sums, gates and states stay in float32. */
typedef enum rnl_cpu_math {
    RNL_CPU_MATH_DEFAULT,  /* nothing                                                             */
    RNL_CPU_MATH_BFLOAT16, /* bfloat16 weights: x and h are rounded to bfloat16. Subnormals may
                              become zero                                                         */
    RNL_CPU_MATH_INT8      /* float32 weights: these are rounded to integers -127 ... 127, and x and
                              h to 16 bits. Each row of a matrix, and of x and h, has a scale of its
                              own, from its largest magnitude: a weight is off by at most 1/254 of
                              that (and 2^-15 of it), an input by at most 1/65534. A row whose
                              magnitudes are all below 2^-100 counts as zeros; results of a row
                              with an infinity or a NaN are NaN. rnl_rnn_weights() returns the
                              rounded weights, from which the same RNN is prepared again        */
} rnl_cpu_math;

typedef struct rnl_rnn_options {
    int clips; /* LSTM: clamp c' to [clip_low, clip_high] when it is stored; a NaN stays a NaN */
    double clip_low, clip_high;
    rnl_cpu_math math;
    int borrows; /* meant for a single call: the RNN reads the caller's weights and packs them only
                    if that is faster. The weights must stay unchanged until the RNN is freed, and
                    calls must not run at the same time */
} rnl_rnn_options;

/*
 * Read which RNN a file has: the JSON that `rnnlayout convert model.pt lstm.bin` writes beside the
 * weights, in lstm.bin.json, or what Spec.to_dict() returns in Python.
 *
 * text     nbytes bytes of UTF-8; a NUL after them is not needed
 * options  receives the clip of the cell state if the RNN is used with one; otherwise zeros
 *
 * RNL_E_SPEC: the text is not such JSON, or the spec is invalid; the message has the key, what was
 * found and what is needed. RNL_E_LOSSY: the RNN is used with a setting that rnl_rnn_run() does not
 * apply. Allocates no memory.
 */
rnl_status rnl_spec_from_json(const char *text, size_t nbytes, rnl_spec *spec,
                              rnl_rnn_options *options, rnl_error *err);

/*
 * Prepare an RNN for the CPU. The caller frees it with rnl_rnn_free(), which accepts NULL.
 *
 * weights  the tensor of layout RNL_FORWARD_LAYOUT, in spec->dtype: cuDNN's weight space, extended
 *          to RNNs that cuDNN does not support. rnl_layout_tensor() gives its number of elements.
 *          Only read during the call, unless options->borrows is set
 * options  NULL: none
 *
 * RNL_E_SPEC: the spec is invalid, a clip is set without clip_low <= clip_high or without an LSTM,
 * or math needs weights of another dtype. RNL_E_NOMEM.
 */
rnl_status rnl_rnn_new(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options,
                       rnl_rnn **rnn, rnl_error *err);
void rnl_rnn_free(rnl_rnn *rnn);

/* Replace the weights by others of the same spec. No call of this RNN may be running. */
void rnl_rnn_update(rnl_rnn *rnn, const void *weights);

/* Write the weights, bit for bit and with as many elements as rnl_rnn_new took; with
 * RNL_CPU_MATH_INT8 as they were rounded. Not for an RNN with options->borrows. */
void rnl_rnn_weights(const rnl_rnn *rnn, void *weights);

/*
 * One call on the CPU. Strides are in elements. Every array is aligned, and its last axis is
 * contiguous.
 *
 * dtype    of x, y and the states: the dtype of the weights, or float32 if theirs is narrower
 * x        (T, N, I), element (t, n, i) at t * x_time + n * x_batch + i
 * lengths  NULL: all sequences have T steps. Else N lengths, 0 <= length <= T. For a shorter
 *          sequence, y is zero past its end, h_n and c_n are those of its last step, the backward
 *          direction starts at its last step, and x is not read past its end
 * h0, c0   (L * D, N, P') and (L * D, N, H), contiguous; NULL: zeros
 * y        (T, N, D * P'), strides y_time and y_batch; NULL: not computed
 * hn, cn   shapes of h0 and c0, and may be the same memory; NULL: not computed
 *
 * y may be x, with the same strides, if T is 1 and there is one direction. Otherwise outputs must
 * not overlap any array.
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
 * Run the forward pass on the CPU. Several threads may run the same RNN at the same time.
 *
 * RNL_E_SPEC: a dtype or a size is invalid. RNL_E_LAYOUT: a length is invalid. RNL_E_NOMEM.
 * RNL_E_INTERRUPTED: poll returned non-zero, or poll forked the process and this is the child,
 * which lacks the threads that shared the call; y, hn and cn may be partly written.
 *
 * A call needs memory for its intermediate results: up to 4 MB are kept for the next call until the
 * RNN is freed (for each of up to 8 calls at the same time), more is freed when the call returns.
 */
rnl_status rnl_rnn_run(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err);

/*
 * A live signal: one sequence that arrives step by step, and its state, which is kept in the form
 * that the kernels use. It computes in the calling thread, with the bits of rnl_rnn_run().
 *
 * Real-time safe: rnl_stepper_run, _set, _reset and _get allocate no memory, take no lock, make no
 * system call and use no other thread. A stepper is used by one thread at a time; an RNN may have
 * any number of them.
 */
typedef struct rnl_stepper rnl_stepper;

/*
 * Make a stepper whose state is zero. The caller frees it with rnl_stepper_free(), which accepts
 * NULL, before the RNN. rnl_rnn_update() changes its weights too.
 *
 * rnn    an RNN with one direction
 * dtype  of x, y and the states, as in rnl_rnn_call
 *
 * RNL_E_SPEC: the RNN has two directions, or the dtype is invalid. RNL_E_NOMEM.
 */
rnl_status rnl_stepper_new(rnl_rnn *rnn, rnl_dtype dtype, rnl_stepper **stepper, rnl_error *err);
void rnl_stepper_free(rnl_stepper *stepper);

/* Compute n steps: x (n, I), y (n, P'), both aligned and contiguous. y NULL: not computed. y may be
 * x if I is P', and must not overlap it otherwise. Setting and restoring the mode in which
 * subnormal numbers count as zero takes 5 to 10 ns, less than one if the thread has it already. */
void rnl_stepper_run(rnl_stepper *stepper, const void *x, void *y, int64_t n);

/* Set the state, h (L, P') and c (L, H), both aligned and contiguous; NULL: zeros. c is not used
 * unless the cell is an LSTM. */
void rnl_stepper_set(rnl_stepper *stepper, const void *h, const void *c);
void rnl_stepper_reset(rnl_stepper *stepper); /* zeros */

/* Write the state after the last step. NULL: not written. c is written for an LSTM only. */
void rnl_stepper_get(const rnl_stepper *stepper, void *h, void *c);

/* Set and get the maximum number of threads that one call uses, 1 to 64. The default is
 * RNNLAYOUT_NUM_THREADS, else OMP_NUM_THREADS, else the number of CPUs that this process may use
 * (affinity and cgroup). n < 1 restores the default. The threads are started when they are first
 * needed, and again in a forked process. */
void rnl_set_num_threads(int n);
int rnl_num_threads(void);

/* ------------------------------------------------------------------------- opening cuDNN -- */

/*
 * Open cuDNN 9 and NVIDIA's driver for this process. Once it has succeeded, later calls do nothing.
 *
 * path  of libcudnn.so.9; NULL: the one that the process has loaded already, else the one that the
 *       system's loader finds
 *
 * All parts of cuDNN are checked and opened at once: a call that does not find its part aborts the
 * process. RNL_E_NO_CUDNN: the text says why this cuDNN cannot be used; another path may be tried.
 * Without a usable driver it succeeds too, and rnl_cudnn_describe() gives the reason. Opened
 * libraries stay open.
 */
rnl_status rnl_cudnn_open(const char *path, rnl_error *err);

/* What the process uses. Texts live as long as the process. */
typedef struct rnl_cudnn_about {
    const char *path;        /* of libcudnn; NULL: none is open                           */
    int version;             /* 91900 is 9.19.0                                           */
    int cuda_version;        /* of the CUDA that cuDNN is built for: 13010 is 13.1        */
    const char *cublas;      /* path of libcublasLt; NULL: not opened without a driver    */
    const char *driver;      /* path of libcuda; NULL: none was found                     */
    const char *no_driver;   /* the reason why the driver is not usable; NULL: it is      */
    int driver_cuda_version; /* of the newest CUDA that the driver supports               */
    int num_gpus;
} rnl_cudnn_about;

/* RNL_E_NO_CUDNN: this process was forked from one that had initialized the driver. */
rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err);

typedef struct rnl_gpu {
    char name[128];
    int capability; /* 10 * major + minor */
} rnl_gpu;

/* RNL_E_NO_CUDNN: this GPU cannot be used; the text says why, and gpu has what was found. */
rnl_status rnl_gpu_describe(int device, rnl_gpu *gpu, rnl_error *err);

/* ---------------------------------------------------------------- the forward pass on a GPU -- */

/*
 * An RNN on a GPU, run by cuDNN. Its weights are uploaded once. Threads may share it; its calls are
 * made one after the other.
 *
 * It computes what rnl_rnn computes, but has no clip.
 * Results may differ in rounding between batch sizes and devices.
 *
 * Call rnl_cudnn_open() first. The calls use the device's primary context and restore the caller's
 * context; they change no other state of the process. An RNN cannot be used in a forked process.
 */
typedef struct rnl_gpu_rnn rnl_gpu_rnn;

typedef enum rnl_gpu_math {
    RNL_GPU_MATH_DEFAULT, /* FMA for float32 and float64; tensor cores with float32 sums for
                             float16 and bfloat16                                          */
    RNL_GPU_MATH_TF32     /* products may round float32 to the 10 mantissa bits of TF32    */
} rnl_gpu_math;

typedef enum rnl_gpu_algo {
    RNL_GPU_AUTO, /* the one for small H where it fits and cuDNN supports it, else standard */
    RNL_GPU_STANDARD
} rnl_gpu_algo;

typedef struct rnl_gpu_options {
    int device;
    rnl_gpu_math math;
    rnl_gpu_algo algo;
} rnl_gpu_options;

/*
 * Prepare an RNN for a GPU: upload its weights. The caller frees it with rnl_gpu_rnn_free().
 *
 * weights  the tensor of layout "cudnn" in host memory, in spec->dtype; only read during the call
 * options  NULL: all zero
 *
 * RNL_E_SPEC: the spec or an option is invalid, or this cuDNN or GPU does not support the RNN (a
 * reset-before GRU, bfloat16 before capability 8.0); the message gives the reason. RNL_E_NO_CUDNN.
 * RNL_E_CUDNN. RNL_E_NOMEM: no host or device memory; for device memory the message gives the
 * number of bytes.
 */
rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                           const rnl_gpu_options *options, rnl_gpu_rnn **rnn, rnl_error *err);

/* Wait for the calls of this RNN, then free it. Accepts NULL. Device memory is not freed in a
 * forked process. */
void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn);

/*
 * One call on a GPU. All arrays are contiguous, in spec->dtype, and all are in the memory of the
 * RNN's device, or all in host memory.
 *
 * on_host      1: the arrays are in host memory. They are copied, the call returns when the results
 *              are complete, and poll is called now and then. 0: they are in device memory, and a
 *              call with a workspace returns as soon as its work is in the stream
 * batch_first  1: x is (N, T, I) and y is (N, T, D * P'). 0: (T, N, I) and (T, N, D * P')
 * lengths, h0, c0, hn, cn, y   as in rnl_rnn_call; lengths are always in host memory. cuDNN 9.1
 *              does not support a length of 0 beside others
 * stream       a stream of the device. NULL is the legacy default stream, 2 the per-thread one.
 *              Not used if on_host is 1
 * then         a stream whose later work waits for this call; 1 is the legacy default stream, NULL
 *              none. Not used if on_host is 1
 * workspace, workspace_nbytes   device memory for the work, aligned to 256 bytes, which nothing
 *              else uses before this work is done; rnl_gpu_rnn_workspace() tells its size. NULL, or
 *              too few bytes: the RNN uses a block of its own, and the call returns when the
 *              results are complete
 *
 * hn may be h0, and cn may be c0. Otherwise outputs must not overlap any array.
 *
 * If the caller is capturing the stream into a graph:
 *   - A call with the same sizes must have run and finished before.
 *   - workspace must be given, and live as long as the graph.
 *   - Its lengths become part of the graph.
 *   - `then` is NULL or a stream of the same capture.
 *   - Destroy the graphs before you free the RNN.
 *
 * Addresses are not checked: a wrong one destroys the context that the whole process shares.
 *
 * RNL_E_SPEC: a size is invalid, cuDNN does not support a length, the stream belongs to another
 * device, open captures use all of cuDNN's handles, or poll has called this RNN. RNL_E_LAYOUT: a
 * length is invalid; a pointer is NULL, unaligned, or in another array of the call. RNL_E_NO_CUDNN:
 * the process was forked, perhaps by poll. RNL_E_CUDNN. RNL_E_NOMEM.
 * RNL_E_INTERRUPTED: only if on_host is 1; outputs may be partly written.
 */
typedef struct rnl_gpu_call {
    int64_t T, N;
    int on_host, batch_first;
    const void *x;
    const int64_t *lengths;
    const void *h0, *c0;
    void *y, *hn, *cn;
    void *stream, *then;
    void *workspace;
    int64_t workspace_nbytes;
    int (*poll)(void *);
    void *poll_arg;
} rnl_gpu_call;

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err);

/* The bytes of workspace that a call uses. Asks cuDNN only if the last call had other sizes or
 * lengths. */
rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t *nbytes,
                                 rnl_error *err);

/* Allocate device memory, and free it, which waits for all work on the device, because that work
 * may still use the memory. Freeing disturbs no capture, and accepts NULL. RNL_E_SPEC: nbytes is
 * negative. RNL_E_NO_CUDNN. RNL_E_CUDNN. RNL_E_NOMEM. */
rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err);
void rnl_gpu_free(int device, void *address);

/* Copy device memory to the host. It waits for the copy alone: the work that writes there must be
 * complete. RNL_E_SPEC: nbytes is negative. RNL_E_NO_CUDNN. RNL_E_CUDNN. */
rnl_status rnl_gpu_read(int device, const void *from, int64_t nbytes, void *to, rnl_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
