/* The functions for GPUs on systems without cuDNN: all calls fail. */
#include "core/status.h"
#include "rnnlayout.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static const char WHY[] = "cuDNN is used on Linux alone: RNNs run on the CPU here";

/* Define a function that refuses. */
#define REFUSED(...)                                                                               \
    __VA_ARGS__                                                                                    \
    {                                                                                              \
        return rnl_fail(err, RNL_E_NO_CUDNN, "%s", WHY);                                           \
    }

/* The header's types. NOLINTBEGIN(misc-unused-parameters,readability-non-const-parameter) */
REFUSED(rnl_status rnl_cudnn_open(const char *path, rnl_error *err))
REFUSED(rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                                   const rnl_gpu_options *options, rnl_gpu_rnn **rnn,
                                   rnl_error *err))
REFUSED(rnl_status rnl_gpu_rnn_update(rnl_gpu_rnn *rnn, const void *weights, void *stream,
                                      rnl_error *err))
REFUSED(rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err))
REFUSED(rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call,
                                         int64_t *nbytes, rnl_error *err))
REFUSED(rnl_status rnl_gpu_stepper_new(rnl_gpu_rnn *rnn, rnl_gpu_stepper **stepper, rnl_error *err))
REFUSED(rnl_status rnl_gpu_stepper_run(rnl_gpu_stepper *stepper, const void *x, void *y, int64_t n,
                                       rnl_error *err))
REFUSED(rnl_status rnl_gpu_stepper_set(rnl_gpu_stepper *stepper, const void *h, const void *c,
                                       rnl_error *err))
REFUSED(rnl_status rnl_gpu_stepper_get(rnl_gpu_stepper *stepper, void *h, void *c, rnl_error *err))
REFUSED(rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err))
REFUSED(rnl_status rnl_gpu_read(int device, const void *from, int64_t nbytes, void *to,
                                rnl_error *err))

rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err)
{
    *about = (rnl_cudnn_about){.no_driver = WHY};
    return RNL_OK;
}

rnl_status rnl_gpu_describe(int device, rnl_gpu *gpu, rnl_error *err)
{
    *gpu = (rnl_gpu){.capability = 0};
    return rnl_fail(err, RNL_E_NO_CUDNN, "%s", WHY);
}

void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn)
{
}

void rnl_gpu_stepper_free(rnl_gpu_stepper *stepper)
{
}

void rnl_gpu_free(int device, void *address)
{
}
/* NOLINTEND(misc-unused-parameters,readability-non-const-parameter) */
