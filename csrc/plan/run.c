/* Run a plan: first check every value that may be refused, then write. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "kernels/kernels.h"
#include "plan/plan.h"

/* Elements between two polls: 1 to 20 ms of work, depending on dtype and strides. */
enum { POLL_NELEMS = 1 << 20 };

/* Elements per check and conversion.
 * CHUNK             the conversion reads the elements from the second-level cache, where the check
 *                   has put the elements
 * CHUNK_NEW         for new memory, written from the end: the operating system has just cleared a
 *                   page of up to 2 MB, and the end of the page is still in the caches
 * CHUNK_TRANSPOSED  a transposition is faster with long runs along the source's rows */
enum { CHUNK = 1 << 17, CHUNK_NEW = 1 << 14, CHUNK_TRANSPOSED = 1 << 20 };

/* A target of this size or more does not fit into the caches: the kernels write past the caches. */
enum { STREAM_NBYTES = 4 << 20 };

typedef struct runner {
    const rnl_plan *plan;
    rnl_dtype src_dtype, dst_dtype;
    const void *const *src;
    void *const *dst;
    const rnl_run_options *options;
    rnl_report report;
    int64_t since_poll;
    bool checks_late; /* check the values of a move chunk by chunk, just before the conversion */
    rnl_error *err;
} runner;

static const void *at_src(const runner *run, const rnl_view *view, int64_t offset)
{
    return (const char *)run->src[view->tensor] +
           (view->at + offset) * rnl_dtype_nbytes(run->src_dtype);
}

static void *at_dst(const runner *run, const rnl_view *view, int64_t offset)
{
    return (char *)run->dst[view->tensor] + (view->at + offset) * rnl_dtype_nbytes(run->dst_dtype);
}

static rnl_grid grid(const rnl_view *view)
{
    return (rnl_grid){view->row_stride, view->col_stride};
}

static rnl_status tick(runner *run, int64_t nelems)
{
    run->since_poll += nelems;
    if (run->since_poll < POLL_NELEMS || !run->options->poll)
        return RNL_OK;
    run->since_poll = 0;
    if (run->options->poll(run->options->poll_arg))
        return rnl_fail(run->err, RNL_E_INTERRUPTED, "interrupted");
    return RNL_OK;
}

/* ------------------------------------------------------------------ the refused element -- */

const char *rnl_role_text(rnl_role role)
{
    static const char *const texts[] = {
        [RNL_W] = "the input matrix",       [RNL_R] = "the recurrent matrix",
        [RNL_P] = "the projection",         [RNL_BW] = "the input bias bW",
        [RNL_BR] = "the recurrent bias bR", [RNL_PEEP] = "the peephole"};
    return texts[role];
}

/* The longest text of a place: a name, the largest int64_t per dimension, brackets and a NUL. */
enum {
    MAX_PLACE = RNL_MAX_NAME + RNL_MAX_DIMS * (sizeof "9223372036854775807, " - 1) + sizeof "[]"
};

/* Write "weight_ih_l0[3, 4]": the tensor, and the index in the tensor, of element k of a view. */
static void place_text(const rnl_form *form, const rnl_view *view, int64_t k, char *text,
                       size_t size)
{
    rnl_tensor tensor;
    rnl_form_tensor(form, view->tensor, &tensor);
    int64_t at = view->at + k / view->cols * view->row_stride + k % view->cols * view->col_stride;
    int64_t index[RNL_MAX_DIMS] = {0};
    for (int d = tensor.ndim; d-- > 0; at /= tensor.shape[d])
        index[d] = at % tensor.shape[d];
    size_t n = (size_t)snprintf(text, size, "%s[", tensor.name);
    for (int d = 0; d < tensor.ndim; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, d ? ", " : "", index[d]);
    snprintf(text + n, size - n, "]");
}

static double value_at(const runner *run, const rnl_view *view, int64_t k)
{
    const int64_t offset = k / view->cols * view->row_stride + k % view->cols * view->col_stride;
    return rnl_to_double(run->src_dtype, rnl_load_bits(run->src_dtype, at_src(run, view, offset)));
}

static const char *why_no_place(const runner *run, const rnl_op *op)
{
    switch (op->block.role) {
    case RNL_PEEP:
        return rnl_row_has_role(run->plan->dst.row, RNL_PEEP) ? "the spec says peepholes=False"
                                                              : "the target has no peepholes";
    case RNL_BW:
        return "the target has no bias outside r * (R h + bR), as this one of the candidate is";
    case RNL_W: return "with skip_input the target has no input matrices in layer 0";
    default:
        return "the target has no bias inside the product r * (R h + bR), as this one of the"
               " candidate is";
    }
}

