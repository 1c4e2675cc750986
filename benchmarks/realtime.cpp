// A live signal through one layer: rnl_stepper_run beside RTNeural, whose sizes are compiled in.
// benchmarks/realtime.py compiles this file with IS_GRU and OF_INPUT(H), and runs it: few cases at
// a time, since gcc inlines less in a large file. Each line of output is one case, as JSON: the
// least and the median time of the turns, in nanoseconds per step.
#include <RTNeural/RTNeural.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "rnnlayout.h"

using matrix = std::vector<std::vector<float>>;
constexpr int BLOCK = 64, TURNS = 101;

static float uniform()
{
    static std::minstd_rand engine;
    return std::uniform_real_distribution<float>(-1, 1)(engine);
}

static matrix numbers(int rows, int cols, float size)
{
    matrix m(rows, std::vector<float>(cols));
    for (auto &row : m)
        for (auto &x : row)
            x = size * uniform();
    return m;
}

// Nanoseconds per step.
static double time_of(const std::function<void()> &call, int repeats, int steps)
{
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < repeats; k++)
        call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / repeats / steps;
}

static rnl_stepper *stepper_of(rnl_spec spec, const std::vector<float> &weights, rnl_rnn **rnn)
{
    rnl_error err;
    rnl_stepper *stepper = nullptr;
    if (rnl_rnn_new(&spec, weights.data(), nullptr, rnn, &err) ||
        rnl_stepper_new(*rnn, RNL_FLOAT32, &stepper, &err)) {
        std::fprintf(stderr, "%s\n", err.text);
        std::exit(1);
    }
    return stepper;
}

// RTNeural takes Keras's matrices: (I, G H) and (H, G H), gates i f g o and z r n. Ours are (G H,
// I) and (G H, H), gates i f g o and r z n.
static std::vector<float> space_of(const matrix &W, const matrix &U, bool gru, int H)
{
    static const int of_lstm[] = {0, 1, 2, 3}, of_gru[] = {1, 0, 2};
    const int gates = gru ? 3 : 4;
    std::vector<float> space;
    for (const matrix *m : {&W, &U})
        for (int gate = 0; gate < gates; gate++)
            for (int unit = 0; unit < H; unit++)
                for (const auto &row : *m)
                    space.push_back(row[(gru ? of_gru : of_lstm)[gate] * H + unit]);
    return space;
}

template <int I, int H, bool GRU> void measure()
{
    using layer = std::conditional_t<GRU, RTNeural::GRULayerT<float, I, H>,
                                     RTNeural::LSTMLayerT<float, I, H>>;
    static RTNeural::ModelT<float, I, H, layer> model;
    const int width = (GRU ? 3 : 4) * H;
    const float size = 1 / std::sqrt((float)(I + H));
    const matrix W = numbers(I, width, size), U = numbers(H, width, size);
    auto &one = model.template get<0>();
    one.setWVals(W);
    one.setUVals(U);
    if constexpr (GRU)
        one.setBVals(matrix(2, std::vector<float>(width)));
    else
        one.setBVals(std::vector<float>(width));
    model.reset();
    rnl_spec spec = rnl_spec_default(GRU ? RNL_GRU : RNL_LSTM, I, H);
    spec.bias = RNL_BIAS_NONE;
    rnl_rnn *rnn;
    rnl_stepper *stepper = stepper_of(spec, space_of(W, U, GRU, H), &rnn);
    constexpr int apart_by = (I + 15) / 16 * 16; // RTNeural needs each step's x to be aligned
    alignas(64) static float x[BLOCK * I], aligned[BLOCK * apart_by];
    alignas(64) static float ours[BLOCK * H], theirs[BLOCK * H];
    for (int k = 0; k < BLOCK * I; k++)
        x[k] = aligned[k / I * apart_by + k % I] = uniform();

    const auto run = [&](int steps) { rnl_stepper_run(stepper, x, ours, steps); };
    const auto run_theirs = [&](int steps) {
        for (int t = 0; t < steps; t++) {
            model.forward(aligned + t * apart_by);
            std::memcpy(theirs + t * H, model.getOutputs(), H * sizeof(float));
        }
        asm volatile("" ::: "memory");
    };
    run(BLOCK);
    run_theirs(BLOCK);
    float apart = 0;
    for (int k = 0; k < BLOCK * H; k++)
        apart = std::max(apart, std::abs(ours[k] - theirs[k]));
    for (const int steps : {1, BLOCK}) {
        const int repeats = std::max(3, 4000000 / (H * (I + H) + 500) / steps);
        std::array<double, TURNS> of_ours, of_theirs;
        for (int turn = 0; turn < TURNS; turn++) {
            of_theirs[turn] = time_of([&] { run_theirs(steps); }, repeats, steps);
            of_ours[turn] = time_of([&] { run(steps); }, repeats, steps);
        }
        std::sort(of_ours.begin(), of_ours.end());
        std::sort(of_theirs.begin(), of_theirs.end());
        std::printf(
            "{\"cell\": \"%s\", \"I\": %d, \"H\": %d, \"steps\": %d, \"ours\": [%.1f, %.1f], "
            "\"rtneural\": [%.1f, %.1f], \"apart\": %.1e}\n",
            GRU ? "gru" : "lstm", I, H, steps, of_ours[0], of_ours[TURNS / 2], of_theirs[0],
            of_theirs[TURNS / 2], apart);
        std::fflush(stdout);
    }
    rnl_stepper_free(stepper);
    rnl_rnn_free(rnn);
}

template <int... H> void measure_all(std::integer_sequence<int, H...>)
{
    (measure<OF_INPUT(H), H, IS_GRU>(), ...);
}

int main()
{
    measure_all(std::integer_sequence<int, 8, 12, 16, 20, 24, 32, 40, 64, 96, 128>());
}
