/* A plan from the inside: its steps, and the fewer ops that are run. */
#ifndef RNL_PLAN_PLAN_H
#define RNL_PLAN_PLAN_H

#include "layout/form.h"

struct rnl_plan {
    rnl_form src, dst;
    int64_t num_steps, num_ops;
    rnl_step *steps;
    int64_t dst_nelems; /* of all target tensors */
    rnl_step *ops;      /* the steps with neighbours merged: views may be larger than a block */
};

/* What happens to one block. Appends to the plan's steps, which have room. */
void rnl_join_block(rnl_plan *plan, const rnl_block *block);

/* The most steps that a block may need. */
enum { RNL_STEPS_PER_BLOCK = 2 };

/* Fill plan->ops, which has room for all steps. */
void rnl_fold(rnl_plan *plan);

#endif
