/* What the two files of the fake cuDNN share. */
#ifndef FAKE_CUDNN_H
#define FAKE_CUDNN_H

#include "fake.h"

struct rnn {
    struct fake_object object;
    rnl_cudnn_algo algo;
    rnl_cudnn_cell cell;
    rnl_cudnn_bias bias;
    int directions, skip, padded;
    rnl_cudnn_data_type type;
    int64_t input_size, hidden_size, proj_size, layers; /* proj_size = hidden_size: none */
};

struct data {
    struct fake_object object;
    rnl_cudnn_data_type type;
    int batch_first, T, N, width, has_fill, is_captured;
    int *lengths; /* N; never freed: work may use them */
};

/* A call, as work. */
struct forward {
    struct rnn rnn;
    struct data x_data, y_data;
    rnl_cu_address x, y, hx, hy, cx, cy, weights, work; /* hx to cy: 0 if not given */
    size_t work_nbytes;
};

int64_t fake_gates(const struct rnn *rnn);
size_t fake_unit(rnl_cudnn_data_type type); /* bytes of an element */
int64_t fake_num_weights(const struct rnn *rnn);
void fake_compute(const struct forward *forward);

#endif
