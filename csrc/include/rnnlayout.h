/*
 * rnnlayout: convert the weights of LSTM, GRU and plain RNNs between cuDNN's packed weight space
 * and the layouts of the frameworks, and run the forward pass. Plain C11, without Python, CUDA or a
 * framework.
 *
 * Symbols: T time steps, N batch size, I input_size, H hidden_size, P proj_size (P' = P, or H
 * without a projection), L num_layers, D directions (1 or 2), G gates (LSTM 4, GRU 3, RNN 1).
 *
 * These rules apply to every function, unless the comment of a function makes an exception:
 *   memory   The caller owns every buffer and struct. The library uses a buffer or struct of the
 *            caller only during the call.
 *   threads  Any thread may call any function. Threads may share an object as long as no thread
 *            changes the object. The only global state is the forward pass's thread pool and the
 *            cuDNN library in use.
 *   errors   The function returns the status and writes the message to *err; err must not be NULL.
 *            Outputs change only if the status is RNL_OK.
 *   enums    A function without err needs values that exist; rnl_name() alone takes any value.
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
#pragma GCC visibility push(default) /* the shared library exports only these functions */
#endif

#define RNL_VERSION "0.1.0"

/* Return the version of the library that runs; RNL_VERSION is the version of the header. */
const char *rnl_version(void);

/* ------------------------------------------------------------------------------- errors -- */

typedef enum rnl_status {
    RNL_OK = 0,
    RNL_E_SPEC,        /* an argument is invalid: the RNN, a size, an option               */
    RNL_E_LAYOUT,      /* the layout, option or row does not exist; an array does not fit  */
    RNL_E_LOSSY,       /* the target layout or dtype cannot represent this RNN or a value  */
    RNL_E_NOMEM,       /* an allocation failed                                             */
    RNL_E_INTERRUPTED, /* the caller's poll function returned non-zero                     */
    RNL_E_NO_CUDNN,    /* no cuDNN, driver or GPU is usable                                */
    RNL_E_CUDNN        /* a call to cuDNN or to the driver failed                          */
} rnl_status;

typedef struct rnl_error {
    rnl_status status;
    char text[1024];
    const char *call; /* RNL_E_CUDNN only: the name of the function that failed ... */
    int number;       /* ... and the number that this function returned             */
} rnl_error;

/* -------------------------------------------------------------------- describing an RNN -- */

typedef enum rnl_cell { RNL_LSTM, RNL_GRU, RNL_RNN_TANH, RNL_RNN_RELU } rnl_cell;

/* The facts about a cell. A gate is a letter, '\0' if the cell lacks a gate of this kind. */
typedef struct rnl_cell_facts {
    const char *gates;     /* in cuDNN's order; gate numbers are indices of this string       */
    const char *peepholes; /* the gates that peepholes may connect to the cell state; "": none */
    char forget;           /* multiplies the cell state; some frameworks add a forget bias    */
    char reset;            /* multiplies h or R h, see rnl_reset                              */
    char update;           /* weighs the old state and the candidate: z, of either convention */
    char candidate;        /* has the state activation; with reset after, bR of this gate is
                              inside a product, and bW is outside                             */
    int has_c;             /* 1: the state is h and c; 0: the state is h                      */
    int may_project;       /* 1: proj_size may be set                                         */
} rnl_cell_facts;

const rnl_cell_facts *rnl_cell_facts_of(rnl_cell cell);

/* cuDNN's bias modes: the bias vectors, of two per gate, that the weight space contains. */
typedef enum rnl_bias {
    RNL_BIAS_DOUBLE,
    RNL_BIAS_INPUT,
    RNL_BIAS_RECURRENT,
    RNL_BIAS_NONE
} rnl_bias;

/* Where a GRU applies the reset gate r. After the matrix: n = tanh(W x + bW + r * (R h + bR));
 * before the matrix: n = tanh(W x + bW + R (r * h) + bR). */
typedef enum rnl_reset { RNL_RESET_AFTER, RNL_RESET_BEFORE } rnl_reset;

/* The activation of the gates i, f, o (LSTM) and r, z (GRU). */
typedef enum rnl_activation {
    RNL_SIGMOID,
    RNL_HARD_SIGMOID,       /* Keras 3:      clip(x / 6 + 0.5, 0, 1)   */
    RNL_HARD_SIGMOID_KERAS2 /* Keras 1 and 2: clip(0.2 x + 0.5, 0, 1)  */
} rnl_activation;

/* The state activation of an LSTM or a GRU: of the candidate, and of c' in h' = o tanh(c'). */
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
    RNL_PEEP /* peephole p of an LSTM, (H,) per gate i, f and o: the sums of i and f contain
                p * c, the sum of o contains p * c'                              */
} rnl_role;

/* Families of names: the values of the enums above have names in files, in Python and in error
 * messages. */
typedef enum rnl_family {
    RNL_NAMES_CELL,
    RNL_NAMES_BIAS,
    RNL_NAMES_RESET,
    RNL_NAMES_ACTIVATION,
    RNL_NAMES_STATE_ACTIVATION,
    RNL_NAMES_DTYPE,
    RNL_NAMES_ROLE,
    RNL_NAMES_CHECKED,
    RNL_NAMES_SETTING_KIND,
    RNL_NAMES_SETTING_PLACE,
    RNL_NAMES_KIND
} rnl_family;

/* Return the name of a value, or NULL if the family or the value does not exist. */
const char *rnl_name(rnl_family family, int value);

/* Find the value of a name. RNL_E_SPEC: the family or the name does not exist; the message lists
 * the names. */
rnl_status rnl_parse(rnl_family family, const char *name, int *value, rnl_error *err);

/* Return the number of bytes per element. */
int64_t rnl_dtype_nbytes(rnl_dtype dtype);