/* What the values are of the weights. */
static const char *kind_text(const runner *run)
{
    static const char *const texts[] = {[RNL_WEIGHTS] = "",
                                        [RNL_GRADIENT] = "gradient",
                                        [RNL_SQUARED_GRADIENT] = "squared gradient"};
    return texts[run->plan->kind];
}

static rnl_status fail_not_zero(const runner *run, const rnl_op *op, int64_t k)
{
    char place[MAX_PLACE];
    const rnl_cell cell = run->plan->src.spec.cell;
    place_text(&run->plan->src, &op->src, k, place, sizeof place);
    const bool is_bias = op->block.role == RNL_BW || op->block.role == RNL_BR;
    const bool no_bias = is_bias && !(run->plan->dst.roles >> RNL_BW & 1) &&
                         !(run->plan->dst.roles >> RNL_BR & 1);
    char wanted[32] = "zero", kind[32] = "";
    if (run->plan->kind != RNL_WEIGHTS)
        snprintf(kind, sizeof kind, "the %s of ", kind_text(run));
    if (op->shift != 0)
        snprintf(wanted, sizeof wanted, "%g", -op->shift);
    return rnl_fail(run->err, RNL_E_LOSSY,
                    "%s is %g: %s%s of gate %c must be %s for %s, because %s%s", place,
                    value_at(run, &op->src, k), kind, rnl_role_text(op->block.role),
                    rnl_gate_letter(cell, op->block.gate), wanted, run->plan->dst.layout.name,
                    no_bias ? "the target has no biases (bias='none')" : why_no_place(run, op),
                    run->plan->kind == RNL_WEIGHTS
                        ? ""
                        : ": pass zeros there to leave it behind, as if it had been frozen");
}

static rnl_status fail_unequal(const runner *run, const rnl_op *op, int64_t k)
{
    char place[MAX_PLACE], place2[MAX_PLACE];
    place_text(&run->plan->src, &op->src, k, place, sizeof place);
    place_text(&run->plan->src, &op->src2, k, place2, sizeof place2);
    return rnl_fail(
        run->err, RNL_E_LOSSY,
        "%s is %g, %s is %g: the %ss of both biases of gate %c must be equal for %s, which has"
        " one bias here, because the network only adds the two. A frozen bias makes them"
        " differ, weight decay that is added to gradients (weight_decay, unless"
        " decoupled as in AdamW), or arithmetic in a narrower dtype (autocast): to"
        " take one of the two, pass its values for both",
        place, value_at(run, &op->src, k), place2, value_at(run, &op->src2, k), kind_text(run),
        rnl_gate_letter(run->plan->src.spec.cell, op->block.gate), run->plan->dst.layout.name);
}

static rnl_status fail_negative(const runner *run, const rnl_op *op, int64_t k)
{
    char place[MAX_PLACE];
    place_text(&run->plan->src, &op->src, k, place, sizeof place);
    return rnl_fail(run->err, RNL_E_LAYOUT,
                    "%s is %g, and a squared gradient is not negative: a gradient or momentum has"
                    " another kind, gradient",
                    place, value_at(run, &op->src, k));
}

static rnl_status fail_not_identity(const runner *run, const rnl_op *op, int64_t k)
{
    char place[MAX_PLACE];
    place_text(&run->plan->src, &op->src, k, place, sizeof place);
    return rnl_fail(run->err, RNL_E_LOSSY,
                    "%s is %g: with skip_input %s has no input matrices in layer 0, so the one of"
                    " gate %c must be %sthe identity",
                    place, value_at(run, &op->src, k), run->plan->dst.layout.name,
                    rnl_gate_letter(run->plan->src.spec.cell, op->block.gate),
                    op->negate ? "minus " : "");
}

static rnl_status fail_overflow(const runner *run, const rnl_op *op, int64_t k)
{
    static const char *const added[] = {[RNL_OP_ADD] = " before the recurrent bias is added",
                                        [RNL_OP_SHIFT] = " before the forget bias is added",
                                        [RNL_OP_EXPECT_IDENTITY] = NULL};
    char place[MAX_PLACE];
    place_text(&run->plan->src, &op->src, k, place, sizeof place);
    return rnl_fail(run->err, RNL_E_LOSSY,
                    "%s is %g%s: too large for %s, in which it would be infinite", place,
                    value_at(run, &op->src, k), added[op->kind] ? added[op->kind] : "",
                    rnl_name(RNL_NAMES_DTYPE, (int)run->dst_dtype));
}

