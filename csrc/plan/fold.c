/*
 * Merge the ops of blocks into fewer, larger ops: neighbouring moves or zeros if the second op
 * continues the first op in the source and in the target. An op whose elements are evenly spaced in
 * the source and in the target becomes a single row.
 */
#include "plan/plan.h"

static int64_t nelems(const rnl_view *view)
{
    return view->rows * view->cols;
}

/* Are the elements contiguous when read row by row? */
static bool contiguous(const rnl_view *view)
{
    return (view->cols == 1 || view->col_stride == 1) &&
           (view->rows == 1 || view->row_stride == view->cols);
}

static void reshape(rnl_view *view, const rnl_view *like)
{
    view->rows = like->rows;
    view->cols = like->cols;
    view->row_stride = like->cols;
    view->col_stride = 1;
}

/* A window of CuDNNLSTM's kernel and the matrix in the window differ in shape. If the view on the
 * other side is contiguous, this view gets the shape of the window, and the op is an ordinary
 * move. */
static void settle_ravel(rnl_op *op)
{
    if (op->src.tensor < 0 || op->dst.tensor < 0 || op->src.ravel == op->dst.ravel)
        return;
    if (op->src.ravel && contiguous(&op->dst))
        reshape(&op->dst, &op->src);
    else if (op->dst.ravel && contiguous(&op->src))
        reshape(&op->src, &op->dst);
}

static bool same_shape(const rnl_op *op)
{
    return op->src.tensor < 0 || op->dst.tensor < 0 ||
           (op->src.rows == op->dst.rows && op->src.cols == op->dst.cols);
}

static void transpose(rnl_view *view)
{
    const rnl_view before = *view;
    view->rows = before.cols;
    view->cols = before.rows;
    view->row_stride = before.col_stride;
    view->col_stride = before.row_stride;
}

/* Are all elements evenly spaced when read row by row? */
static bool is_line(const rnl_view *view)
{
    return view->rows == 1 || view->cols == 1 || view->row_stride == view->cols * view->col_stride;
}

static void to_line(rnl_view *view)
{
    if (view->rows > 1 && view->cols == 1)
        view->col_stride = view->row_stride;
    view->cols = nelems(view);
    view->rows = 1;
}

static bool flatten_rows(rnl_op *op)
{
    if ((op->src.tensor >= 0 && !is_line(&op->src)) || (op->dst.tensor >= 0 && !is_line(&op->dst)))
        return false;
    to_line(&op->src);
    to_line(&op->dst);
    return true;
}

/* Make the op a single row if the elements are evenly spaced in the source and in the target, when
 * read row by row or column by column. */
static void flatten(rnl_op *op)
{
    if (flatten_rows(op))
        return;
    rnl_op transposed = *op;
    transpose(&transposed.src);
    transpose(&transposed.dst);
    if (flatten_rows(&transposed))
        *op = transposed;
}

/* Does b continue a with further columns of the same rows? */
static bool adds_cols(const rnl_view *a, const rnl_view *b)
{
    return a->rows == b->rows && (a->rows == 1 || a->row_stride == b->row_stride) &&
           a->col_stride == b->col_stride && b->at == a->at + a->cols * a->col_stride;
}

static int64_t row_step(const rnl_view *a, const rnl_view *b)
{
    return a->rows > 1 ? a->row_stride : b->at - a->at;
}

/* ... or with further rows of the same columns? */
static bool adds_rows(const rnl_view *a, const rnl_view *b)
{
    const int64_t step = row_step(a, b);
    return a->cols == b->cols && a->col_stride == b->col_stride && step > 0 &&
           b->at == a->at + a->rows * step && (b->rows == 1 || b->row_stride == step);
}

typedef bool continues_fn(const rnl_view *a, const rnl_view *b);

static bool both_sides(continues_fn *continues, const rnl_op *a, const rnl_op *b)
{
    return continues(&a->dst, &b->dst) && (a->src.tensor < 0 || continues(&a->src, &b->src));
}

static bool merge(rnl_op *a, const rnl_op *b)
{
    if (a->kind != b->kind || (a->kind != RNL_OP_MOVE && a->kind != RNL_OP_ZERO) ||
        a->negate != b->negate || a->src.tensor != b->src.tensor ||
        a->dst.tensor != b->dst.tensor || !same_shape(a) || !same_shape(b))
        return false;
    if (both_sides(adds_cols, a, b)) {
        a->src.cols += b->src.cols;
        a->dst.cols += b->dst.cols;
    } else if (both_sides(adds_rows, a, b)) {
        a->src.row_stride = row_step(&a->src, &b->src);
        a->dst.row_stride = row_step(&a->dst, &b->dst);
        a->src.rows += b->src.rows;
        a->dst.rows += b->dst.rows;
    } else {
        return false;
    }
    flatten(a);
    return true;
}

/* The kernels write row by row, so the contiguous axis of a transposed target must be the columns.
 */
static void orient(rnl_op *op)
{
    if (op->kind == RNL_OP_MOVE && same_shape(op) && op->dst.col_stride != 1 &&
        op->dst.row_stride == 1) {
        transpose(&op->src);
        transpose(&op->dst);
    }
}

void rnl_fold(rnl_plan *plan)
{
    plan->num_ops = 0;
    for (int64_t k = 0; k < plan->num_block_ops; k++) {
        rnl_op *op = &plan->ops[plan->num_ops++];
        *op = plan->block_ops[k];
        settle_ravel(op);
        if ((op->kind == RNL_OP_MOVE || op->kind == RNL_OP_ZERO) && same_shape(op))
            flatten(op);
        while (plan->num_ops > 1 &&
               merge(&plan->ops[plan->num_ops - 2], &plan->ops[plan->num_ops - 1]))
            plan->num_ops--;
    }
    for (int64_t k = 0; k < plan->num_ops; k++)
        orient(&plan->ops[k]);
}