typedef struct rnl_spec {
    rnl_cell cell;
    int64_t input_size;
    int64_t hidden_size;
    int64_t num_layers;
    int bidirectional;
    int64_t proj_size; /* 0: no projection; else less than hidden_size, and only for an LSTM */
    rnl_bias bias;     /* of layout "cudnn"; other layouts distinguish only NONE and the rest */
    rnl_reset reset;   /* RNL_RESET_AFTER for every cell but the GRU */
    rnl_activation recurrent_activation; /* of the gates; RNL_SIGMOID for the plain RNNs */
    rnl_state_activation activation;     /* RNL_TANH for the plain RNNs: cell says tanh or relu */
    int peepholes;                       /* LSTM only, see rnl_role; cuDNN lacks peepholes */
    int skip_input; /* layout "cudnn": layer 0 adds x itself and has no W; needs I == H */
    rnl_dtype dtype;
} rnl_spec;

/* Return a spec with one layer, one direction, two biases and float32. */
rnl_spec rnl_spec_default(rnl_cell cell, int64_t input_size, int64_t hidden_size);

/* Check a spec. RNL_E_SPEC: a size is out of range, two fields contradict each other, or the
 * weights would have 2^63 bytes or more as float64. Every function below with a spec and an
 * rnl_error makes this check first; a function without an rnl_error needs a checked spec. */
rnl_status rnl_spec_check(const rnl_spec *spec, rnl_error *err);

/* Return the tier of kernels in use: "amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "neon" or
 * "plain". The environment variable RNNLAYOUT_CPU chooses a tier that the CPU supports; the default
 * is the best tier that the CPU supports. The variable is read once, at the first use. For "amx"
 * this function asks Linux to let the process use the tile registers. */
const char *rnl_cpu_tier(void);

/* ----------------------------------------------------------------------------- settings -- */

/* The kind of a setting's values. */
typedef enum rnl_setting_kind {
    RNL_SETTING_FLAG,         /* true or false, also 1 or 0                                */
    RNL_SETTING_NAME,         /* a string                                                  */
    RNL_SETTING_NAME_OR_NULL, /* a string or null                                          */
    RNL_SETTING_NUMBER,       /* a number                                                  */
    RNL_SETTING_STATES,       /* numbers (L * D, N, H); (N, L * D, H) beside "layout": 1   */
    RNL_SETTING_LENGTHS       /* whole numbers (N)                                         */
} rnl_setting_kind;

/* Where a setting applies in an RNN of several layers. */
typedef enum rnl_setting_place {
    RNL_SETTING_BEFORE,     /* once, before the first layer                                */
    RNL_SETTING_AFTER,      /* once, after the last layer                                  */
    RNL_SETTING_EACH_LAYER, /* in each layer; of states each layer has its own             */
    RNL_SETTING_AXES,       /* in no layer: the order of the axes of x, y and the states   */
    RNL_SETTING_CALLS,      /* in no layer: between calls. No number of a call depends on a
                               setting of the last two places                              */
    RNL_SETTING_ARGUMENT    /* in each layer, by an argument of each call                  */
} rnl_setting_place;

/* A setting: what a framework records of an RNN beside its weights and its spec. */
typedef struct rnl_setting {
    const char *key;        /* its name in the framework, in "config" of rnl_spec_from_json() and in
                               Python's Weights.config */
    const char *names[8];   /* the values of a name that change something, then NULL       */
    const char *neutral[2]; /* the value that changes nothing, as JSON, in an RNN of one and
                               of two directions; of states: of each number; NULL: none    */
    const char *layouts[8]; /* the layouts whose framework has the setting, then NULL      */
    const char *advice;     /* what to do in a framework that lacks it                     */
    rnl_setting_kind kind;
    rnl_setting_place place;
    int directions; /* an RNN needs this number of directions for any value that is
                       not neutral; 0: any number                                  */
    int needs_c;    /* 1: likewise a cell state, see rnl_cell_facts                */
} rnl_setting;

/* Return setting k of the table; NULL: the table has no setting k. */
const rnl_setting *rnl_setting_at(int k);

/* ------------------------------------------------------------------------------ layouts -- */

enum { RNL_NUM_OPTIONS = 4, RNL_MAX_DIMS = 5, RNL_MAX_NAME = 64 };

/* The layout of the weights of rnl_rnn_new(), named as in messages. Not listed by rnl_row_at(). */
#define RNL_FORWARD_LAYOUT "the forward pass"

/* A layout: its name, options and rows. The three functions below set the fields. A copy of a
 * layout shares the rows. */
typedef struct rnl_layout {
    const char *name;
    int option[RNL_NUM_OPTIONS]; /* index of the chosen value; 0 is the default */
    double forget_bias;          /* the value of the option "forget_bias"       */
    const struct rnl_row *rows;  /* of the table, or of `user_rows`             */
    int num_rows;
    struct rnl_user_rows *user_rows; /* what rnl_layout_free() frees; NULL: nothing */
} rnl_layout;

/* Find a layout by name or alias ("pytorch" is an alias of "torch"; layout->name is "torch"), and
 * set all options to the defaults. RNL_E_LAYOUT: the layout does not exist; the message lists the
 * layouts. */
rnl_status rnl_layout_named(const char *name, rnl_layout *layout, rnl_error *err);

/* Set an option of a layout. RNL_E_LAYOUT: the layout does not have this option, or the option
 * does not have this value. */
rnl_status rnl_layout_set(rnl_layout *layout, const char *option, const char *value,
                          rnl_error *err);

/*
 * Read a layout of your own from JSON: one row, or several, in the grammar of docs/layouts.md. The
 * layout is used like a layout of the table; it has no options.
 *
 * text    nbytes bytes of UTF-8, at most 65536; need not end with a NUL; not used after the call
 * layout  to be freed with rnl_layout_free(), after every rnl_plan that was made with the layout or
 *         a copy of the layout. Unchanged after an error.
 *
 * RNL_E_LAYOUT: a field is wrong; the message has the name of the field, the value and what is
 * needed. Every element of a tensor belongs to exactly one weight, otherwise this is an error, too.
 * RNL_E_SPEC: the text is not JSON. RNL_E_NOMEM.
 */
rnl_status rnl_layout_from_json(const char *text, size_t nbytes, rnl_layout *layout,
                                rnl_error *err);

/* Free the rows of a layout that rnl_layout_from_json() has read. Does nothing for a layout of the
 * table, a layout of zeros and NULL. */