/* ----------------------------------------------------------------------- checking, writing -- */

static rnl_job job_of(const runner *run, const rnl_op *op)
{
    rnl_job job = {.src_dtype = run->src_dtype,
                   .dst_dtype = run->dst_dtype,
                   .negate = op->negate,
                   .shift = op->shift};
    job.stream = run->plan->dst_nelems * rnl_dtype_nbytes(run->dst_dtype) >= STREAM_NBYTES;
    const rnl_view *shape = op->dst.tensor >= 0 ? &op->dst : &op->src;
    job.rows = shape->rows;
    job.cols = shape->cols;
    if (op->src.tensor >= 0) {
        job.src = at_src(run, &op->src, 0);
        job.src_grid = grid(&op->src);
    }
    if (op->src2.tensor >= 0) {
        job.src2 = at_src(run, &op->src2, 0);
        job.src2_grid = grid(&op->src2);
    }
    if (op->dst.tensor >= 0 && run->dst) {
        job.dst = at_dst(run, &op->dst, 0);
        job.dst_grid = grid(&op->dst);
    }
    return job;
}

/* The piece of a job that begins at row r and column c and has at most rows x cols elements. */
static rnl_job piece_of(const runner *run, const rnl_job *whole, int64_t r, int64_t c, int64_t rows,
                        int64_t cols)
{
    rnl_job job = *whole;
    job.rows = whole->rows - r < rows ? whole->rows - r : rows;
    job.cols = whole->cols - c < cols ? whole->cols - c : cols;
    job.diagonal = r - c;
    if (whole->src)
        job.src = (const char *)whole->src + (r * whole->src_grid.row + c * whole->src_grid.col) *
                                                 rnl_dtype_nbytes(run->src_dtype);
    if (whole->dst)
        job.dst = (char *)whole->dst + (r * whole->dst_grid.row + c * whole->dst_grid.col) *
                                           rnl_dtype_nbytes(run->dst_dtype);
    return job;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Check and write a job piece by piece, with polls in between. `find` returns the index in the
 * piece of an element to refuse, or -1; `find` and `kernel` may be NULL. The work stops at a
 * refused element: *refused_at is the index of this element in the whole job, or -1. */
static rnl_status in_chunks(runner *run, const rnl_job *whole, int64_t (*find)(const rnl_job *),
                            rnl_kernel *kernel, int64_t *refused_at)
{
    const bool transposed = whole->src && whole->src_grid.col != 1;
    const bool backwards = !transposed && kernel && run->options->dst_is_new;
    const int64_t chunk = transposed ? CHUNK_TRANSPOSED : backwards ? CHUNK_NEW : CHUNK;
    const int64_t cols = whole->cols < chunk ? whole->cols : chunk;
    const int64_t rows = chunk / cols;
    const int64_t across = ceil_div(whole->cols, cols), n = across * ceil_div(whole->rows, rows);
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = backwards ? n - 1 - k : k;
        const int64_t r = at / across * rows, c = at % across * cols;
        const rnl_job job = piece_of(run, whole, r, c, rows, cols);
        *refused_at = find ? find(&job) : -1;
        if (*refused_at >= 0) {
            *refused_at = (r + *refused_at / job.cols) * whole->cols + c + *refused_at % job.cols;
            return RNL_OK;
        }
        if (kernel)
            kernel(&job);
        const rnl_status status = tick(run, job.rows * job.cols);
        if (status)
            return status;
    }
    return RNL_OK;
}

static rnl_status fail_exact(const runner *run)
{
    const rnl_form *src = &run->plan->src, *dst = &run->plan->dst;
    if (run->plan->kind != RNL_WEIGHTS)
        return rnl_fail(run->err, RNL_E_LOSSY,
                        "exact conversion refused: %s has one bias where %s has two, and for"
                        " %" PRId64 " elements their gradients are equal only up to rounding",
                        dst->layout.name, src->layout.name, run->report.rounded_sums);
    if (src->forget_bias != dst->forget_bias)
        return rnl_fail(run->err, RNL_E_LOSSY,
                        "exact conversion refused: at run time %s adds %g to the bias of f, %s adds"
                        " %g, and for %" PRId64 " elements the sum of the biases and the"
                        " difference would be rounded",
                        src->layout.name, src->forget_bias, dst->layout.name, dst->forget_bias,
                        run->report.rounded_sums);
    return rnl_fail(run->err, RNL_E_LOSSY,
                    "exact conversion refused: %s has one bias where %s has two, and for %" PRId64
                    " elements both are not zero: their sums would be rounded",
                    dst->layout.name, src->layout.name, run->report.rounded_sums);
}

