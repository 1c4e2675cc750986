/*
 * Run a live signal through an LSTM, GRU or RNN in C++, on weights exported by
 *     rnnlayout convert model.pt lstm.bin
 *
 *   live_signal WEIGHTS.bin < X > Y
 *
 * X has steps of I float32 numbers, Y gets P per step, as soon as its x has arrived. Needs C++17:
 *     c++ -std=c++17 live_signal.cpp $(pkg-config --cflags --libs rnnlayout) -o live_signal
 */
#include <cstdio>
#include <fstream>
#include <iostream>
#include <rnnlayout.hpp>
#include <sstream>
#include <vector>

static std::string read_file(const std::string &path)
{
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
}

int main(int argc, char **argv)
try {
    const std::string path = argc == 2 ? argv[1] : "lstm.bin";
    const rnnlayout::rnn rnn(read_file(path + ".json"), read_file(path));
    rnnlayout::stepper<float> stepper(rnn);
    std::vector<float> x(rnn.inputs()), y(rnn.outputs());
    while (std::fread(x.data(), sizeof(float), x.size(), stdin) == x.size()) {
        stepper.run(x.data(), y.data());
        std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    }
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
