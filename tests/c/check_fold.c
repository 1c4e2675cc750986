/* Does folding keep the source of every element? Checked with random steps, most of them mergeable.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "plan/plan.h"

enum { NUM_PLANS = 20000, MAX_STEPS = 6, MAX_PLACES = 4096 };

/* For each element of the two target tensors: the source element and its sign. */
typedef struct origin {
    int written, tensor, negate;
    int64_t at;
} origin;

typedef struct origins {
    origin of[2][MAX_PLACES];
    int64_t nwritten;
    int twice;
} origins;

static int64_t place(const rnl_view *view, int64_t k)
{
    return view->at + k / view->cols * view->row_stride + k % view->cols * view->col_stride;
}

static void trace(const rnl_step *steps, int64_t n, origins *found)
{
    memset(found, 0, sizeof *found);
    for (const rnl_step *step = steps; step < steps + n; step++)
        for (int64_t k = 0; k < step->dst.rows * step->dst.cols; k++) {
            origin *to = &found->of[step->dst.tensor][place(&step->dst, k)];
            found->twice |= to->written;
            found->nwritten++;
            *to = (origin){1, (int)step->src.tensor, step->negate, 0};
            if (step->src.tensor >= 0)
                to->at = place(&step->src, k);
        }
}

/* A window of a tensor, walked along its rows or its columns, or at random strides. */
static rnl_view random_view(int64_t rows, int64_t cols)
{
    const int64_t wide = cols + random_below(3), tall = rows + random_below(3);
    rnl_view view = {.tensor = random_below(2),
                     .at = random_below(8),
                     .rows = rows,
                     .cols = cols,
                     .row_stride = wide,
                     .col_stride = 1};
    if (random_below(2)) {
        view.row_stride = 1;
        view.col_stride = tall;
    }
    const int64_t spread = 1 + (random_below(4) == 0);
    view.row_stride *= spread;
    view.col_stride *= spread;
    return view;
}

/* The window that follows, below or to the right; sometimes with a change. */
static rnl_view next_view(const rnl_view *view, int below)
{
    rnl_view next = *view;
    next.at += below ? view->rows * view->row_stride : view->cols * view->col_stride;
    switch (random_below(16)) {
    case 0: next.at++; break;
    case 1: next.tensor = !next.tensor; break;
    case 2: next.row_stride++; break;
    case 3: next.col_stride++; break;
    default: break;
    }
    return next;
}

static void random_steps(rnl_plan *plan)
{
    const int64_t rows = 1 + random_below(4), cols = 1 + random_below(4);
    const int moves = random_below(4) > 0; /* otherwise zeros, which have no source */
    rnl_step step = {.op = moves ? RNL_OP_MOVE : RNL_OP_ZERO,
                     .src = moves ? random_view(rows, cols) : (rnl_view){.tensor = -1},
                     .dst = random_view(rows, cols)};
    plan->num_steps = 2 + random_below(MAX_STEPS - 1);
    for (int64_t k = 0; k < plan->num_steps; k++) {
        const int below = random_below(2) == 0;
        plan->steps[k] = step;
        if (moves) {
            step.src = next_view(&step.src, below);
            step.negate ^= random_below(8) == 0;
        }
        step.dst = next_view(&step.dst, below);
    }
}

int main(void)
{
    static origins steps, ops;
    rnl_step step_room[MAX_STEPS], op_room[MAX_STEPS];
    rnl_plan plan = {.steps = step_room, .ops = op_room};
    int64_t merged = 0;
    for (int turn = 0; turn < NUM_PLANS; turn++) {
        random_steps(&plan);
        trace(plan.steps, plan.num_steps, &steps);
        if (steps.twice) /* no plan writes an element twice */
            continue;
        rnl_fold(&plan);
        trace(plan.ops, plan.num_ops, &ops);
        merged += plan.num_steps - plan.num_ops;
        CHECK(memcmp(steps.of, ops.of, sizeof ops.of) == 0, "turn %d", turn);
        CHECK(ops.nwritten == steps.nwritten, "turn %d: %" PRId64, turn, ops.nwritten);
    }
    CHECK(merged > NUM_PLANS / 4, "only %" PRId64 " merged", merged);
    return check_end();
}