typedef rnl_status fail_fn(const runner *run, const rnl_op *op, int64_t k);

/* Refuse the op if `find` finds an element. The scans use the shape of the source. */
static rnl_status expect(runner *run, const rnl_op *op, int64_t (*find)(const rnl_job *),
                         fail_fn *fail)
{
    rnl_job job = job_of(run, op);
    int64_t k = -1;
    job.rows = op->src.rows;
    job.cols = op->src.cols;
    job.dst = NULL;
    const rnl_status status = in_chunks(run, &job, find, NULL, &k);
    if (status)
        return status;
    return k < 0 ? RNL_OK : fail(run, op, k);
}

static rnl_status check_sum(runner *run, const rnl_op *op)
{
    const rnl_job job = job_of(run, op);
    const int64_t k = rnl_find_sum_overflow(&job); /* a bias is too short to need a poll */
    if (k >= 0)
        return fail_overflow(run, op, k);
    const int64_t n = op->kind == RNL_OP_ADD ? rnl_count_sums(&job) : rnl_count_shifts(&job);
    run->report.rounded_sums += n;
    if (n > 0)
        run->report.grade = RNL_ROUNDS;
    return RNL_OK;
}

static rnl_status check_equal(runner *run, const rnl_op *op)
{
    const rnl_job job = job_of(run, op); /* a bias is too short to need a poll */
    const int64_t k = rnl_find_unequal(&job);
    if (k >= 0)
        return fail_unequal(run, op, k);
    const int64_t n = rnl_count_unequal(&job);
    run->report.rounded_sums += n;
    if (n > 0)
        run->report.grade = RNL_ROUNDS;
    return RNL_OK;
}

static bool may_overflow(const runner *run)
{
    return rnl_dtype_may_overflow(run->dst_dtype, run->src_dtype);
}

static bool same_shape(const rnl_op *op)
{
    return op->src.rows == op->dst.rows && op->src.cols == op->dst.cols;
}

/* Are the values of this move checked chunk by chunk, just before the conversion? */
static bool checks_late(const runner *run, const rnl_op *op)
{
    return run->checks_late && same_shape(op);
}

/* Squared gradients are checked before all else, so that a dry run, whose other checks have another
 * order than a run into new memory, gives the same error. */
static rnl_status check_sign(runner *run, const rnl_op *op)
{
    return op->src.tensor < 0 ? RNL_OK : expect(run, op, rnl_find_negative, fail_negative);
}

static rnl_status check_op(runner *run, const rnl_op *op)
{
    if (op->kind == RNL_OP_EITHER) {
        const rnl_status status = check_equal(run, op);
        if (status)
            return status;
    }
    switch (op->kind) {
    case RNL_OP_EXPECT_ZERO: return expect(run, op, rnl_find_nonzero, fail_not_zero);
    case RNL_OP_EXPECT_IDENTITY: return expect(run, op, rnl_find_not_identity, fail_not_identity);
    case RNL_OP_ADD:
    case RNL_OP_SHIFT: return check_sum(run, op);
    case RNL_OP_EITHER:
    case RNL_OP_MOVE:
        if (may_overflow(run) && !checks_late(run, op))
            return expect(run, op, rnl_find_overflow, fail_overflow);
        return RNL_OK;
    default: return RNL_OK;
    }
}

static rnl_status each_op(runner *run, rnl_status (*visit)(runner *, const rnl_op *))
{
    for (int64_t k = 0; k < run->plan->num_ops; k++) {
        const rnl_status status = visit(run, &run->plan->ops[k]);
        if (status)
            return status;
    }
    return RNL_OK;
}

/* Copy between views that have the same elements in different shapes: line by line, up to the end
 * of the shorter line. */
