/* Make and free a plan: check the layouts, join block by block, then fold. */
#include "plan/plan.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/status.h"

static rnl_status build(rnl_plan *plan, const rnl_spec *spec, rnl_error *err)
{
    const int64_t num_blocks = rnl_num_blocks(spec);
    const size_t max_ops = (size_t)num_blocks * RNL_OPS_PER_BLOCK;
    plan->block_ops = calloc(max_ops, sizeof *plan->block_ops);
    if (!plan->block_ops)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan of %zu steps", max_ops);
    for (int64_t k = 0; k < num_blocks; k++) {
        const rnl_block block = rnl_block_at(spec, k);
        const rnl_status status = rnl_join_block(plan, &block, err);
        if (status)
            return status;
    }
    plan->ops = calloc((size_t)plan->num_block_ops, sizeof *plan->ops);
    if (!plan->ops)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan of %zu steps", max_ops);
    rnl_fold(plan);
    for (int64_t k = 0; k < plan->num_ops; k++)
        plan->dst_nelems += plan->ops[k].dst.rows * plan->ops[k].dst.cols;
    return RNL_OK;
}

rnl_status rnl_plan_new(const rnl_spec *spec, const rnl_layout *src, unsigned src_optional,
                        const rnl_layout *dst, rnl_kind kind, rnl_plan **plan, rnl_error *err)
{
    if (!rnl_name(RNL_NAMES_KIND, (int)kind))
        return rnl_fail(err, RNL_E_SPEC, "kind has no value %d", (int)kind);
    rnl_plan *result = calloc(1, sizeof *result);
    if (!result)
        return rnl_fail(err, RNL_E_NOMEM, "no memory for a plan");
    result->kind = kind;
    rnl_status status = rnl_form_init(src, spec, src_optional, &result->src, err);
    if (!status)
        status = rnl_form_init(dst, spec, rnl_spec_optional(spec), &result->dst, err);
    if (!status)
        status = build(result, spec, err);
    if (status)
        rnl_plan_free(result);
    else
        *plan = result;
    return status;
}

void rnl_plan_free(rnl_plan *plan)
{
    if (!plan)
        return;
    free(plan->block_ops);
    free(plan->ops);
    free(plan);
}

int64_t rnl_plan_num_block_ops(const rnl_plan *plan)
{
    return plan->num_block_ops;
}

const rnl_op *rnl_plan_block_op(const rnl_plan *plan, int64_t k)
{
    assert(k >= 0 && k < plan->num_block_ops);
    return &plan->block_ops[k];
}

int64_t rnl_plan_num_ops(const rnl_plan *plan)
{
    return plan->num_ops;
}

const rnl_op *rnl_plan_op(const rnl_plan *plan, int64_t k)
{
    assert(k >= 0 && k < plan->num_ops);
    return &plan->ops[k];
}