void rnl_layout_free(rnl_layout *layout);

/* Write the rows of a layout as JSON that rnl_layout_from_json() reads, with the options put into
 * effect: a different text means a different layout. `text` receives at most nbytes bytes, NUL
 * included; 16384 are enough for every layout. RNL_E_LAYOUT: the text is longer. The rows of a
 * layout of the table are written without their name, which only the table may use. */
rnl_status rnl_layout_to_json(const rnl_layout *layout, char *text, size_t nbytes, rnl_error *err);

/* An option of a layout. */
typedef struct rnl_option {
    const char *name;
    const char *values[4]; /* the default first; the list ends with NULL                */
    const char *notes[4];  /* a note on each value                                      */
    unsigned lacks[4];     /* dtypes that a value does not support: bits 1 << rnl_dtype */
    int is_number;         /* 1: the value may be any finite number                     */
} rnl_option;

/* The reference that the tests compare a row of the table, or an alias, with. */
typedef enum rnl_checked {
    RNL_CHECKED_DOCUMENTS, /* an RNN with the equations that `source` documents                 */
    RNL_CHECKED_RECORDED,  /* recorded results of the framework, kept in the tests              */
    RNL_CHECKED_FRAMEWORK  /* the framework itself, in every run of the tests                   */
} rnl_checked;

/* A row of the table of layouts, for display. Some layouts have several rows. */
typedef struct rnl_row_info {
    const char *layout;
    const char *gates[4];  /* by rnl_cell: the gates in memory order; NULL: not supported  */
    unsigned resets;       /* GRUs that are supported: bits 1 << rnl_reset                 */
    unsigned activations;  /* recurrent activations, likewise: bits 1 << rnl_activation    */
    int has_relu;          /* 1: LSTMs and GRUs may have activation RNL_RELU               */
    unsigned roles;        /* roles that the layout contains: bits 1 << rnl_role           */
    int bias_always;       /* 1: the layout contains biases even if spec->bias is
                              RNL_BIAS_NONE; such biases are zero                          */
    double forget_bias;    /* the framework adds this number to the bias of an LSTM's f at run
                              time; not part of the tensors. An option may replace it      */
    int z_takes_candidate; /* 1: h' = (1 - z) h + z n; 0: h' = z h + (1 - z) n             */
    const rnl_option *options[RNL_NUM_OPTIONS]; /* the options of the row, then NULL       */
    int must_name; /* 1: the tensors look like the tensors of another layout, so a source is
                      read in this layout only if the caller names the layout      */
    rnl_checked checked;
    const char *source; /* the document or program that the facts of the row come from */
} rnl_row_info;

/* Get row k of the table, k = 0, 1, ... RNL_E_LAYOUT: the table has k rows or fewer. */
rnl_status rnl_row_at(int k, rnl_row_info *info, rnl_error *err);

/* Get row k of a layout likewise. */
rnl_status rnl_layout_row_at(const rnl_layout *layout, int k, rnl_row_info *info, rnl_error *err);

/* An alias: a framework that stores exactly the tensors of a layout. */
typedef struct rnl_alias {
    const char *name;
    const char *layout;
    rnl_checked checked;
    const char *source;
} rnl_alias;

/* Get alias k, k = 0, 1, ... RNL_E_LAYOUT: the table has k aliases or fewer. */
rnl_status rnl_alias_at(int k, rnl_alias *alias, rnl_error *err);

/* The optional tensors that are present: all biases, all peepholes. RNL_HAS_BIAS has no effect in
 * layout "cudnn", where spec->bias decides, and in rows with bias_always. */
enum { RNL_HAS_BIAS = 1, RNL_HAS_PEEPHOLES = 2 };

/* Return the optional tensors of a spec: RNL_HAS_BIAS unless spec->bias is RNL_BIAS_NONE, plus
 * RNL_HAS_PEEPHOLES if spec->peepholes is set. Layouts without peepholes ignore RNL_HAS_PEEPHOLES,
 * but refuse a spec with peepholes. */
unsigned rnl_spec_optional(const rnl_spec *spec);

/* Check that a layout can represent an RNN. RNL_E_LOSSY: the layout cannot; the message gives the
 * reason. RNL_E_SPEC: the chosen version of the layout's library does not support the dtype. */
rnl_status rnl_layout_check(const rnl_layout *layout, const rnl_spec *spec, rnl_error *err);

typedef struct rnl_tensor {
    char name[RNL_MAX_NAME];
    int ndim;
    int64_t shape[RNL_MAX_DIMS]; /* in elements, slowest axis first; the tensor is row-major */
    int64_t nelems;
} rnl_tensor;

/* Get the number of tensors n of the RNN in this layout. `optional` is a sum of RNL_HAS_BIAS and
 * RNL_HAS_PEEPHOLES, here and below. Errors as in rnl_layout_check. */
rnl_status rnl_layout_num_tensors(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                                  int64_t *n, rnl_error *err);

/* Get tensor k, 0 <= k < n, in the order of the framework. Errors as in rnl_layout_check.
 * RNL_E_LAYOUT: tensor k does not exist. */
rnl_status rnl_layout_tensor(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                             int64_t k, rnl_tensor *tensor, rnl_error *err);

/*
 * Get name k of the names that the tensors of a layer may have in a layout: of every cell and both
 * directions, with all optional tensors, without the prefix of a stack. The tensors of other layers
 * have the same names with another layer number. Some names are equal.
 *
 * name  receives the name, in at most RNL_MAX_NAME bytes
 *
 * RNL_E_LAYOUT: name k does not exist in the layout. Count k up from 0 until then.
 */
rnl_status rnl_layout_name_at(const rnl_layout *layout, int k, char *name, rnl_error *err);

/* A matrix or vector of a gate, in a layer and direction. */
typedef struct rnl_block {
    int64_t layer;
    int direction; /* 0 forward, 1 backward */
    rnl_role role;
    int gate; /* index in cuDNN's order: LSTM i f g o, GRU r z n; 0 for the projection */
} rnl_block;

/* Return the letter of a gate: i f g o (LSTM), r z n (GRU) or h (RNN). */
char rnl_gate_letter(rnl_cell cell, int gate);

