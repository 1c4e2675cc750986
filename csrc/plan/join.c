/*
 * When do two layouts define the same network? This file has all equivalence rules: the op that
 * converts each block, of weights, of gradients and of squared gradients.
 *
 * The rules of gradients. A network depends on its effective parameters u: the matrices, the
 * peepholes, and per gate the sum of the biases and the forget bias (of the candidate of a
 * reset-after GRU: bW and bR apart). The tensors p of a layout determine u = A p + c; the elements
 * of A are 0, 1 and -1. The loss is a function of u, so by the chain rule dp = A^T du, with dp and
 * du the gradients by p and by u. A conversion solves A^T du = dp in the source's layout for du,
 * and computes A^T du in the target's:
 *
 *   u = p        dp = du           MOVE
 *   u = -p       dp = -du          MOVE, negated. The square is (-du)^2 = du^2: not negated
 *   u = bW + bR  dbW = dbR = du    source: the gradients of bW and bR must be equal, and either is
 *                                  du: EITHER. Target: both receive du: MOVE, twice
 *   u = p + c    dp = du           constants (a forget bias) have no effect: never SHIFT
 *   u = c        A = 0             source: nothing determines du, so a target with such a parameter
 *                                  is refused; ZERO and IDENTITY would be wrong. Target: nothing
 *                                  stores du, so du must be zero (a frozen parameter): EXPECT_ZERO
 *
 * An optimizer's averages of gradients, and of squares of gradients, follow the same rules: equal
 * sequences of gradients have equal averages, zeros have the average zero.
 */
#include "plan/plan.h"

#include "core/status.h"

/* Does the layout contain the block with this role, in the same layer, direction and gate? */
static bool contains(const rnl_form *form, const rnl_block *block, rnl_role role)
{
    const rnl_slot *slot;
    rnl_block wanted = *block;
    wanted.role = role;
    return rnl_form_find(form, &wanted, &slot) != NULL;
}

static rnl_view locate(const rnl_form *form, const rnl_block *block, rnl_role role)
{
    rnl_block wanted = *block;
    rnl_view view;
    wanted.role = role;
    rnl_form_locate(form, &wanted, &view);
    return view;
}

static bool is_gradient(const rnl_plan *plan)
{
    return plan->kind != RNL_WEIGHTS;
}

/* 1 - sigmoid(a) = sigmoid(-a), so negating all of W_z, R_z and b_z changes the z convention
 * without rounding. Every recurrent activation of rnl_activation has this symmetry. */
static int negates(const rnl_plan *plan, const rnl_block *block)
{
    const rnl_cell cell = plan->src.spec.cell;
    return plan->src.z != plan->dst.z && plan->kind != RNL_SQUARED_GRADIENT &&
           rnl_gate_letter(cell, block->gate) == rnl_cell_facts_of(cell)->update;
}

/* In a reset-after GRU the candidate's bR is inside a product with r: r * (R h + bR). So bR must
 * stay apart from bW. In all other gates only the sum bW + bR has an effect. */
static bool biases_apart(const rnl_plan *plan, const rnl_block *block)
{
    const rnl_cell cell = plan->src.spec.cell;
    const rnl_cell_facts *const facts = rnl_cell_facts_of(cell);
    return facts->reset && plan->src.spec.reset == RNL_RESET_AFTER &&
           rnl_gate_letter(cell, block->gate) == facts->candidate;
}

/* The constant to add to a bias of the target. A framework adds the forget bias at run time, so
 * only the sum of the forget bias and the biases of f has an effect: the target's bW receives the
 * difference of the forget biases; without bW, the target's bR. A source bias that the target
 * cannot represent must be zero together with this difference, also in the order bW, bR. */
static double shift_of(const rnl_plan *plan, const rnl_block *block, const rnl_form *form)
{
    const bool receives = block->role == RNL_BW ||
                          (block->role == RNL_BR && !contains(form, block, RNL_BW));
    const rnl_cell cell = plan->src.spec.cell;
    if (is_gradient(plan) || !receives ||
        rnl_gate_letter(cell, block->gate) != rnl_cell_facts_of(cell)->forget)
        return 0;
    return plan->src.forget_bias - plan->dst.forget_bias;
}

static void push(rnl_plan *plan, const rnl_block *block, rnl_op_kind kind, rnl_role from)
{
    rnl_op *op = &plan->block_ops[plan->num_block_ops++];
    *op = (rnl_op){.kind = kind, .block = *block, .from = from, .negate = negates(plan, block)};
    op->shift = shift_of(plan, block, kind == RNL_OP_EXPECT_ZERO ? &plan->src : &plan->dst);
    op->src = op->src2 = op->dst = (rnl_view){.tensor = -1};
    if (from != RNL_NO_ROLE)
        op->src = locate(&plan->src, block, from);
    if (kind == RNL_OP_ADD || kind == RNL_OP_EITHER)
        op->src2 = locate(&plan->src, block, RNL_BR);
    if (kind != RNL_OP_EXPECT_ZERO && kind != RNL_OP_EXPECT_IDENTITY)
        op->dst = locate(&plan->dst, block, block->role);
    if (op->shift != 0 && kind != RNL_OP_EXPECT_ZERO)
        op->kind = RNL_OP_SHIFT;
}

