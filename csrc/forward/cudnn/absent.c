/* The functions for GPUs on systems where cuDNN is not used. */
#include <stddef.h>
#include <string.h>

#include "core/status.h"
#include "rnnlayout.h"

static const char WHY[] = "cuDNN is used on Linux alone: RNNs run on the CPU here";

static rnl_status refuse(rnl_error *err)
{
    return rnl_fail(err, RNL_E_NO_CUDNN, "%s", WHY);
}

rnl_status rnl_cudnn_open(const char *path, rnl_error *err)
{
    (void)path;
    return refuse(err);
}

rnl_status rnl_cudnn_describe(rnl_cudnn_about *about, rnl_error *err)
{
    (void)err;
    memset(about, 0, sizeof *about);
    about->no_driver = WHY;
    return RNL_OK;
}

rnl_status rnl_gpu_describe(int device, rnl_gpu *gpu, rnl_error *err)
{
    (void)device;
    memset(gpu, 0, sizeof *gpu);
    return refuse(err);
}

rnl_status rnl_gpu_rnn_new(const rnl_spec *spec, const void *weights,
                           const rnl_gpu_options *options, rnl_gpu_rnn **rnn, rnl_error *err)
{
    (void)spec, (void)weights, (void)options, (void)rnn;
    return refuse(err);
}

void rnl_gpu_rnn_free(rnl_gpu_rnn *rnn)
{
    (void)rnn;
}

rnl_status rnl_gpu_rnn_run(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, rnl_error *err)
{
    (void)rnn, (void)call;
    return refuse(err);
}

/* the header's type. NOLINTNEXTLINE(readability-non-const-parameter) */
rnl_status rnl_gpu_rnn_workspace(rnl_gpu_rnn *rnn, const rnl_gpu_call *call, int64_t *nbytes,
                                 rnl_error *err)
{
    (void)rnn, (void)call, (void)nbytes;
    return refuse(err);
}

rnl_status rnl_gpu_alloc(int device, int64_t nbytes, void **address, rnl_error *err)
{
    (void)device, (void)nbytes, (void)address;
    return refuse(err);
}

void rnl_gpu_free(int device, void *address)
{
    (void)device, (void)address;
}

/* the header's type. NOLINTNEXTLINE(readability-non-const-parameter) */
rnl_status rnl_gpu_read(int device, const void *from, int64_t nbytes, void *to, rnl_error *err)
{
    (void)device, (void)from, (void)nbytes, (void)to;
    return refuse(err);
}