/* Return cuDNN's linLayerID of a block. */
int rnl_lin_layer_id(rnl_cell cell, const rnl_block *block);

/* Return the number of blocks that any layout may have for this spec, and block k. Blocks are in
 * the order of cuDNN's weight space: all matrices by layer, direction, role and gate, then all
 * biases in the same order, then the peepholes. */
int64_t rnl_num_blocks(const rnl_spec *spec);
rnl_block rnl_block_at(const rnl_spec *spec, int64_t k);

/* The place of a block in a tensor. Element (r, c) of the block is element
 * at + r * row_stride + c * col_stride of the tensor. All numbers are in elements. */
typedef struct rnl_view {
    int64_t tensor; /* -1: the layout does not contain the block */
    int64_t at;
    int64_t rows, cols; /* a vector is a single column */
    int64_t row_stride, col_stride;
    int ravel; /* 1: the view and the matrix differ in shape, but contain the same sequence of
                  elements when read row by row */
} rnl_view;

/* Find the place of a block. Errors as in rnl_layout_check. RNL_E_SPEC: the RNN does not have this
 * layer or direction, the cell does not have this gate, or the role does not exist. */
rnl_status rnl_layout_locate(const rnl_layout *layout, const rnl_spec *spec, unsigned optional,
                             const rnl_block *block, rnl_view *view, rnl_error *err);

/* -------------------------------------------------------------------------- conversions -- */

/* The values that are converted. Gradients of a loss, and the averages that an optimizer makes of
 * gradients, follow other rules than weights: csrc/plan/join.c derives the rules. */
typedef enum rnl_kind {
    RNL_WEIGHTS,         /* the parameters of an RNN                                             */
    RNL_GRADIENT,        /* the derivatives of a loss by each parameter, or their weighted sums
                            over steps: momentum, Adam's m                                       */
    RNL_SQUARED_GRADIENT /* the squares of the derivatives, or their weighted sums over steps:
                            Adam's v. Not negative                                               */
} rnl_kind;

typedef enum rnl_grade {
    RNL_EXACT, /* no value is rounded; signs may be changed                               */
    RNL_ROUNDS /* two non-zero biases are added, the sum of a bias and a forget bias is
                  rounded, the gradients of two biases are equal only up to rounding, or
                  the target dtype cannot represent all values of the source dtype        */
} rnl_grade;

typedef enum rnl_op_kind {
    RNL_OP_MOVE,           /* dst = +-src                                                      */
    RNL_OP_ADD,            /* dst = +-(src + src2); exact if src or src2 is zero               */
    RNL_OP_EITHER,         /* dst = +-src; src2 must equal src, see rnl_plan_run               */
    RNL_OP_SHIFT,          /* dst = src + src2 + shift; src and src2 may be missing            */
    RNL_OP_ZERO,           /* dst = 0                                                          */
    RNL_OP_IDENTITY,       /* dst = +-identity matrix                                          */
    RNL_OP_EXPECT_ZERO,    /* src + shift must be zero: the target cannot represent a non-zero */
    RNL_OP_EXPECT_IDENTITY /* src must be +-identity matrix: the target leaves src out         */
} rnl_op_kind;

/* An operation of a conversion. */
typedef struct rnl_op {
    rnl_op_kind kind;
    int negate;              /* 1: the minus of +-                                              */
    rnl_block block;         /* the target's block; for EXPECT_* the source's                   */
    rnl_role from;           /* the role of src; RNL_NO_ROLE without src. src2 is bR            */
    double shift;            /* SHIFT, EXPECT_ZERO: the source's forget bias minus the target's */
    rnl_view src, src2, dst; /* tensor is -1 in a view that the op does not use                 */
} rnl_op;

typedef struct rnl_plan rnl_plan;

/*
 * Plan the conversion of an RNN's weights, or of gradients of its weights, from layout src to
 * layout dst.
 *
 * kind          of the values to convert. RNL_OP_ADD, SHIFT, IDENTITY, EXPECT_IDENTITY and ZERO are
 *               ops of weights alone, RNL_OP_EITHER is an op of gradients alone
 * src_optional  the optional tensors of the source. The optional tensors of the target follow from
 *               spec, so a source's peepholes must be zero unless spec->peepholes is set
 *
 * The caller frees the plan with rnl_plan_free(); NULL is allowed. No function changes a plan.
 *
 * RNL_E_LOSSY: src or dst cannot represent this RNN, whatever the values are; or dst has a
 * parameter that src lacks, and kind is not RNL_WEIGHTS: the gradient of this parameter is unknown.
 * RNL_E_SPEC: as in rnl_layout_check, or kind does not exist. RNL_E_NOMEM.
 */
rnl_status rnl_plan_new(const rnl_spec *spec, const rnl_layout *src, unsigned src_optional,
                        const rnl_layout *dst, rnl_kind kind, rnl_plan **plan, rnl_error *err);
void rnl_plan_free(rnl_plan *plan);

/* Return the number of ops block by block, at most two per block, and op k. */
int64_t rnl_plan_num_block_ops(const rnl_plan *plan);
const rnl_op *rnl_plan_block_op(const rnl_plan *plan, int64_t k);

/* Return the number of ops that run, and op k. Neighbours are merged: a view may be larger than a
 * block. */
int64_t rnl_plan_num_ops(const rnl_plan *plan);
const rnl_op *rnl_plan_op(const rnl_plan *plan, int64_t k);

typedef struct rnl_report {
    rnl_grade grade;      /* for the values and dtypes of this run                       */
    int64_t rounded_sums; /* number of elements that are the sum of two non-zero biases, or the
                             rounded sum of a bias and a forget bias; of gradients: number of
                             elements whose gradients of two biases are not equal        */
} rnl_report;

typedef struct rnl_run_options {
    int exact;           /* return RNL_E_LOSSY instead of rounding                     */
    int dry_run;         /* check and report only; dst may be NULL                     */
    int dst_is_new;      /* 1: dst is newly allocated, and the caller discards dst unless the
                            status is RNL_OK. The run is faster, because it may write dst before
                            all of src is checked                              */
    int (*poll)(void *); /* called every few milliseconds, in the calling thread; return
                            non-zero to stop                                           */
    void *poll_arg;
} rnl_run_options;