static rnl_status write_raveled(runner *run, const rnl_op *op)
{
    const int64_t n = op->dst.rows * op->dst.cols;
    for (int64_t k = 0; k < n;) {
        const int64_t sr = k / op->src.cols, sc = k % op->src.cols;
        const int64_t dr = k / op->dst.cols, dc = k % op->dst.cols;
        const int64_t src_left = op->src.cols - sc, dst_left = op->dst.cols - dc;
        const int64_t length = src_left < dst_left ? src_left : dst_left;
        rnl_job line = job_of(run, op);
        line.rows = 1;
        line.cols = length;
        line.src = at_src(run, &op->src, sr * op->src.row_stride + sc * op->src.col_stride);
        line.dst = at_dst(run, &op->dst, dr * op->dst.row_stride + dc * op->dst.col_stride);
        rnl_copy(&line);
        const rnl_status status = tick(run, length);
        if (status)
            return status;
        k += length;
    }
    return RNL_OK;
}

/* Report the first overflow of the source: the write from the end has met element k first. */
static rnl_status fail_first(runner *run, const rnl_op *op, int64_t k)
{
    run->checks_late = false;
    const rnl_status status = each_op(run, check_op);
    return status ? status : fail_overflow(run, op, k); /* another thread has changed the source */
}

static rnl_status write_op(runner *run, const rnl_op *op)
{
    const rnl_job job = job_of(run, op);
    rnl_status status;
    int64_t refused_at;
    switch (op->kind) {
    case RNL_OP_EITHER:
    case RNL_OP_MOVE:
        if (!same_shape(op))
            return write_raveled(run, op);
        status = in_chunks(run, &job,
                           may_overflow(run) && checks_late(run, op) ? rnl_find_overflow : NULL,
                           rnl_copy, &refused_at);
        return !status && refused_at >= 0 ? fail_first(run, op, refused_at) : status;
    case RNL_OP_ADD: rnl_add(&job); return RNL_OK;
    case RNL_OP_SHIFT: rnl_shift(&job); return RNL_OK;
    case RNL_OP_ZERO: return in_chunks(run, &job, NULL, rnl_fill_zero, &refused_at);
    case RNL_OP_IDENTITY: return in_chunks(run, &job, NULL, rnl_fill_identity, &refused_at);
    default: return RNL_OK;
    }
}

/* Write new memory from the end, as in_chunks() does inside each op. */
static rnl_status write_ops(runner *run)
{
    for (int64_t k = 0; k < run->plan->num_ops; k++) {
        const int64_t at = run->options->dst_is_new ? run->plan->num_ops - 1 - k : k;
        const rnl_status status = write_op(run, &run->plan->ops[at]);
        if (status)
            return status;
    }
    return RNL_OK;
}

rnl_status rnl_plan_run(const rnl_plan *plan, rnl_dtype src_dtype, const void *const *src,
                        rnl_dtype dst_dtype, void *const *dst, const rnl_run_options *options,
                        rnl_report *report, rnl_error *err)
{
    static const rnl_run_options defaults = {0};
    runner run = {.plan = plan,
                  .src_dtype = src_dtype,
                  .dst_dtype = dst_dtype,
                  .src = src,
                  .dst = dst,
                  .options = options ? options : &defaults,
                  .err = err};
    if (!rnl_name(RNL_NAMES_DTYPE, (int)src_dtype) || !rnl_name(RNL_NAMES_DTYPE, (int)dst_dtype))
        return rnl_fail(err, RNL_E_SPEC,
                        "src_dtype is %d, dst_dtype is %d: need values of rnl_dtype",
                        (int)src_dtype, (int)dst_dtype);
    run.checks_late = run.options->dst_is_new && !run.options->dry_run;
    if (!rnl_dtype_holds(dst_dtype, src_dtype)) {
        run.report.grade = RNL_ROUNDS;
        if (run.options->exact)
            return rnl_fail(err, RNL_E_LOSSY,
                            "exact conversion refused: %s cannot represent every %s",
                            rnl_name(RNL_NAMES_DTYPE, (int)dst_dtype),
                            rnl_name(RNL_NAMES_DTYPE, (int)src_dtype));
    }
    rnl_status status = RNL_OK;
    if (plan->kind == RNL_SQUARED_GRADIENT)
        status = each_op(&run, check_sign);
    if (!status)
        status = each_op(&run, check_op);
    if (!status && run.options->exact && run.report.rounded_sums)
        return fail_exact(&run);
    if (!status && !run.options->dry_run)
        status = write_ops(&run);
    if (!status && report)
        *report = run.report;
    return status;
}
