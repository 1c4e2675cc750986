/*
 * rnnlayout for C++17 and later: classes that free their RNN, and exceptions. A thin layer on
 * rnnlayout.h, where the functions are documented. With C++20 a stepper takes spans.
 */
#ifndef RNNLAYOUT_HPP
#define RNNLAYOUT_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#if __has_include(<span>)
#include <span>
#endif
#include "rnnlayout.h"

namespace rnnlayout
{

/* A status that is not RNL_OK, with the message of the library. */
class error : public std::runtime_error
{
  public:
    explicit error(const rnl_error &err) : std::runtime_error(err.text), status(err.status) {}
    rnl_status status;
};

inline void check(rnl_status status, const rnl_error &err)
{
    if (status != RNL_OK)
        throw error(err);
}

template <class Real> constexpr rnl_dtype dtype_of()
{
    static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);
    return std::is_same_v<Real, float> ? RNL_FLOAT32 : RNL_FLOAT64;
}

/* An RNN on the CPU. Copies share the RNN; the last copy or stepper frees the RNN. */
class rnn
{
  public:
    /* json: the text of lstm.bin.json, see rnl_spec_from_json(); weights: the bytes of lstm.bin,
     * see rnl_weights_check(). */
    rnn(std::string_view json, std::string_view weights)
    {
        rnl_rnn_options options;
        rnl_error err;
        check(rnl_spec_from_json(json.data(), json.size(), &spec_, &options, &err), err);
        prepare(weights.data(), weights.size(), options);
        check(rnl_weights_check(json.data(), json.size(), weights.data(), weights.size(), &err),
              err);
    }

    /* Weights as for rnl_rnn_new(). */
    rnn(const rnl_spec &spec, const void *weights, std::size_t nbytes) : spec_(spec)
    {
        prepare(weights, nbytes, rnl_rnn_options{});
    }

    const rnl_spec &spec() const noexcept { return spec_; }
    std::size_t inputs() const noexcept { return static_cast<std::size_t>(spec_.input_size); }
    std::size_t outputs() const noexcept
    {
        const auto P = spec_.proj_size ? spec_.proj_size : spec_.hidden_size;
        return static_cast<std::size_t>(spec_.bidirectional ? 2 * P : P);
    }

    /* Contiguous x (T, N, inputs) and y (T, N, outputs), from zero states. */
    template <class Real> void run(const Real *x, Real *y, std::int64_t T, std::int64_t N = 1) const
    {
        rnl_rnn_call call{};
        rnl_error err;
        call.T = T;
        call.N = N;
        call.dtype = dtype_of<Real>();
        call.x = x;
        call.x_batch = static_cast<std::int64_t>(inputs());
        call.x_time = N * call.x_batch;
        call.y = y;
        call.y_batch = static_cast<std::int64_t>(outputs());
        call.y_time = N * call.y_batch;
        check(rnl_rnn_run(rnn_.get(), &call, &err), err);
    }

    const std::shared_ptr<rnl_rnn> &handle() const noexcept { return rnn_; }

  private:
    void prepare(const void *weights, std::size_t nbytes, const rnl_rnn_options &options)
    {
        rnl_layout layout;
        rnl_tensor tensor;
        rnl_rnn *prepared;
        rnl_error err;
        check(rnl_layout_named(RNL_FORWARD_LAYOUT, &layout, &err), err);
        check(rnl_layout_tensor(&layout, &spec_, rnl_spec_optional(&spec_), 0, &tensor, &err), err);
        const auto needed = static_cast<std::size_t>(tensor.nelems * rnl_dtype_nbytes(spec_.dtype));
        if (nbytes != needed)
            throw std::length_error("the weights have " + std::to_string(nbytes) +
                                    " bytes, but this RNN needs " + std::to_string(needed));
        check(rnl_rnn_new(&spec_, weights, &options, &prepared, &err), err);
        rnn_ = std::shared_ptr<rnl_rnn>(prepared, rnl_rnn_free);
    }

    rnl_spec spec_{};
    std::shared_ptr<rnl_rnn> rnn_;
};

/* A live signal: a sequence that arrives step by step. Real is float, or double for float64
 * weights. After the constructor all calls are real-time safe. */
template <class Real> class stepper
{
  public:
    explicit stepper(const rnn &model)
        : rnn_(model.handle()), inputs_(model.inputs()), outputs_(model.outputs())
    {
        rnl_stepper *handle;
        rnl_error err;
        check(rnl_stepper_new(rnn_.get(), dtype_of<Real>(), &handle, &err), err);
        stepper_.reset(handle);
    }

    /* x (n, inputs), y (n, outputs); y may be x if inputs is outputs. */
    void run(const Real *x, Real *y, std::int64_t n = 1) noexcept
    {
        rnl_stepper_run(stepper_.get(), x, y, n);
    }

#ifdef __cpp_lib_span
    /* x (n, inputs), y (n, outputs). Throws before computing if the sizes do not fit. */
    void run(std::span<const Real> x, std::span<Real> y)
    {
        const std::size_t n = x.size() / inputs_;
        if (n * inputs_ != x.size() || n * outputs_ != y.size())
            throw std::length_error("rnnlayout: x and y do not have the same number of steps");
        run(x.data(), y.data(), static_cast<std::int64_t>(n));
    }
#endif

    void reset() noexcept { rnl_stepper_reset(stepper_.get()); } /* zeros */
    rnl_stepper *get() const noexcept { return stepper_.get(); }

  private:
    std::shared_ptr<rnl_rnn> rnn_; /* is freed after the stepper */
    std::unique_ptr<rnl_stepper, void (*)(rnl_stepper *)> stepper_{nullptr, rnl_stepper_free};
    std::size_t inputs_, outputs_;
};

} // namespace rnnlayout

#endif