/*
 * Run a plan: convert the values.
 *
 * src      one pointer per source tensor, in the order of rnl_layout_tensor(); row-major and
 *          aligned for src_dtype; only read
 * dst      one pointer per target tensor, in the same order and form; must not overlap src
 * options  NULL: all zero; values are rounded if necessary
 * report   receives the report; may be NULL
 *
 * The gradients of two biases that the network only adds are equal. Programs sum them in different
 * orders, so RNL_OP_EITHER accepts src and src2 that differ by at most 2 sqrt(u) of the largest
 * magnitude in src and src2, the biases of a gate; u is the unit roundoff of src_dtype (2^-24 for
 * float32). With options->exact they must be equal.
 *
 * RNL_E_SPEC: a dtype does not exist. RNL_E_LOSSY: the target cannot represent a value that is not
 * zero, a finite value would become infinite, the gradients of two biases differ, or the conversion
 * would round and options->exact is set. RNL_E_LAYOUT: a squared gradient is negative.
 * RNL_E_INTERRUPTED: poll returned non-zero; dst may be partly written. Allocates no memory.
 */
rnl_status rnl_plan_run(const rnl_plan *plan, rnl_dtype src_dtype, const void *const *src,
                        rnl_dtype dst_dtype, void *const *dst, const rnl_run_options *options,
                        rnl_report *report, rnl_error *err);

/* ---------------------------------------------------------------------- the forward pass -- */

/*
 * An RNN prepared for the CPU. The weights are packed for the CPU's vector registers and keep the
 * dtype of the spec.
 *
 *   LSTM      i, f, o = s(W x + bW + R h + bR), g = tanh(...), c' = f c + i g, h' = o tanh(c'),
 *             then h' <- P h' with a projection; peepholes as at rnl_role
 *   GRU       h' = (1 - z) n + z h; n as at rnl_reset
 *   RNN       h' = tanh or relu(...)
 *
 * With spec->activation RNL_RELU, relu replaces each tanh of an LSTM and a GRU; relu(NaN) is NaN.
 *
 * Arithmetic is in float32, or in float64 if the weights are float64. On the same tier of kernels,
 * results are bit-identical from run to run, for any number of threads, any batch size and any
 * position in the batch; and, with states in float32 or float64, for T calls of a single step as
 * for a call of T steps (a call rounds its last states to narrower dtypes). Only the sign and
 * payload of a NaN may differ. Subnormal operands and results count as zero, on x86-64 and AArch64;
 * the call restores the caller's floating-point mode.
 */
typedef struct rnl_rnn rnl_rnn;

/* The rounding in matrix products. Sums, gates and states stay in float32. */
typedef enum rnl_cpu_math {
    RNL_CPU_MATH_DEFAULT,  /* no rounding of weights, x and h                                     */
    RNL_CPU_MATH_BFLOAT16, /* bfloat16 weights: x and h are rounded to bfloat16. Subnormals may
                              become zero                                                         */
    RNL_CPU_MATH_INT8      /* float32 weights: the weights are rounded to integers -127 ... 127, and
                              x and h to 16 bits. Each row of a matrix, of x and of h is scaled by
                              the largest magnitude M of the row: the error of a weight is at most
                              (1 + 2^-15) M / 254, the error of an input at most M / 65534. A row
                              with M < 2^-100 counts as zeros; results of a row with an infinity or
                              a NaN are NaN. rnl_rnn_weights() returns the rounded weights;
                              preparing the RNN again from the rounded weights changes no bit     */
} rnl_cpu_math;

typedef struct rnl_rnn_options {
    int clips; /* 1, LSTM only: clamp each new c' to [clip_low, clip_high]; a NaN stays a NaN */
    double clip_low, clip_high;
    rnl_cpu_math math;
    int borrows; /* 1, for a single call: the RNN reads the caller's weights in place, and packs a
                    copy only if packing is faster. The weights must stay unchanged until the RNN
                    is freed, and calls must not run at the same time */
} rnl_rnn_options;

/*
 * Read the spec of an RNN from JSON: from lstm.bin.json, the file that the command `rnnlayout
 * convert model.pt lstm.bin` writes next to the weights, or from the result of Spec.to_dict() in
 * Python.
 *
 * text     nbytes bytes of UTF-8; need not end with a NUL
 * options  receives the clip of the cell state, or zeros if the RNN is used without a clip
 *
 * RNL_E_SPEC: the text is malformed, or the spec is invalid; the message has the key, the value and
 * the permitted values. RNL_E_LOSSY: the RNN is used with a setting that rnl_rnn_run() does not
 * apply. Allocates no memory.
 */
rnl_status rnl_spec_from_json(const char *text, size_t nbytes, rnl_spec *spec,
                              rnl_rnn_options *options, rnl_error *err);

/*
 * Check that weights and their JSON were written together: that the bytes of lstm.bin have the
 * CRC-32 (of zlib, gzip and zip) that lstm.bin.json records.
 *
 * text     text_nbytes bytes of UTF-8, as for rnl_spec_from_json()
 * weights  nbytes bytes, the whole lstm.bin; only read. About 3 ms per MB
 *
 * RNL_E_LAYOUT: the weights have another CRC-32. RNL_E_SPEC: the text is malformed, or the spec is
 * invalid. JSON without "crc32", as Spec.to_dict() returns it, fits all weights: RNL_OK. Allocates
 * no memory.
 */
rnl_status rnl_weights_check(const char *text, size_t text_nbytes, const void *weights,
                             size_t nbytes, rnl_error *err);

/*
 * Prepare an RNN for the CPU. The caller frees the RNN with rnl_rnn_free(); NULL is allowed.
 *
 * weights  the tensor of layout RNL_FORWARD_LAYOUT, in spec->dtype: cuDNN's weight space, extended
 *          to RNNs that cuDNN does not support. rnl_layout_tensor() gives the number of elements.
 *          Only read during the call, unless options->borrows is set
 * options  NULL: none
 *
 * RNL_E_SPEC: the spec is invalid, a clip is set without clip_low <= clip_high or without an LSTM,
 * or math needs weights of another dtype. RNL_E_NOMEM: an allocation failed.
 */
