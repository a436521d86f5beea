// Kernels of the weight update. Hyper-parameters and the step count arrive in any floating type and
// are turned into one step's numbers in double, as torch does it on the host.
#include <cmath>
#include <type_traits>

#include "kernels/simd/optimizer.h"
#include "ops/kernel.h"
#include "support/half.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::DType;
using ops::Args;
using ops::Call;
using ops::Prepared;

constexpr int64_t grain = 16 * 1024;  // elements worth a thread

template <typename T>
const simd::UpdateTable<T>& table() {
  const simd::OptimizerTable& tables = simd::optimizer_table();
  if constexpr (std::is_same_v<T, float>) return tables.f32;
  if constexpr (std::is_same_v<T, double>) return tables.f64;
  if constexpr (std::is_same_v<T, simd::F16>) return tables.f16;
  if constexpr (std::is_same_v<T, simd::BF16>) return tables.bf16;
}

// Element i of a floating-point operand.
double number(const Args& args, size_t operand, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::f16: return f16_to_float(args.in<uint16_t>(operand)[i]);
    case DType::bf16: return bf16_to_float(args.in<uint16_t>(operand)[i]);
    case DType::f64: return args.in<double>(operand)[i];
    default: return args.in<float>(operand)[i];
  }
}

template <typename T>
Prepared accumulate_of(const Call& call) {
  const int64_t n = call.out().numel();
  const auto scale = static_cast<simd::NumberOf<T>>(call.attrs().get_float("scale", 1.0));
  const auto run = table<T>().accumulate;
  return {[=](const Args& args) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      run(args.in<T>(0), args.in<T>(1), scale, args.out<T>(), begin, end);
    });
  }};
}

template <typename T>
Prepared sgd_of(const Call& call) {
  using N = simd::NumberOf<T>;
  const int64_t n = call.out().numel();
  const bool has_buffer = call.has_in(2);
  const bool nesterov = call.attrs().get_bool("nesterov", false);
  const double sign = call.attrs().get_bool("maximize", false) ? -1.0 : 1.0;
  const DType step_type = call.in(3).dtype, hyper_type = call.in(4).dtype;
  const auto run = table<T>().sgd;
  return {[=](const Args& args) {
    const auto hyper = [&](int64_t i) { return number(args, 4, hyper_type, i); };
    const simd::SgdStep<N> step = {
        static_cast<N>(hyper(0)), static_cast<N>(hyper(1)), static_cast<N>(hyper(3)),
        static_cast<N>(1.0 - hyper(2)), static_cast<N>(sign), nesterov,
        number(args, 3, step_type, 0) == 1.0};
    const simd::SgdArrays<T> arrays = {args.in<T>(0), args.in<T>(1), args.in<T>(2),
                                       args.out<T>(0), has_buffer ? args.out<T>(1) : nullptr};
    parallel_for(args.threads, n, grain,
                 [&](int64_t begin, int64_t end) { run(arrays, step, begin, end); });
  }};
}

// The numbers of one Adam step from hyper-parameters (lr, beta1, beta2, eps, weight_decay).
template <typename T, typename Hyper>
simd::AdamStep<T> adam_numbers(const Hyper& hyper, double count, double sign, bool is_decoupled) {
  const double lr = hyper(0), beta1 = hyper(1), beta2 = hyper(2), decay = hyper(4);
  simd::AdamStep<T> step;
  step.beta2 = static_cast<T>(beta2);
  step.one_minus_beta1 = static_cast<T>(1.0 - beta1);
  step.one_minus_beta2 = static_cast<T>(1.0 - beta2);
  step.eps = static_cast<T>(hyper(3));
  step.decay = static_cast<T>(is_decoupled ? 0.0 : decay);
  step.shrink = static_cast<T>(is_decoupled ? 1.0 - lr * decay : 1.0);
  step.sign = static_cast<T>(sign);
  step.step_size = static_cast<T>(lr / (1.0 - std::pow(beta1, count)));
  step.root_scale = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(beta2, count)));
  return step;
}

template <typename T>
Prepared adam_of(const Call& call) {
  using N = simd::NumberOf<T>;
  const int64_t n = call.out().numel();
  const bool has_max = call.has_in(4);
  const bool is_decoupled = call.attrs().get_bool("decoupled_weight_decay", false);
  const double sign = call.attrs().get_bool("maximize", false) ? -1.0 : 1.0;
  const DType step_type = call.in(5).dtype, hyper_type = call.in(6).dtype;
  const auto run = table<T>().adam;
  return {[=](const Args& args) {
    const simd::AdamStep<N> step =
        adam_numbers<N>([&](int64_t i) { return number(args, 6, hyper_type, i); },
                        number(args, 5, step_type, 0), sign, is_decoupled);
    const simd::AdamArrays<T> arrays = {
        args.in<T>(0),  args.in<T>(1),  args.in<T>(2),
        args.in<T>(3),  args.in<T>(4),  args.out<T>(0),
        args.out<T>(1), args.out<T>(2), has_max ? args.out<T>(3) : nullptr};
    parallel_for(args.threads, n, grain,
                 [&](int64_t begin, int64_t end) { run(arrays, step, begin, end); });
  }};
}

#define UPDATE_KERNEL(op, name)                            \
  Prepared name(const Call& call) {                        \
    switch (call.out().dtype) {                            \
      case DType::f16: return name##_of<simd::F16>(call);  \
      case DType::bf16: return name##_of<simd::BF16>(call); \
      case DType::f64: return name##_of<double>(call);     \
      default: return name##_of<float>(call);              \
    }                                                      \
  }                                                        \
  KERNEL(op, name, true)
UPDATE_KERNEL("accumulate", accumulate)
UPDATE_KERNEL("sgd_update", sgd)
UPDATE_KERNEL("adam_update", adam)
#undef UPDATE_KERNEL

}  // namespace

}  // namespace poptorch::kernels