/* Write a parameter that the source lacks: a constant, whose gradient is unknown. */
static rnl_status push_constant(rnl_plan *plan, const rnl_block *block, rnl_op_kind kind,
                                rnl_error *err)
{
    if (is_gradient(plan))
        return rnl_fail(err, RNL_E_LOSSY,
                        "%s needs the gradient of %s of gate %c, which is unknown: %s has %s"
                        " there, and no other gradient determines it",
                        plan->dst.layout.name, rnl_role_text(block->role),
                        rnl_gate_letter(plan->src.spec.cell, block->gate), plan->src.layout.name,
                        kind == RNL_OP_IDENTITY ? "the identity (skip_input)"
                                                : "no such parameter");
    push(plan, block, kind, RNL_NO_ROLE);
    return RNL_OK;
}

/* Both layouts contain every matrix, with an exception: cuDNN's skip_input leaves out the input
 * matrices of layer 0, which must be the identity. */
static rnl_status join_matrix(rnl_plan *plan, const rnl_block *block, rnl_error *err)
{
    const bool at_src = contains(&plan->src, block, block->role);
    const bool at_dst = contains(&plan->dst, block, block->role);
    if (at_src && at_dst)
        push(plan, block, RNL_OP_MOVE, block->role);
    else if (at_src)
        push(plan, block, is_gradient(plan) ? RNL_OP_EXPECT_ZERO : RNL_OP_EXPECT_IDENTITY,
             block->role);
    else if (at_dst)
        return push_constant(plan, block, RNL_OP_IDENTITY, err);
    return RNL_OK;
}

/* Add the op that writes the target's bias block->role. */
static rnl_status write_bias(rnl_plan *plan, const rnl_block *block, rnl_error *err)
{
    const bool bw = contains(&plan->src, block, RNL_BW);
    const bool br = contains(&plan->src, block, RNL_BR);
    const bool dst_has_both = contains(&plan->dst, block, RNL_BW) &&
                              contains(&plan->dst, block, RNL_BR);
    const bool same = contains(&plan->src, block, block->role);

    if (biases_apart(plan, block) || (dst_has_both && bw && br)) {
        if (!same)
            return push_constant(plan, block, RNL_OP_ZERO, err);
        push(plan, block, RNL_OP_MOVE, block->role);
    } else if (!bw && !br) {
        return push_constant(plan, block, RNL_OP_ZERO, err);
    } else if (bw && br) {
        push(plan, block, is_gradient(plan) ? RNL_OP_EITHER : RNL_OP_ADD, RNL_BW);
    } else if (dst_has_both && block->role == RNL_BR && !is_gradient(plan)) {
        push(plan, block, RNL_OP_ZERO, RNL_NO_ROLE); /* bW receives a single bias, bR is zero */
    } else {
        push(plan, block, RNL_OP_MOVE, bw ? RNL_BW : RNL_BR);
    }
    return RNL_OK;
}

/* Can no bias of the target represent the source's bias block->role? Such a bias must be zero. */
static bool bias_must_be_zero(const rnl_plan *plan, const rnl_block *block)
{
    if (biases_apart(plan, block))
        return !contains(&plan->dst, block, block->role);
    return !contains(&plan->dst, block, RNL_BW) && !contains(&plan->dst, block, RNL_BR);
}

static rnl_status join_bias(rnl_plan *plan, const rnl_block *block, rnl_error *err)
{
    if (contains(&plan->src, block, block->role) && bias_must_be_zero(plan, block))
        push(plan, block, RNL_OP_EXPECT_ZERO, block->role);
    return contains(&plan->dst, block, block->role) ? write_bias(plan, block, err) : RNL_OK;
}

static rnl_status join_peephole(rnl_plan *plan, const rnl_block *block, rnl_error *err)
{
    const bool at_src = contains(&plan->src, block, RNL_PEEP);
    const bool at_dst = contains(&plan->dst, block, RNL_PEEP);
    if (at_src)
        push(plan, block, at_dst ? RNL_OP_MOVE : RNL_OP_EXPECT_ZERO, RNL_PEEP);
    else if (at_dst)
        return push_constant(plan, block, RNL_OP_ZERO, err);
    return RNL_OK;
}

rnl_status rnl_join_block(rnl_plan *plan, const rnl_block *block, rnl_error *err)
{
    switch (block->role) {
    case RNL_BW:
    case RNL_BR: return join_bias(plan, block, err);
    case RNL_PEEP: return join_peephole(plan, block, err);
    default: return join_matrix(plan, block, err);
    }
}
