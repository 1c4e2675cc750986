/* The contents of a plan: the ops block by block, and the merged ops that run. */
#ifndef RNL_PLAN_PLAN_H
#define RNL_PLAN_PLAN_H

#include "layout/form.h"

struct rnl_plan {
    rnl_form src, dst;
    rnl_kind kind;
    int64_t num_block_ops, num_ops;
    rnl_op *block_ops;
    int64_t dst_nelems; /* elements of all target tensors */
    rnl_op *ops;        /* block_ops with neighbours merged: views may be larger than a block */
};

/* Append the ops of a block to plan->block_ops, an array of RNL_OPS_PER_BLOCK per block.
 * RNL_E_LOSSY: no gradient of the source determines the gradient of a block of the target. */
rnl_status rnl_join_block(rnl_plan *plan, const rnl_block *block, rnl_error *err);

/* Return the name of a block's role in error messages. */
const char *rnl_role_text(rnl_role role);

/* The maximum number of ops per block. */
enum { RNL_OPS_PER_BLOCK = 2 };

/* Fill in plan->ops, an array of num_block_ops elements. */
void rnl_fold(rnl_plan *plan);

#endif
