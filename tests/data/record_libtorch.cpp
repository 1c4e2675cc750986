// Write libtorch.pt: an archive of torch::save(module), of C++'s libtorch, which torch 2.13 has.
//
//   T=$(python -c "import torch; print(torch.__path__[0])")
//   g++ -std=c++20 -I$T/include -I$T/include/torch/csrc/api/include record_libtorch.cpp \
//       -L$T/lib -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$T/lib && ./a.out
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
    NetImpl()
    {
        torch::nn::LSTMOptions lstm = torch::nn::LSTMOptions(5, 3).bidirectional(true);
        torch::nn::RNNOptions plain = torch::nn::RNNOptions(6, 4).nonlinearity(torch::kReLU);
        register_module("enc", torch::nn::LSTM(lstm));
        register_module("dec", torch::nn::RNN(plain));
        register_module("norm", torch::nn::BatchNorm1d(4));
    }
};
TORCH_MODULE(Net);

int main()
{
    torch::manual_seed(0);
    torch::save(Net(), "libtorch.pt");
}
