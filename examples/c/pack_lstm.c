/* Pack a two-layer PyTorch LSTM (3 inputs, 2 hidden units) into cuDNN's weight space, and print
 * what lies where. The example's weights are 0, 1, 2, ... in PyTorch's order.
 *     cc pack_lstm.c -lrnnlayout */
#include <rnnlayout.h>
#include <stdio.h>

/* Print each matrix and bias of one gate, with its place in the weight space. */
static rnl_status print(const rnl_spec *spec, const rnl_layout *layout, const float *space,
                        rnl_error *err)
{
    for (int64_t k = 0; k < rnl_num_blocks(spec); k++) {
        const rnl_block block = rnl_block_at(spec, k);
        rnl_view view;
        const rnl_status status = rnl_layout_locate(layout, spec, RNL_HAS_BIAS, &block, &view, err);
        if (status)
            return status;
        if (view.tensor < 0) /* cuDNN has no peepholes */
            continue;
        printf("byte %3d  layer %d  %s %c ", (int)view.at * 4, (int)block.layer,
               rnl_name(RNL_NAMES_ROLE, (int)block.role), rnl_gate_letter(spec->cell, block.gate));
        for (int64_t r = 0; r < view.rows; r++)
            for (int64_t c = 0; c < view.cols; c++)
                printf(" %g", (double)space[view.at + r * view.row_stride + c * view.col_stride]);
        printf("\n");
    }
    return RNL_OK;
}

int main(void)
{
    rnl_spec spec = rnl_spec_default(RNL_LSTM, 3, 2);
    spec.num_layers = 2;

    float w[104], space[104]; /* weight_ih, weight_hh, bias_ih, bias_hh of l0, then those of l1 */
    for (int k = 0; k < 104; k++)
        w[k] = (float)k;
    const void *src[] = {w, w + 24, w + 40, w + 48, w + 56, w + 72, w + 88, w + 96};
    void *dst[] = {space};

    rnl_layout torch, cudnn;
    rnl_plan *plan = NULL;
    rnl_error err;
    rnl_status status;
    if ((status = rnl_layout_named("torch", &torch, &err)) ||
        (status = rnl_layout_named("cudnn", &cudnn, &err)) ||
        (status = rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, RNL_WEIGHTS, &plan, &err)) ||
        (status = rnl_plan_run(plan, RNL_FLOAT32, src, RNL_FLOAT32, dst, NULL, NULL, &err)) ||
        (status = print(&spec, &cudnn, space, &err)))
        fprintf(stderr, "%s\n", err.text);
    rnl_plan_free(plan);
    return status != RNL_OK;
}