rnl_status rnl_rnn_new(const rnl_spec *spec, const void *weights, const rnl_rnn_options *options,
                       rnl_rnn **rnn, rnl_error *err);
void rnl_rnn_free(rnl_rnn *rnn);

/* Replace the weights by new weights of the same spec. No call of this RNN may be running. */
void rnl_rnn_update(rnl_rnn *rnn, const void *weights);

/* Write the weights, bit for bit and with as many elements as rnl_rnn_new() read; with
 * RNL_CPU_MATH_INT8 the rounded weights. Not for an RNN with options->borrows. */
void rnl_rnn_weights(const rnl_rnn *rnn, void *weights);

/*
 * A call on the CPU. Strides are in elements. Every array is aligned, and the last axis of every
 * array is contiguous.
 *
 * dtype    of x, y and the states: the dtype of the weights, or float32 with narrower weights
 * x        (T, N, I), element (t, n, i) at t * x_time + n * x_batch + i
 * lengths  NULL: all sequences have T steps. Else N lengths, 0 <= length <= T. For a shorter
 *          sequence, y is zero past the end, hn and cn are the states after the last step of the
 *          sequence, the backward direction starts at this step, and x is not read past the end
 * mask     NULL: all steps count. Else (T, N) bytes, element (t, n) at t * mask_time +
 *          n * mask_batch, non-zero where a step counts; not with lengths. A step that does not
 *          count keeps the state, and its x is not read. y of the step is zero, or with
 *          repeats_masked y of the last step that counted, zero before the first one
 * h0, c0   (L * D, N, P') and (L * D, N, H), contiguous; NULL: zeros
 * y        (T, N, D * P'), strides y_time and y_batch; NULL: not computed
 * hn, cn   shapes of h0 and c0; hn may be h0, and cn may be c0; NULL: not computed
 *
 * y may be x, with the same strides, if T is 1 and D is 1. Otherwise outputs must not overlap any
 * array.
 */
