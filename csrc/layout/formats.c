/*
 * THE TABLE of layouts: facts only. Conversions, names, shapes, errors, tests and pages of the
 * documentation follow from these rows.
 */
#include "layout/format.h"

#define AFTER (1u << RNL_RESET_AFTER)
#define BEFORE (1u << RNL_RESET_BEFORE)
#define SIGMOID_ONLY (1u << RNL_SIGMOID)
#define ANY_SIGMOID (1u << RNL_SIGMOID | 1u << RNL_HARD_SIGMOID | 1u << RNL_HARD_SIGMOID_KERAS2)
#define OPTION(which) (1u << (which))

#define GATES(lstm, gru, rnn)                                                                      \
    {[RNL_LSTM] = lstm, [RNL_GRU] = gru, [RNL_RNN_TANH] = rnn, [RNL_RNN_RELU] = rnn}

const rnl_option rnl_options[RNL_NUM_OPTIONS] = {
    [RNL_OPT_INPUTS] = {"inputs",
                        {"hx", "xh"},
                        {"the columns of h come before those of x",
                         "the columns of x come before those of h"}},
    [RNL_OPT_Z] = {"z", {"state", "candidate"}, {"h' = z h + (1 - z) n", "h' = (1 - z) h + z n"}},
    [RNL_OPT_VERSION] =
        {"version",
         {"9", "8", "7"},
         {"cudnnSetRNNDescriptor_v8, cudnnGetRNNWeightParams, cudnnRNNForward. Removed: all calls of"
          " cuDNN 7, among them cudnnSetRNNDescriptor_v6, cudnnGetRNNParamsSize,"
          " cudnnGetRNNLinLayerMatrixParams, cudnnGetRNNLinLayerBiasParams and"
          " cudnnRNNForwardInference",
          "the calls of cuDNN 7 and of cuDNN 9, over the same weight space. No bfloat16",
          "cudnnSetRNNDescriptor_v6, cudnnGetRNNParamsSize, cudnnGetRNNLinLayerMatrixParams,"
          " cudnnGetRNNLinLayerBiasParams, cudnnRNNForwardInference: the buffer w (filter"
          " descriptor wDesc) has the layout of cuDNN 8 and 9. No bfloat16"},
         {0, 1u << RNL_BFLOAT16, 1u << RNL_BFLOAT16}},
};

/* clang-format off */
/* Shared by two layouts: cuDNN's own, and its extension to RNNs that cuDNN does not support. */
#define CUDNN_WEIGHT_SPACE                                                                         \
     .gates = GATES("ifgo", "rzn", "h"),                                                           \
     .z = RNL_Z_KEEPS_STATE,                                                                       \
     .per = "",                                                                                    \
     .slots = {{"weight_space", "+", {{RNL_W, "goi"}, {RNL_R, "goi"}, {RNL_P, "oi"}},              \
                .walks = true},                                                                    \
               {"weight_space", "+", {{RNL_BW, "go"}, {RNL_BR, "go"}},                             \
                .walks = true, .continues = true}},                                                \
     .bias_by_mode = true

#define KERAS1_GATES "i:_i g:_c f:_f o:_o z:_z r:_r n:_h h:"
#define BURN_GATES "i:input f:forget o:output g:cell z:update r:reset n:new"

