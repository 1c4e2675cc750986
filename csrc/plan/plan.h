/* The inside of a plan: its steps, and the ops, which are fewer and are run. */
#ifndef RNL_PLAN_PLAN_H
#define RNL_PLAN_PLAN_H

#include "layout/form.h"

struct rnl_plan {
    rnl_form src, dst;
    int64_t num_steps, num_ops;
    rnl_step *steps;
    int64_t dst_nelems; /* elements of all target tensors */
    rnl_step *ops;      /* the steps with neighbours merged: views may be larger than a block */
};

/* Append the steps for one block to plan->steps, which has room for them. */
void rnl_join_block(rnl_plan *plan, const rnl_block *block);

/* The maximum number of steps of one block. */
enum { RNL_STEPS_PER_BLOCK = 2 };

/* Fill in plan->ops, which has room for all steps. */
void rnl_fold(rnl_plan *plan);

#endif
