/*
 * The place of each matrix and bias in the weight space, by a formula of its own: all matrices, by
 * pseudo-layers, then all biases, in the same order.
 *
 * In a pseudo-layer with G gates, ids 0 to G-1 are for the input, G to 2G-1 for the state, 2G for
 * the projection.
 */
#include "cudnn_fake.h"

static int64_t input_width(const struct rnn *rnn, int64_t pseudo_layer)
{
    int64_t D = fake_directions(rnn);
    return pseudo_layer < D ? rnn->skip ? 0 : rnn->input_size : D * rnn->proj_size;
}

static int is_projected(const struct rnn *rnn)
{
    return rnn->proj_size < rnn->hidden_size;
}

static int64_t matrices_of_one(const struct rnn *rnn, int64_t pseudo_layer)
{
    int64_t H = rnn->hidden_size, P = rnn->proj_size;
    return fake_gates(rnn) * H * (input_width(rnn, pseudo_layer) + P) +
           (is_projected(rnn) ? P * H : 0);
}

static int64_t matrices_before(const struct rnn *rnn, int64_t pseudo_layer)
{
    int64_t sum = 0;
    for (int64_t p = 0; p < pseudo_layer; p++)
        sum += matrices_of_one(rnn, p);
    return sum;
}

static int64_t bias_kinds(const struct rnn *rnn)
{
    return rnn->bias == BIAS_DOUBLE ? 2 : rnn->bias != BIAS_NONE;
}

int64_t fake_weight_elements(const struct rnn *rnn)
{
    int64_t all = rnn->layers * fake_directions(rnn);
    return matrices_before(rnn, all) + all * bias_kinds(rnn) * fake_gates(rnn) * rnn->hidden_size;
}

struct piece_at fake_matrix(const struct rnn *rnn, int64_t pseudo_layer, int64_t id)
{
    int64_t G = fake_gates(rnn), H = rnn->hidden_size, P = rnn->proj_size;
    int64_t width = input_width(rnn, pseudo_layer), at = matrices_before(rnn, pseudo_layer);
    if (id < G)
        return (struct piece_at){at + id * H * width, width ? H : 0, width};
    at += G * H * width;
    if (id < 2 * G)
        return (struct piece_at){at + (id - G) * H * P, H, P};
    return (struct piece_at){at + G * H * P, is_projected(rnn) ? P : 0, H};
}

struct piece_at fake_bias(const struct rnn *rnn, int64_t pseudo_layer, int64_t id)
{
    int64_t G = fake_gates(rnn), H = rnn->hidden_size, kinds = bias_kinds(rnn);
    int is_there = id < G ? rnn->bias == BIAS_INPUT || rnn->bias == BIAS_DOUBLE
                          : id < 2 * G && (rnn->bias == BIAS_STATE || rnn->bias == BIAS_DOUBLE);
    int64_t number = rnn->bias == BIAS_STATE ? id - G : id;
    int64_t first = matrices_before(rnn, rnn->layers * fake_directions(rnn));
    return (struct piece_at){first + (pseudo_layer * kinds * G + number) * H, is_there ? H : 0, 1};
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t desc,
                                         size_t *nbytes)
{
    USES_HANDLE(handle, "cudnnGetRNNWeightSpaceSize");
    CUDNN_CALL("cudnnGetRNNWeightSpaceSize", 1, "desc=%p", (void *)desc);
    if (!handle || !desc || !nbytes)
        return fake_refuse(WRONG, "an argument of cudnnGetRNNWeightSpaceSize is NULL");
    fake_handle(handle, "cudnnGetRNNWeightSpaceSize");
    const struct rnn *rnn = fake_object(desc, FAKE_RNN, "cudnnGetRNNWeightSpaceSize");
    *nbytes = (size_t)fake_weight_elements(rnn) * fake_dtype_bytes(rnn->dtype);
    return fake_refuse(TAKEN, "");
}