const rnl_row rnl_rows[] = {
    {.layout = "cudnn",
     CUDNN_WEIGHT_SPACE,
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .options = OPTION(RNL_OPT_VERSION),
     .checked = RNL_CHECKED_RECORDED,
     .source = "cudnnGetRNNWeightParams of libcudnn 8.9.6, 9.19.0 and 9.28.0, queried for 140"
               " recorded RNNs"},

    {.layout = "torch",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"weight_ih_l{l}{d:|_reverse}", "go,i", {{RNL_W}}},
               {"weight_hh_l{l}{d:|_reverse}", "go,i", {{RNL_R}}},
               {"bias_ih_l{l}{d:|_reverse}", "go", {{RNL_BW}}},
               {"bias_hh_l{l}{d:|_reverse}", "go", {{RNL_BR}}},
               {"weight_hr_l{l}{d:|_reverse}", "o,i", {{RNL_P}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "torch.nn.LSTM, GRU, RNN (torch/nn/modules/rnn.py, 2.13)"},

    {.layout = "torch-cell",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}weight_ih", "go,i", {{RNL_W}}},
               {"{s}weight_hh", "go,i", {{RNL_R}}},
               {"{s}bias_ih", "go", {{RNL_BW}}},
               {"{s}bias_hh", "go", {{RNL_BR}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "torch.nn.LSTMCell, GRUCell, RNNCell (torch/nn/modules/rnn.py, 2.13)"},

    {.layout = "keras",
     .gates = GATES("ifgo", "zrn", "h"),
     .resets = BEFORE,
     .activations = ANY_SIGMOID,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}kernel", "i,go", {{RNL_W}}},
               {"{s}recurrent_kernel", "i,go", {{RNL_R}}},
               {"{s}bias", "go", {{RNL_BW}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "Keras LSTM, SimpleRNN, GRU(reset_after=False) (keras/src/layers/rnn, 3.15)"},

    {.layout = "keras",
     .gates = GATES(NULL, "zrn", NULL),
     .resets = AFTER,
     .activations = ANY_SIGMOID,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}kernel", "i,go", {{RNL_W}}},
               {"{s}recurrent_kernel", "i,go", {{RNL_R}}},
               {"{s}bias", "+,go", {{RNL_BW}, {RNL_BR}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "Keras GRU(reset_after=True) (keras/src/layers/rnn/gru.py, 3.15)"},

    {.layout = "keras-cudnn",
     .gates = GATES("ifgo", "zrn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}kernel", "i,go", {{RNL_W}}, .ravels = true},
               {"{s}recurrent_kernel", "o,gi", {{RNL_R}}},
               {"{s}bias", "+", {{RNL_BW, "go"}, {RNL_BR, "go"}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "CuDNNLSTM and CuDNNGRU of Keras 2 and tf.keras (tf_keras cudnn_lstm.py,"
               " cudnn_gru.py; hdf5_format.py converts them)"},

    {.layout = "onnx",
     .gates = GATES("iofg", "zrn", "h"),
     .resets = AFTER | BEFORE,
     .activations = ANY_SIGMOID,
     .z = RNL_Z_KEEPS_STATE,
     .per = "l",
     .slots = {{"{s}W", "d,go,i", {{RNL_W}}},
               {"{s}R", "d,go,i", {{RNL_R}}},
               {"{s}B", "d,+", {{RNL_BW, "go"}, {RNL_BR, "go"}}},
               {"{s}P", "d,go", {{RNL_PEEP, .gates = "iof"}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "ONNX operators LSTM, GRU, RNN, versions 7, 14 and 22 (GRU: linear_before_reset 1"
               " is reset after, 0 is reset before)"},

    {.layout = "concat",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER | BEFORE,
     .activations = ANY_SIGMOID,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}W_{g}", "o,+", {{RNL_R, "i"}, {RNL_W, "i"}}},
               {"{s}b_{g}", "o", {{RNL_BW}}}},
     .options = OPTION(RNL_OPT_INPUTS) | OPTION(RNL_OPT_Z),
     .source = "the textbook form: gate = sigmoid(W_g [h, x] + b_g)"},

    {.layout = "flax-linen",
     .gates = GATES("ifgo", "rzn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}i{g}/kernel", "i,o", {{RNL_W}}},
               {"{s}h{g}/kernel", "i,o", {{RNL_R}}},
               {"{s}i{g}/bias", "o", {{RNL_BW, .gates = "rzn"}}},
               {"{s}h{g}/bias", "o", {{RNL_BR, .gates = "ifgon"}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "flax.linen.LSTMCell, OptimizedLSTMCell, GRUCell (flax/linen/recurrent.py, 0.12.8)"},

    {.layout = "flax-linen",
     .gates = GATES(NULL, NULL, "h"),
     .activations = SIGMOID_ONLY,
     .per = "ld",
     .slots = {{"{s}i/kernel", "i,o", {{RNL_W}}},
               {"{s}h/kernel", "i,o", {{RNL_R}}},
               {"{s}i/bias", "o", {{RNL_BW}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "flax.linen.SimpleCell without residual (flax/linen/recurrent.py, 0.12.8)"},

    {.layout = "flax-nnx",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}dense_i/kernel", "i,go", {{RNL_W}}},
               {"{s}dense_h/kernel", "i,go", {{RNL_R}}},
               {"{s}dense_i/bias", "go", {{RNL_BW, .gates = "rznh"}}},
               {"{s}dense_h/bias", "go", {{RNL_BR, .gates = "ifgo"}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "flax.nnx.OptimizedLSTMCell, GRUCell, SimpleCell without residual"
               " (flax/nnx/nn/recurrent.py, 0.12.8)"},

    {.layout = "equinox",
     .gates = GATES("ifgo", "rzn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}weight_ih", "go,i", {{RNL_W}}},
               {"{s}weight_hh", "go,i", {{RNL_R}}},
               {"{s}bias", "go", {{RNL_BW}}},
               {"{s}bias_n", "o", {{RNL_BR, .gates = "n"}}}},
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "equinox.nn.LSTMCell, GRUCell (equinox/nn/_rnn.py, 0.13.8)"},

    {.layout = "haiku",
     .gates = GATES(NULL, "zrn", NULL),
     .resets = BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_TAKES_CANDIDATE,
     .per = "ld",
     .slots = {{"{s}w_i", "i,go", {{RNL_W}}},
               {"{s}w_h", "i,go", {{RNL_R}}},
               {"{s}b", "go", {{RNL_BW}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "haiku.GRU (haiku/_src/recurrent.py, 0.0.17)"},

    {.layout = "paddle",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"weight_ih_l{l}{d:|_reverse}", "go,i", {{RNL_W}}},
               {"weight_hh_l{l}{d:|_reverse}", "go,i", {{RNL_R}}},
               {"bias_ih_l{l}{d:|_reverse}", "go", {{RNL_BW}}},
               {"bias_hh_l{l}{d:|_reverse}", "go", {{RNL_BR}}}},
     .must_name = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "paddle.nn.LSTM, GRU, SimpleRNN without projection (paddle/nn/layer/rnn.py, 3.3.1)"},

    {.layout = "openvino",
     .gates = GATES("figo", "zrn", "h"),
     .resets = BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "l",
     .slots = {{"{s}W", "d,go,i", {{RNL_W}}},
               {"{s}R", "d,go,i", {{RNL_R}}},
               {"{s}B", "d,go", {{RNL_BW}}}},
     .bias_always = true,
     .must_name = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "OpenVINO operators LSTMSequence-5, RNNSequence-5 and GRUSequence-5 with"
               " linear_before_reset false (openvino 2026.4.1)"},

    {.layout = "openvino",
     .gates = GATES(NULL, "zrn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "l",
     .slots = {{"{s}W", "d,go,i", {{RNL_W}}},
               {"{s}R", "d,go,i", {{RNL_R}}},
               {"{s}B", "d,+", {{RNL_BW, "go"}, {RNL_BR, "go", .gates = "n"}}}},
     .bias_always = true,
     .must_name = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "OpenVINO operator GRUSequence-5 with linear_before_reset true (openvino 2026.4.1)"},

    {.layout = "tf1-cudnn-canonical",
     .gates = GATES("igfo", NULL, "h"),
     .activations = SIGMOID_ONLY,
     .per = "ld",
     .slots = {{"{s}kernel", "+,go", {{RNL_W, "i"}, {RNL_R, "i"}}},
               {"{s}bias", "go", {{RNL_BW}}}},
     .bias_always = true,
     .must_name = true,
     .source = "CudnnLSTMSaveable, CudnnRNNTanhSaveable and CudnnRNNReluSaveable of TensorFlow 1"
               " (tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py)"},

    {.layout = "tf1-cudnn-canonical",
     .gates = GATES(NULL, "rzn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}gates/kernel", "+,go", {{RNL_W, "i", .gates = "rz"},
                                            {RNL_R, "i", .gates = "rz"}}},
               {"{s}candidate/input_projection/kernel", "i,o", {{RNL_W, .gates = "n"}}},
               {"{s}candidate/hidden_projection/kernel", "i,o", {{RNL_R, .gates = "n"}}},
               {"{s}gates/bias", "go", {{RNL_BW, .gates = "rz"}}},
               {"{s}candidate/input_projection/bias", "o", {{RNL_BW, .gates = "n"}}},
               {"{s}candidate/hidden_projection/bias", "o", {{RNL_BR, .gates = "n"}}}},
     .bias_always = true,
     .must_name = true,
     .source = "CudnnGRUSaveable of TensorFlow 1"
               " (tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py)"},

    {.layout = "keras1",
     .gates = GATES("igfo", "zrn", "h"),
     .resets = BEFORE,
     .activations = SIGMOID_ONLY | 1u << RNL_HARD_SIGMOID_KERAS2,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}W{g}", "i,o", {{RNL_W}}, KERAS1_GATES},
               {"{s}U{g}", "i,o", {{RNL_R}}, KERAS1_GATES},
               {"{s}b{g}", "o", {{RNL_BW}}, KERAS1_GATES}},
     .bias_always = true,
     .must_name = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "LSTM, GRU, SimpleRNN of Keras 1, as tf_keras reads them"
               " (tf_keras/src/saving/legacy/hdf5_format.py, 2.21)"},

    {.layout = "burn",
     .gates = GATES("ifog", "zrn", NULL),
     .resets = AFTER | BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}{g}_gate.input_transform.weight", "i,o", {{RNL_W}},
                BURN_GATES},
               {"{s}{g}_gate.hidden_transform.weight", "i,o", {{RNL_R}},
                BURN_GATES},
               {"{s}{g}_gate.input_transform.bias", "o", {{RNL_BW}},
                BURN_GATES},
               {"{s}{g}_gate.hidden_transform.bias", "o", {{RNL_BR}},
                BURN_GATES}},
     .source = "burn::nn::Lstm without input_forget, Gru"
               " (crates/burn-nn/src/modules/rnn: gate_controller.rs, lstm.rs, gru.rs)"},

    {.layout = "webnn",
     .gates = GATES("iofg", "zrn", NULL),
     .resets = AFTER | BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "l",
     .slots = {{"{s}weight", "d,go,i", {{RNL_W}}},
               {"{s}recurrentWeight", "d,go,i", {{RNL_R}}},
               {"{s}bias", "d,go", {{RNL_BW}}},
               {"{s}recurrentBias", "d,go", {{RNL_BR}}}},
     .must_name = true,
     .source = "WebNN's lstm and gru with layout 'iofg' and 'zrn', the defaults"
               " (webnn-baseline, src/lstm_cell.js, gru_cell.js)"},

    {.layout = "webnn-ifgo",
     .gates = GATES("ifgo", "rzn", NULL),
     .resets = AFTER | BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "l",
     .slots = {{"{s}weight", "d,go,i", {{RNL_W}}},
               {"{s}recurrentWeight", "d,go,i", {{RNL_R}}},
               {"{s}bias", "d,go", {{RNL_BW}}},
               {"{s}recurrentBias", "d,go", {{RNL_BR}}}},
     .must_name = true,
     .source = "WebNN's lstm and gru with layout 'ifgo' and 'rzn'"
               " (webnn-baseline, src/lstm_cell.js, gru_cell.js)"},

    {.layout = "haste",
     .gates = GATES("igfo", "zrn", NULL),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}kernel", "i,go", {{RNL_W}}},
               {"{s}recurrent_kernel", "i,go", {{RNL_R}}},
               {"{s}bias", "go", {{RNL_BW}}},
               {"{s}recurrent_bias", "go", {{RNL_BR, .gates = "zrn"}}}},
     .bias_always = true,
     .must_name = true,
     .source = "haste_pytorch.LSTM, GRU (frameworks/pytorch and lib/*_forward_gpu.cu.cc, 0.4)"},

    {.layout = "cntk",
     .gates = GATES("igfo", "zrn", "h"),
     .resets = BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{s}b", "go", {{RNL_BW}}},
               {"{s}W", "i,go", {{RNL_W}}},
               {"{s}H", "i,go", {{RNL_R, .gates = "igfozrh"}}},
               {"{s}H1", "i,o", {{RNL_R, .gates = "n"}}}},
     .bias_always = true,
     .source = "cntk.layers.LSTM, GRU, RNNUnit without peepholes, projection or stabilization"
               " (bindings/python/cntk/layers/blocks.py, 2.7)"},

    {.layout = "dl4j",
     .gates = GATES("gfoi", NULL, NULL),
     .activations = SIGMOID_ONLY,
     .per = "ld",
     .slots = {{"{s}W", "i,go", {{RNL_W}}},
               {"{s}RW", "i,go", {{RNL_R}}},
               {"{s}b", "go", {{RNL_BW}}}},
     .bias_always = true,
     .source = "Deeplearning4j's LSTM, not GravesLSTM (deeplearning4j-nn LSTMHelpers.java)"},

    {.layout = "flax-nnx-lstm",
     .gates = GATES("ifgo", NULL, NULL),
     .activations = SIGMOID_ONLY,
     .per = "ld",
     .slots = {{"{s}i{g}/kernel", "i,o", {{RNL_W}}, .gate_names = "f:f_"},
               {"{s}h{g}/kernel", "i,o", {{RNL_R}}},
               {"{s}h{g}/bias", "o", {{RNL_BR}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_FRAMEWORK,
     .source = "flax.nnx.LSTMCell (flax/nnx/nn/recurrent.py, 0.12.8); OptimizedLSTMCell is"
               " layout flax-nnx"},

    {.layout = "mxnet-gluon",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{d:l|r}{l}_i2h_weight", "go,i", {{RNL_W}}},
               {"{d:l|r}{l}_h2h_weight", "go,i", {{RNL_R}}},
               {"{d:l|r}{l}_i2h_bias", "go", {{RNL_BW}}},
               {"{d:l|r}{l}_h2h_bias", "go", {{RNL_BR}}},
               {"{d:l|r}{l}_h2r_weight", "o,i", {{RNL_P}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "mxnet.gluon.rnn.LSTM, GRU, RNN (mxnet/gluon/rnn/rnn_layer.py, 1.9.1)"},

    {.layout = "chainer-nstep",
     .gates = GATES("ifgo", "rzn", "h"),
     .resets = AFTER,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_KEEPS_STATE,
     .per = "ld",
     .slots = {{"{p}/w{g}", "o,i", {{RNL_W}}, "i:0 f:1 g:2 o:3 r:0 z:1 n:2 h:0"},
               {"{p}/w{g}", "o,i", {{RNL_R}}, "i:4 f:5 g:6 o:7 r:3 z:4 n:5 h:1"},
               {"{p}/b{g}", "o", {{RNL_BW}}, "i:0 f:1 g:2 o:3 r:0 z:1 n:2 h:0"},
               {"{p}/b{g}", "o", {{RNL_BR}}, "i:4 f:5 g:6 o:7 r:3 z:4 n:5 h:1"}},
     .bias_always = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "chainer.links.NStepLSTM, NStepGRU, NStepRNNTanh, NStepRNNReLU and the NStepBi ones"
               " (chainer/functions/rnn/n_step_lstm.py, n_step_gru.py, 7.8.1; the docstring of"
               " n_step_lstm exchanges w2 and w3)"},

    {.layout = "chainer-links",
     .gates = GATES("gifo", NULL, NULL),
     .activations = SIGMOID_ONLY,
     .per = "ld",
     .slots = {{"{s}upward/W", "og,i", {{RNL_W}}},
               {"{s}upward/b", "og", {{RNL_BW}}},
               {"{s}lateral/W", "og,i", {{RNL_R}}}},
     .bias_always = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "chainer.links.LSTM, StatelessLSTM (chainer/links/rnn/lstm.py, functions/rnn/lstm.py,"
               " 7.8.1)"},

    {.layout = "chainer-links",
     .gates = GATES(NULL, "rzn", NULL),
     .resets = BEFORE,
     .activations = SIGMOID_ONLY,
     .z = RNL_Z_TAKES_CANDIDATE,
     .per = "ld",
     .slots = {{"{s}W{g}/W", "o,i", {{RNL_W}}, "r:_r z:_z n:"},
               {"{s}W{g}/b", "o", {{RNL_BW}}, "r:_r z:_z n:"},
               {"{s}U{g}/W", "o,i", {{RNL_R}}, "r:_r z:_z n:"},
               {"{s}U{g}/b", "o", {{RNL_BR}}, "r:_r z:_z n:"}},
     .bias_always = true,
     .checked = RNL_CHECKED_RECORDED,
     .source = "chainer.links.GRU, StatefulGRU, StatelessGRU (chainer/links/rnn/gru.py, 7.8.1)"},

    /* Not listed for users: the forward pass on the CPU is prepared from this layout. */
    {.layout = RNL_FORWARD_LAYOUT,
     CUDNN_WEIGHT_SPACE,
     .resets = AFTER | BEFORE,
     .activations = ANY_SIGMOID,
     .source = "cuDNN's weight space, extended to RNNs that cuDNN does not support"},
};
/* clang-format on */

const int rnl_num_rows = (int)(sizeof rnl_rows / sizeof rnl_rows[0]);
const int rnl_num_listed = (int)(sizeof rnl_rows / sizeof rnl_rows[0]) - 1;

const rnl_alias rnl_aliases[] = {
    {"jax", "cudnn", RNL_CHECKED_FRAMEWORK,
     "jax.experimental.rnn (jax/experimental/rnn.py, 0.10.2): an LSTM with two biases"},
    {"mxnet", "cudnn", RNL_CHECKED_RECORDED,
     "the parameters of MXNet's operator RNN, with two biases (mxnet 1.9.1)"},
    {"candle", "torch", RNL_CHECKED_DOCUMENTS,
     "candle_nn's LSTM and GRU, one layer without projection (candle-nn/src/rnn.rs)"},
};
const int rnl_num_aliases = (int)(sizeof rnl_aliases / sizeof rnl_aliases[0]);
