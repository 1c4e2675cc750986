/* Which of cuDNN's algorithms runs a call. */
#include "core/status.h"
#include "forward/cudnn/rnn.h"

static bool is_plain(const rnl_spec *spec)
{
    return rnl_cell_facts_of(spec->cell)->gates[1] == '\0';
}

/* The largest H of the algorithm for small H. */
static int most_of_small(const rnl_spec *spec)
{
    return is_plain(spec) ? 384 : 192;
}

rnl_status rnl_algo_check(const rnl_spec *spec, const rnl_gpu_options *options, rnl_error *err)
{
    if ((unsigned)options->algo > RNL_GPU_STANDARD || (unsigned)options->math > RNL_GPU_MATH_TF32)
        return rnl_fail(err, RNL_E_SPEC, "algo is %d, math is %d: need values of their enums",
                        (int)options->algo, (int)options->math);
    if (options->math == RNL_GPU_MATH_TF32 && spec->dtype != RNL_FLOAT32)
        return rnl_fail(err, RNL_E_SPEC, "math=\"tf32\" needs float32 weights, these are %s",
                        rnl_name(RNL_NAMES_DTYPE, (int)spec->dtype));
    return RNL_OK;
}

/* ---- "auto": as PyTorch 2.11 chooses, get_algo() in aten/src/ATen/native/cudnn/RNN.cpp ---- */

/* Batches that its authors found faster on Volta (7.0) than with the standard algorithm. */
static bool suits_volta(int64_t T, int64_t N)
{
    return (N == 8 || (N % 16 == 0 && N != 80 && N != 112)) &&
           ((T >= 40 && N <= 128) || (T >= 20 && N <= 96) || (T >= 10 && N <= 32));
}

/* The same from Ampere (8.0) on; not on the GPUs x.6, where cuDNN has failed. */
static bool suits_newer(const rnl_gpu_rnn *rnn, int64_t N)
{
    const rnl_spec *const spec = &rnn->spec;
    return rnn->device->used.capability % 10 != 6 && rnn->device->num_processors >= 98 &&
           spec->cell != RNL_GRU && N % 8 == 0 && N <= 128 &&
           (spec->cell == RNL_LSTM || N < 96 || spec->hidden_size < 896);
}

static bool suits_static(const rnl_gpu_rnn *rnn, int64_t T, int64_t N)
{
    const rnl_spec *const spec = &rnn->spec;
    const int capability = rnn->device->used.capability;
    if (spec->dtype != RNL_FLOAT16 || spec->num_layers != 1 || spec->bidirectional ||
        spec->hidden_size > 1024 || spec->hidden_size % 128 || spec->input_size % 128)
        return false;
    if (capability / 10 == 7)
        return capability != 75 && suits_volta(T, N);
    return capability >= 80 && suits_newer(rnn, N);
}

static rnl_cudnn_algo fastest(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job)
{
    const rnl_spec *const spec = &rnn->spec;
    if (spec->bias != RNL_BIAS_DOUBLE || spec->proj_size || spec->dtype == RNL_FLOAT64 ||
        job->lengths)
        return RNL_CUDNN_RNN_ALGO_STANDARD;
    if (rnn->device->used.capability >= 60 && spec->hidden_size <= most_of_small(spec))
        return RNL_CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H;
    return suits_static(rnn, job->sizes.T, job->sizes.N) ? RNL_CUDNN_RNN_ALGO_PERSIST_STATIC
                                                         : RNL_CUDNN_RNN_ALGO_STANDARD;
}

rnl_cudnn_algo rnl_algo_choose(const rnl_gpu_rnn *rnn, const rnl_gpu_job *job)
{
    if (rnn->options.algo == RNL_GPU_STANDARD)
        return RNL_CUDNN_RNN_ALGO_STANDARD;
    const rnl_cudnn_algo algo = fastest(rnn, job);
    return atomic_load(&rnn->refused[algo]) ? RNL_CUDNN_RNN_ALGO_STANDARD : algo;
}

bool rnl_algo_gives_way(rnl_gpu_rnn *rnn, rnl_gpu_job *job, rnl_status status, const rnl_error *err)
{
    if (status != RNL_E_CUDNN || rnn->options.algo != RNL_GPU_AUTO ||
        job->sizes.algo == RNL_CUDNN_RNN_ALGO_STANDARD || !rnl_gpu_not_supported(err))
        return false;
    atomic_store(&rnn->refused[job->sizes.algo], true);
    job->sizes.algo = RNL_CUDNN_RNN_ALGO_STANDARD;
    return true;
}
