/* The arguments of the kernels for the steps of a layer in a direction. */
#include "forward/recurrence.h"

static rnl_product product_of(const rnl_rnn *rnn, const rnl_operand *operand)
{
    return (rnl_product){.panel = operand->panel,
                         .of = &operand->of,
                         .num_sums = rnn->num_sums,
                         .sum_of_gate = {0, 1, 2, 3},
                         .copied_sum = -1,
                         .last = rnn->blocks,
                         .acc_row = rnl_sums_row(rnn)};
}

/* Return the product with the state: it adds to the sums. */
static rnl_product state_product_of(const rnl_rnn *rnn, const rnl_operand *operand)
{
    rnl_product job = product_of(rnn, operand);
    job.x_row = rnl_padded(rnn, rnn->state_blocks);
    job.start_row = job.acc_row;
    return job;
}

static rnl_gates gates_of(const rnl_rnn *rnn, const rnl_weights *weights,
                          const rnl_buffers *buffers)
{
    return (rnl_gates){.kind = rnn->kind,
                       .activation = rnn->spec.recurrent_activation,
                       .relu = rnn->spec.activation == RNL_RELU,
                       .clips = rnn->options.clips,
                       .low = rnn->options.clip_low,
                       .high = rnn->options.clip_high,
                       .last = rnn->blocks,
                       .acc_row = rnl_sums_row(rnn),
                       .c = buffers->c,
                       .c_next = buffers->c,
                       .peepholes = weights->peepholes,
                       .state_row = rnl_padded(rnn, rnn->blocks)};
}

rnl_recurrence rnl_recurrence_of(const rnl_rnn *rnn, const rnl_weights *weights,
                                 const rnl_buffers *buffers)
{
    const rnl_operand *const operands = weights->operands;
    rnl_recurrence r = {.input = product_of(rnn, &operands[RNL_OF_W]),
                        .renews = rnn->kind == RNL_STEP_GRU_BEFORE,
                        .projects = rnn->spec.proj_size > 0};
    r.input.copied_sum = rnn->copied_sum;
    r.input.start = weights->start;
    r.step.state = state_product_of(rnn, &operands[RNL_OF_R]);
    r.step.gates = gates_of(rnn, weights, buffers);
    if (rnn->kind == RNL_STEP_GRU)
        r.step.state.sum_of_gate[2] = rnn->copied_sum;
    if (r.renews) {
        r.renew = r.step;
        r.renew.state = state_product_of(rnn, &operands[RNL_OF_R_NEW]);
        r.renew.state.sum_of_gate[0] = 2;
        r.renew.state.x = r.step.gates.out = buffers->reset;
        r.step.gates.kind = RNL_STEP_RESET;
    }
    if (r.projects) {
        r.project = product_of(rnn, &operands[RNL_OF_P]);
        r.project.num_sums = 1;
        r.project.last = rnn->state_blocks;
        r.project.x = r.step.gates.out = buffers->full;
        r.project.x_row = r.step.gates.state_row;
        r.project.start = rnn->zeros;
        r.project.acc_row = rnl_padded(rnn, rnn->state_blocks);
    }
    return r;
}

void rnl_recurrence_scratch(rnl_recurrence *r, void *scratch)
{
    r->input.scratch = r->step.state.scratch = r->renew.state.scratch = scratch;
    r->project.scratch = scratch;
}

static void set_blocks(rnl_rnn_step *step, int64_t first, int64_t last)
{
    step->state.first = step->gates.first = first;
    step->state.last = step->gates.last = last;
}

void rnl_recurrence_blocks(rnl_recurrence *r, int64_t first, int64_t last, int64_t first_state,
                           int64_t last_state)
{
    r->input.first = first;
    r->input.last = last;
    set_blocks(&r->step, first, last);
    set_blocks(&r->renew, first, last);
    r->project.first = first_state;
    r->project.last = last_state;
}
