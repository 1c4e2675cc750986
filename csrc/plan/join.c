/*
 * When do two layouts define the same network? All equivalence rules are in this file: which op
 * converts each block.
 */
#include "plan/plan.h"

/* Does the layout contain the block, with another role? */
static bool has(const rnl_form *form, const rnl_block *block, rnl_role role)
{
    const rnl_slot *slot;
    rnl_block there = *block;
    there.role = role;
    return rnl_form_find(form, &there, &slot) != NULL;
}

static rnl_view locate(const rnl_form *form, const rnl_block *block, rnl_role role)
{
    rnl_block there = *block;
    rnl_view view;
    there.role = role;
    rnl_form_locate(form, &there, &view);
    return view;
}

/* 1 - sigmoid(a) = sigmoid(-a), so negating W_z, R_z and b_z changes the z convention without
 * rounding. All of them must be negated, or none. Every recurrent activation of rnl_activation has
 * this symmetry. */
static int negates(const rnl_plan *plan, const rnl_block *block)
{
    const rnl_cell cell = plan->src.spec.cell;
    return plan->src.z != plan->dst.z &&
           rnl_gate_letter(cell, block->gate) == rnl_cell_facts_of(cell)->update;
}

/* In a reset-after GRU the candidate's bR is inside a product with r: r * (R h + bR). So it cannot
 * be added to bW. In all other gates only the sum bW + bR has an effect. */
static bool biases_apart(const rnl_plan *plan, const rnl_block *block)
{
    const rnl_cell cell = plan->src.spec.cell;
    const rnl_cell_facts *const facts = rnl_cell_facts_of(cell);
    return facts->reset && plan->src.spec.reset == RNL_RESET_AFTER &&
           rnl_gate_letter(cell, block->gate) == facts->candidate;
}

/* What a bias of the target contains beyond the source's: a forget bias is added at run time, and
 * only the sum of it and the biases of f has an effect. The target's bW takes it, or else bR; a
 * source's bias that must vanish does so together with it, in the same order. */
static double shift_of(const rnl_plan *plan, const rnl_block *block, const rnl_form *form)
{
    const bool takes = block->role == RNL_BW ||
                       (block->role == RNL_BR && !has(form, block, RNL_BW));
    const rnl_cell cell = plan->src.spec.cell;
    if (!takes || rnl_gate_letter(cell, block->gate) != rnl_cell_facts_of(cell)->forget)
        return 0;
    return plan->src.forget_bias - plan->dst.forget_bias;
}

static void push(rnl_plan *plan, const rnl_block *block, rnl_op op, rnl_role from)
{
    rnl_step *step = &plan->steps[plan->num_steps++];
    *step = (rnl_step){.op = op, .block = *block, .from = from, .negate = negates(plan, block)};
    step->shift = shift_of(plan, block, op == RNL_OP_EXPECT_ZERO ? &plan->src : &plan->dst);
    step->src = step->src2 = step->dst = (rnl_view){.tensor = -1};
    if (from != RNL_NO_ROLE)
        step->src = locate(&plan->src, block, from);
    if (op == RNL_OP_ADD)
        step->src2 = locate(&plan->src, block, RNL_BR);
    if (op != RNL_OP_EXPECT_ZERO && op != RNL_OP_EXPECT_IDENTITY)
        step->dst = locate(&plan->dst, block, block->role);
    if (step->shift != 0 && op != RNL_OP_EXPECT_ZERO)
        step->op = RNL_OP_SHIFT;
}

/* Both sides have every matrix, except the input matrices that cuDNN's skip_input leaves out: these
 * are the identity. */
static void join_matrix(rnl_plan *plan, const rnl_block *block)
{
    const bool at_src = has(&plan->src, block, block->role);
    const bool at_dst = has(&plan->dst, block, block->role);
    if (at_src && at_dst)
        push(plan, block, RNL_OP_MOVE, block->role);
    else if (at_src)
        push(plan, block, RNL_OP_EXPECT_IDENTITY, block->role);
    else if (at_dst)
        push(plan, block, RNL_OP_IDENTITY, RNL_NO_ROLE);
}

/* Write the target's bias block->role. */
static void write_bias(rnl_plan *plan, const rnl_block *block)
{
    const bool bw = has(&plan->src, block, RNL_BW);
    const bool br = has(&plan->src, block, RNL_BR);
    const bool both = has(&plan->dst, block, RNL_BW) && has(&plan->dst, block, RNL_BR);
    const bool same = has(&plan->src, block, block->role);

    if (biases_apart(plan, block) || (both && bw && br))
        push(plan, block, same ? RNL_OP_MOVE : RNL_OP_ZERO, same ? block->role : RNL_NO_ROLE);
    else if ((!bw && !br) || (both && block->role == RNL_BR))
        push(plan, block, RNL_OP_ZERO, RNL_NO_ROLE); /* one bias to two: bW receives it */
    else if (bw && br)
        push(plan, block, RNL_OP_ADD, RNL_BW);
    else
        push(plan, block, RNL_OP_MOVE, bw ? RNL_BW : RNL_BR);
}

/* Must the source's bias block->role be zero, because no bias of the target can represent it? */
static bool bias_has_no_place(const rnl_plan *plan, const rnl_block *block)
{
    if (biases_apart(plan, block))
        return !has(&plan->dst, block, block->role);
    return !has(&plan->dst, block, RNL_BW) && !has(&plan->dst, block, RNL_BR);
}

static void join_bias(rnl_plan *plan, const rnl_block *block)
{
    if (has(&plan->src, block, block->role) && bias_has_no_place(plan, block))
        push(plan, block, RNL_OP_EXPECT_ZERO, block->role);
    if (has(&plan->dst, block, block->role))
        write_bias(plan, block);
}

static void join_peephole(rnl_plan *plan, const rnl_block *block)
{
    const bool at_src = has(&plan->src, block, RNL_PEEP);
    const bool at_dst = has(&plan->dst, block, RNL_PEEP);
    if (at_src)
        push(plan, block, at_dst ? RNL_OP_MOVE : RNL_OP_EXPECT_ZERO, RNL_PEEP);
    else if (at_dst)
        push(plan, block, RNL_OP_ZERO, RNL_NO_ROLE);
}

void rnl_join_block(rnl_plan *plan, const rnl_block *block)
{
    switch (block->role) {
    case RNL_BW:
    case RNL_BR: join_bias(plan, block); break;
    case RNL_PEEP: join_peephole(plan, block); break;
    default: join_matrix(plan, block); break;
    }
}
