/* Pack a two-layer torch LSTM (3 inputs, 2 hidden units) into cuDNN's weight space, in C:
 *     cc pack_lstm.c -lrnnlayout -lm */
#include <rnnlayout.h>
#include <stdio.h>

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
        (status = rnl_plan_new(&spec, &torch, RNL_HAS_BIAS, &cudnn, &plan, &err)) ||
        (status = rnl_plan_run(plan, RNL_FLOAT32, src, RNL_FLOAT32, dst, NULL, NULL, &err)))
        fprintf(stderr, "%s\n", err.text);
    for (int k = 0; !status && k < 104; k++)
        printf("%g\n", (double)space[k]);
    rnl_plan_free(plan);
    return status != RNL_OK;
}