typedef struct rnl_rnn_call {
    int64_t T, N;
    rnl_dtype dtype;
    const void *x;
    int64_t x_time, x_batch;
    const int64_t *lengths;
    const unsigned char *mask;
    int64_t mask_time, mask_batch;
    int repeats_masked;
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
 * RNL_E_SPEC: a dtype or a size is invalid. RNL_E_LAYOUT: a length is invalid, or the call has both
 * lengths and a mask. RNL_E_NOMEM: an allocation failed. RNL_E_INTERRUPTED: poll returned non-zero,
 * or poll forked the process and this is the child, without the threads that shared the call; y, hn
 * and cn may be partly written.
 *
 * A call allocates memory for intermediate results. The RNN keeps up to 4 MB per call, for up to 8
 * calls at the same time, until the RNN is freed; larger memory is freed when the call returns.
 */
rnl_status rnl_rnn_run(rnl_rnn *rnn, const rnl_rnn_call *call, rnl_error *err);

/*
 * Training. A tape is memory of the caller, aligned to 64 bytes, in which rnl_rnn_record() leaves
 * what rnl_rnn_backward() needs: x, the states and the sums of the gates, in float32, or for
 * float64 weights in float64. The layout of a tape depends on the CPU.
 */

/* Return the bytes of a tape for a call with T steps and N sequences. RNL_E_SPEC: a size is
 * invalid, or the tape too large. */
rnl_status rnl_rnn_tape_nbytes(const rnl_rnn *rnn, int64_t T, int64_t N, int64_t *nbytes,
                               rnl_error *err);

/*
 * Run the forward pass, as rnl_rnn_run() does and with the same results bit for bit, and fill the
 * tape.
 *
 * RNL_E_SPEC also: the call has a mask, or the RNN a clip or a math that rounds.
 */
rnl_status rnl_rnn_record(rnl_rnn *rnn, const rnl_rnn_call *call, void *tape, rnl_error *err);

/*
 * The gradients of a loss. All are float32, or for float64 weights float64. NULL: a gradient of
 * zeros, or for dx, dh0, dc0 and dweights, not computed. Outputs must not overlap any array.
 *
 * T, N, lengths  of the recorded call
 * dy             (T, N, D * P'), strides dy_time and dy_batch; not read past a sequence's end
 * dhn, dcn       (L * D, N, P') and (L * D, N, H), contiguous
 * dx             (T, N, I), strides dx_time and dx_batch; zero past a sequence's end
 * dh0, dc0       as dhn and dcn
 * dweights       a tensor of layout RNL_FORWARD_LAYOUT: sums over all steps and sequences, in a
 *                fixed order. Groups of steps are added from the last that was computed to the
 *                first; in a group steps are added in the order of time, and the sequences of a
 *                step by falling length
 * adds           1: add to the values in dweights
 */
typedef struct rnl_gradients {
    int64_t T, N;
    const int64_t *lengths;
    const void *dy;
    int64_t dy_time, dy_batch;
    const void *dhn, *dcn;
    void *dx;
    int64_t dx_time, dx_batch;
    void *dh0, *dc0;
    void *dweights;
    int adds;
    int (*poll)(void *); /* as in rnl_run_options */
    void *poll_arg;
} rnl_gradients;

/*
 * Run the backward pass of a recorded call, with the weights of the recorded call. The tape is only
 * read: it serves several backward passes, also at the same time. Results do not depend on the
 * number of threads.
 *
 * RNL_E_SPEC, RNL_E_LAYOUT, RNL_E_NOMEM, RNL_E_INTERRUPTED: as rnl_rnn_run(). After an error
 * outputs may be partly written.
 */
rnl_status rnl_rnn_backward(rnl_rnn *rnn, const void *tape, const rnl_gradients *gradients,
                            rnl_error *err);

/*
 * An RNN on a live signal: a stepper takes the steps of a sequence as they arrive, and keeps the
 * state. Results are bit-identical to the results of rnl_rnn_run().
 *
 * Real-time safe: rnl_stepper_run, _set, _reset and _get allocate no memory, take no lock, make no
 * system call and compute in the calling thread. Only one thread at a time may use a stepper; an
 * RNN may have any number of steppers.
 */
typedef struct rnl_stepper rnl_stepper;

/*
 * Make a stepper with a state of zeros. The caller frees the stepper with rnl_stepper_free(),
 * before the RNN; NULL is allowed. rnl_rnn_update() changes the weights of all steppers of the RNN.
 *
 * rnn    an RNN with D = 1
 * dtype  of x, y and the states, as in rnl_rnn_call
 *
 * RNL_E_SPEC: the RNN has two directions, or the dtype is invalid. RNL_E_NOMEM.
 */
rnl_status rnl_stepper_new(rnl_rnn *rnn, rnl_dtype dtype, rnl_stepper **stepper, rnl_error *err);
void rnl_stepper_free(rnl_stepper *stepper);

/* Compute n steps: x (n, I), y (n, P'), both aligned and contiguous. y NULL: not computed. y may be
 * x if I is P'; otherwise y must not overlap x. Each call sets and restores the floating-point mode
 * of the thread so that subnormal numbers count as zero: 5 to 10 ns, or less than 1 ns if the
 * thread is in this mode already. */
void rnl_stepper_run(rnl_stepper *stepper, const void *x, void *y, int64_t n);

/* Set the state, h (L, P') and c (L, H), both aligned and contiguous; NULL: zeros. c is read for an
 * LSTM only. */
void rnl_stepper_set(rnl_stepper *stepper, const void *h, const void *c);
void rnl_stepper_reset(rnl_stepper *stepper); /* zeros */

/* Write the state after the last step. NULL: not written. c is written for an LSTM only. */
void rnl_stepper_get(const rnl_stepper *stepper, void *h, void *c);

/* Set and get the maximum number of threads per call, 1 to RNL_MAX_THREADS. The default is
 * RNNLAYOUT_NUM_THREADS, else OMP_NUM_THREADS, else the number of CPUs that this process may use
 * (affinity and cgroup). n < 1 restores the default. The first call that needs threads starts the
 * threads, again in a forked process. */
enum { RNL_MAX_THREADS = 64 };
void rnl_set_num_threads(int n);
int rnl_num_threads(void);

/* ------------------------------------------------------------------------- opening cuDNN -- */

/*
 * Open cuDNN 9 and NVIDIA's driver for this process. After a success, later calls do nothing.
 *
 * path  path of libcudnn.so.9; NULL: the cuDNN that the process has loaded already, else the cuDNN
 *       that the system's loader finds
 *
 * All parts of cuDNN are checked and opened at once, because a call of cuDNN that does not find the
 * library file with the called function aborts the process. RNL_E_NO_CUDNN: this cuDNN cannot be
 * used; the text gives the reason, and the caller may try another path. RNL_OK without a usable
 * driver too: rnl_cudnn_describe() gives the reason. Opened libraries stay open.
 */
rnl_status rnl_cudnn_open(const char *path, rnl_error *err);

/* The libraries and GPUs of the process. Texts live as long as the process. */
typedef struct rnl_cudnn_about {
    const char *path;        /* of libcudnn; NULL: no cuDNN is open                       */
    int version;             /* 91900 is 9.19.0                                           */
    int cuda_version;        /* of the CUDA that cuDNN is built for: 13010 is 13.1        */
    const char *cublas;      /* path of libcublasLt; NULL: not opened without a driver    */
    const char *driver;      /* path of libcuda; NULL: the loader finds no libcuda        */
    const char *no_driver;   /* the reason why no driver is usable; NULL: a usable driver */
    int driver_cuda_version; /* of the newest CUDA that the driver supports               */
    int num_gpus;
} rnl_cudnn_about;

/* Describe the cuDNN and the driver. RNL_E_NO_CUDNN: the driver was initialized before this process
 * was forked. */
rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err);

typedef struct rnl_gpu {
    char name[128];
    int capability; /* 10 * major + minor */
} rnl_gpu;

/* Describe a GPU. RNL_E_NO_CUDNN: this GPU cannot be used; the text gives the reason, and the
 * fields of *gpu that are known are set. */
rnl_status rnl_gpu_describe(int device, rnl_gpu *gpu, rnl_error *err);

/* ---------------------------------------------------------------- the forward pass on a GPU -- */

/*
 * An RNN on a GPU, run by cuDNN. The weights are uploaded once. Threads may share the RNN; the
 * library makes the calls of one RNN one after another, and calls of several RNNs at the same time.
 *
 * The RNN computes the equations of rnl_rnn, without a clip. Results may differ in rounding between
 * batch sizes and devices.
 *
 * Call rnl_cudnn_open() first. A call uses the device's primary context, restores the caller's
 * context, and changes no further state of the process. An RNN cannot be used in a forked process.
 */
typedef struct rnl_gpu_rnn rnl_gpu_rnn;

typedef enum rnl_gpu_math {
    RNL_GPU_MATH_DEFAULT, /* FMA for float32 and float64; tensor cores with float32 sums for
                             float16 and bfloat16                                          */
    RNL_GPU_MATH_TF32     /* products may round float32 to the 10 mantissa bits of TF32    */
} rnl_gpu_math;

typedef enum rnl_gpu_algo {
    RNL_GPU_AUTO, /* the algorithm for small H if it fits and cuDNN supports it, else standard */
    RNL_GPU_STANDARD
} rnl_gpu_algo;

typedef struct rnl_gpu_options {
    int device;
    rnl_gpu_math math;
    rnl_gpu_algo algo;
} rnl_gpu_options;

