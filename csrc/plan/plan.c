/* How is a plan made and freed? It is checked, joined block by block, then folded. */
#include "plan/plan.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/status.h"

static rnl_status build(rnl_plan *plan, const rnl_spec *spec, rnl_error *err)
{
    const int64_t num_blocks = rnl_num_blocks(spec);
    const size_t room = (size_t)num_blocks * RNL_STEPS_PER_BLOCK;
    plan->steps = calloc(room, sizeof *plan->steps);
    if (!plan->steps)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan of %zu steps", room);
    for (int64_t k = 0; k < num_blocks; k++) {
        const rnl_block block = rnl_block_at(spec, k);
        rnl_join_block(plan, &block);
    }
    plan->ops = calloc((size_t)plan->num_steps, sizeof *plan->ops);
    if (!plan->ops)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan of %zu steps", room);
    rnl_fold(plan);
    for (int64_t k = 0; k < plan->num_ops; k++)
        plan->dst_nelems += plan->ops[k].dst.rows * plan->ops[k].dst.cols;
    return RNL_OK;
}

rnl_status rnl_plan_new(const rnl_spec *spec, const rnl_layout *src, unsigned src_has,
                        const rnl_layout *dst, rnl_plan **plan, rnl_error *err)
{
    rnl_plan *made = calloc(1, sizeof *made);
    if (!made)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan");
    rnl_status status = rnl_form_init(src, spec, src_has, &made->src, err);
    if (!status)
        status = rnl_form_init(dst, spec, rnl_spec_has(spec), &made->dst, err);
    if (!status)
        status = build(made, spec, err);
    if (status)
        rnl_plan_free(made);
    else
        *plan = made;
    return status;
}

void rnl_plan_free(rnl_plan *plan)
{
    if (!plan)
        return;
    free(plan->steps);
    free(plan->ops);
    free(plan);
}

int64_t rnl_plan_num_steps(const rnl_plan *plan)
{
    return plan->num_steps;
}

const rnl_step *rnl_plan_step(const rnl_plan *plan, int64_t k)
{
    assert(k >= 0 && k < plan->num_steps);
    return &plan->steps[k];
}

int64_t rnl_plan_num_ops(const rnl_plan *plan)
{
    return plan->num_ops;
}

const rnl_step *rnl_plan_op(const rnl_plan *plan, int64_t k)
{
    assert(k >= 0 && k < plan->num_ops);
    return &plan->ops[k];
}