/*
 * Prepare an RNN for a GPU: upload the weights. The caller frees the RNN with rnl_gpu_rnn_free().
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

/*
 * Replace the weights, at the same address, so that graphs that have captured calls read the new
 * weights. On the device, the copy waits for all earlier calls of this RNN, and all later calls
 * wait for the copy. The host waits at the first update for the device, and at a later one for the
 * copy of the update before.
 *
 * weights  as for rnl_gpu_rnn_new(); only read during the call
 * stream   the stream in which graphs with calls of this RNN are launched: the copy waits for this
 *          stream, and later work in this stream waits for the copy. NULL is the legacy default
 *          stream. Launches in other streams are not ordered
 *
 * RNL_E_SPEC: the stream is being captured. RNL_E_NO_CUDNN. RNL_E_CUDNN. RNL_E_NOMEM: no memory for
 * a copy of the weights that the device can read; the weights are unchanged.
 */
rnl_status rnl_gpu_rnn_update(rnl_gpu_rnn *rnn, const void *weights, void *stream, rnl_error *err);

/* Wait for the calls of this RNN, then free the RNN. Accepts NULL. Device memory is not freed in a
 * forked process. */
void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn);

/*
 * A call on a GPU. All arrays are contiguous, in spec->dtype, and either all in the memory of the
 * RNN's device or all in host memory.
 *
 * on_host      1: the arrays are in host memory. The call copies the arrays, and returns when the
 *              results are complete. 0: the arrays are in device memory, and a call with a
 *              workspace returns as soon as all work is in the stream
 * batch_first  1: x is (N, T, I) and y is (N, T, D * P'). 0: (T, N, I) and (T, N, D * P')
 * lengths      as in rnl_rnn_call, always in host memory. cuDNN 9.1 does not support a mix of zero
 *              and non-zero lengths
 * h0, c0, y, hn, cn   as in rnl_rnn_call
 * stream       a stream of the device. NULL is the legacy default stream, 2 the per-thread default
 *              stream. Not used if on_host is 1
 * then         a stream: later work in this stream waits for the call; 1 is the legacy default
 *              stream, NULL: no stream. Not used if on_host is 1
 * workspace, workspace_nbytes   device memory for the call, aligned to 256 bytes. No other work may
 *              use this memory before the work of the call is done. rnl_gpu_rnn_workspace() returns
 *              the size. NULL, or too few bytes: the call uses memory of the RNN, and returns when
 *              the results are complete
 *
 * hn may be h0, and cn may be c0. Otherwise outputs must not overlap any array.
 *
 * A call with T > 65535, which cuDNN does not support, is made in parts of 65535 steps. It needs
 * one direction, hn, and cn of an LSTM; batch-first arrays also need N = 1.
 *
 * If the caller is capturing the stream into a graph:
 *   - A call with the same sizes must have run and finished before.
 *   - workspace must not be NULL, and must live as long as the graph.
 *   - The lengths of the call become part of the graph.
 *   - `then` is NULL or a stream of the same capture.
 *   - Destroy the graphs before you free the RNN.
 *
 * Addresses are not checked: a wrong address destroys the context that the whole process shares.
 *
 * RNL_E_SPEC: a size is invalid, cuDNN does not support a length, the stream belongs to another
 * device, or other calls or captures use all handles of cuDNN while the stream is captured.
 * RNL_E_LAYOUT: a length is invalid; a pointer is NULL, unaligned, or in another array of the call.
 * RNL_E_NO_CUDNN: the process was forked. RNL_E_CUDNN. RNL_E_NOMEM.
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
} rnl_gpu_call;

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err);

/* Get the number of bytes of workspace that a call uses. cuDNN computes the number again only if
 * the sizes or lengths of the last call differ. */
rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t *nbytes,
                                 rnl_error *err);

/*
 * An RNN on a GPU and a live signal: one sequence whose steps arrive on the host. The stepper keeps
 * the state on the device. Its step, with the copies of x and y, is captured once into a graph of
 * the driver, and each step launches the graph and waits for it. For many sequences, or arrays on
 * the device, repeat an rnl_gpu_call.
 *
 * Only one thread at a time may use a stepper. Steps, and other calls of the RNN, are made one
 * after another. Results may differ from a call of n steps in rounding.
 */
typedef struct rnl_gpu_stepper rnl_gpu_stepper;

/*
 * Make a stepper with a state of zeros: run a step, and capture it. The caller frees the stepper
 * with rnl_gpu_stepper_free(), before the RNN; NULL is allowed. After rnl_gpu_rnn_update() the
 * steppers of the RNN use the new weights.
 *
 * RNL_E_SPEC: the RNN has two directions. RNL_E_NO_CUDNN: the process was forked; as for the
 * functions below. RNL_E_CUDNN. RNL_E_NOMEM.
 */
rnl_status rnl_gpu_stepper_new(rnl_gpu_rnn *rnn, rnl_gpu_stepper **stepper, rnl_error *err);
void rnl_gpu_stepper_free(rnl_gpu_stepper *stepper);

/* Compute n steps: x (n, I), y (n, P'), both contiguous, in host memory, in spec->dtype. y may be x
 * if I is P'. RNL_E_CUDNN: the state is not known. */
rnl_status rnl_gpu_stepper_run(rnl_gpu_stepper *stepper, const void *x, void *y, int64_t n,
                               rnl_error *err);

/* Set the state, h (L, P') and c (L, H) in host memory; NULL: zeros. c is read for an LSTM only. */
rnl_status rnl_gpu_stepper_set(rnl_gpu_stepper *stepper, const void *h, const void *c,
                               rnl_error *err);

/* Copy the state after the last step to host memory. NULL: not written. c is written for an LSTM
 * only. */
rnl_status rnl_gpu_stepper_get(rnl_gpu_stepper *stepper, void *h, void *c, rnl_error *err);

/* Allocate device memory. RNL_E_SPEC: nbytes is negative. RNL_E_NO_CUDNN. RNL_E_CUDNN.
 * RNL_E_NOMEM. */
rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err);

/* Free device memory. Waits for all work on the device, because such work may still use the memory,
 * and breaks no capture. Accepts NULL. */
void rnl_gpu_free(int device, void *address);

/* Copy device memory to the host. Waits for the copy, but not for earlier work: all work that
 * writes to the device memory must be complete. RNL_E_SPEC: nbytes is negative. RNL_E_NO_CUDNN.
 * RNL_E_CUDNN. */
rnl_status rnl_gpu_read(int device, const void *from, int64_t nbytes, void *to, rnl_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
