// Kernels of the weight update. Hyper-parameters and the step count arrive in any floating type and
// are turned into one step's numbers in double, as torch does it on the host. Tensors of one type
// are read and written as they are by the loops of simd/optimizer.inl; where types differ, block by
// block as floats.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "ir/element.h"
#include "kernels/float16_blocks.h"
#include "kernels/simd/optimizer.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::DType;

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
  return ir::element_at(dtype, args.inputs[operand], i);
}

// The number of an operand that may be absent: then 1.
double factor(const Args& args, size_t operand, std::optional<DType> dtype) {
  return dtype ? number(args, operand, *dtype, 0) : 1.0;
}

std::optional<DType> type_of(const Call& call, size_t operand) {
  if (!call.has_in(operand)) return std::nullopt;
  return call.in(operand).dtype;
}

// One tensor of an update whose tensors all have elements of type T: as it is.
template <typename T>
class Whole {
 public:
  using Element = T;
  static constexpr int64_t block = std::numeric_limits<int64_t>::max();

  // Reads `in`, if there is one, and writes `out`, if there is one.
  Whole(DType, const void* in, void* out)
      : in_(static_cast<const T*>(in)), out_(static_cast<T*>(out)) {}

  const T* read(int64_t begin, int64_t) { return in_ == nullptr ? nullptr : in_ + begin; }
  T* target(int64_t begin) { return out_ == nullptr ? nullptr : out_ + begin; }
  void write(int64_t, int64_t) {}

 private:
  const T* in_;
  T* out_;
};

// The same of an update of mixed types, with elements of any floating type but f64, seen as floats:
// itself where it holds them, else one block of it at a time in `room`.
class Floats {
 public:
  using Element = float;
  static constexpr int64_t block = 256;

  Floats(DType dtype, const void* in, void* out) : dtype_(dtype), in_(in), out_(out) {}

  const float* read(int64_t begin, int64_t n) {
    if (in_ == nullptr) return nullptr;
    if (dtype_ == DType::f32) return static_cast<const float*>(in_) + begin;
    upcast_from(dtype_)(static_cast<const uint16_t*>(in_) + begin, room_, n);
    return room_;
  }
  float* target(int64_t begin) {
    if (out_ == nullptr) return nullptr;
    return dtype_ == DType::f32 ? static_cast<float*>(out_) + begin : room_;
  }
  // Rounds what was written to target().
  void write(int64_t begin, int64_t n) {
    if (out_ == nullptr || dtype_ == DType::f32) return;
    downcast_to(dtype_)(room_, static_cast<uint16_t*>(out_) + begin, n);
  }

 private:
  DType dtype_;
  const void* in_;
  void* out_;
  alignas(64) float room_[block];
};

// update(begin, count) for the blocks of begin .. end in which tensors are seen.
template <typename Tensor, typename Update>
void each_block(int64_t begin, int64_t end, const Update& update) {
  for (int64_t i = begin; i < end;) {
    const int64_t count = std::min(Tensor::block, end - i);
    update(i, count);
    i += count;
  }
}

// Operand `in` of a call, that is there, and the result that takes its place.
struct Kept {
  size_t in, out;
};

// What an update whose `skip` is true does: each result is its operand.
void keep(const Args& args, const Kept& kept, int64_t bytes) {
  if (args.inputs[kept.in] != args.outputs[kept.out] && bytes > 0) {
    std::memcpy(args.outputs[kept.out], args.inputs[kept.in], static_cast<size_t>(bytes));
  }
}

// Whether all of these operands that are there have one type.
bool is_uniform(const Call& call, size_t tensors) {
  for (size_t i = 0; i < tensors; ++i) {
    if (call.has_in(i) && call.in(i).dtype != call.in(0).dtype) return false;
  }
  return true;
}

template <typename Tensor>
Prepared accumulate(const Call& call) {
  using T = typename Tensor::Element;
  const int64_t n = call.out().numel();
  const double scale = call.attrs().get_float(ir::attr::scale, 1.0);
  const auto factor_type = type_of(call, 2);
  const DType acc_type = call.in(0).dtype, grad_type = call.in(1).dtype;
  const auto run = table<T>().accumulate;
  return {[=](const Args& args) {
    const auto by = static_cast<simd::NumberOf<T>>(scale * factor(args, 2, factor_type));
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      Tensor acc(acc_type, args.inputs[0], args.outputs[0]), grad(grad_type, args.inputs[1], {});
      each_block<Tensor>(begin, end, [&](int64_t i, int64_t count) {
        run(acc.read(i, count), grad.read(i, count), by, acc.target(i), count);
        acc.write(i, count);
      });
    });
  }};
}

template <typename N, typename Hyper>
simd::SgdStep<N> sgd_numbers(const Hyper& hyper, double sign, bool nesterov, bool is_first) {
  return {static_cast<N>(hyper(0)),       static_cast<N>(hyper(1)), static_cast<N>(hyper(3)),
          static_cast<N>(1.0 - hyper(2)), static_cast<N>(sign),     nesterov,
          is_first};
}

// Of sgd_update: run(args, step) for the numbers of the step, unless it is skipped.
template <typename N, typename Run>
Prepared sgd_with(const Call& call, const Run& run) {
  const bool nesterov = call.attrs().get_bool(ir::attr::nesterov, false),
             has_buffer = call.has_in(2);
  const double sign = call.attrs().get_bool(ir::attr::maximize, false) ? -1.0 : 1.0;
  const DType step_type = call.in(3).dtype, hyper_type = call.in(4).dtype;
  const auto scale_type = type_of(call, 5);
  const bool can_skip = call.has_in(6);
  const int64_t bytes = call.out().bytes();
  const int64_t buffer_bytes = has_buffer ? call.in(2).bytes() : 0;
  return {[=](const Args& args) {
    if (can_skip && *args.in<bool>(6)) {
      keep(args, {0, 0}, bytes);
      if (has_buffer) keep(args, {2, 1}, buffer_bytes);
      return;
    }
    const auto hyper = [&](int64_t i) { return number(args, 4, hyper_type, i); };
    run(args, sgd_numbers<N>(hyper, sign * factor(args, 5, scale_type), nesterov,
                             number(args, 3, step_type, 0) == 1.0));
  }};
}

template <typename Tensor>
Prepared sgd(const Call& call) {
  using T = typename Tensor::Element;
  using Step = simd::SgdStep<simd::NumberOf<T>>;
  const int64_t n = call.out().numel();
  const bool has_buffer = call.has_in(2);
  const DType type = call.in(0).dtype, grad_type = call.in(1).dtype;
  const DType buffer_type = has_buffer ? call.in(2).dtype : type;
  const auto run = table<T>().sgd;
  return sgd_with<simd::NumberOf<T>>(call, [=](const Args& args, const Step& step) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      Tensor param(type, args.inputs[0], args.outputs[0]), grad(grad_type, args.inputs[1], {});
      Tensor buffer(buffer_type, args.inputs[2], has_buffer ? args.outputs[1] : nullptr);
      each_block<Tensor>(begin, end, [&](int64_t i, int64_t count) {
        run({param.read(i, count), grad.read(i, count), buffer.read(i, count), param.target(i),
             buffer.target(i)},
            step, count);
        param.write(i, count);
        buffer.write(i, count);
      });
    });
  });
}

struct AdamFlags {
  double sign;
  bool is_decoupled, corrects_bias;
};

// The numbers of one Adam step from hyper-parameters (lr, beta1, beta2, eps, weight_decay).
template <typename T, typename Hyper>
simd::AdamStep<T> adam_numbers(const Hyper& hyper, double count, const AdamFlags& flags) {
  const double lr = hyper(0), beta1 = hyper(1), beta2 = hyper(2), decay = hyper(4);
  simd::AdamStep<T> step;
  step.beta2 = static_cast<T>(beta2);
  step.one_minus_beta1 = static_cast<T>(1.0 - beta1);
  step.one_minus_beta2 = static_cast<T>(1.0 - beta2);
  step.eps = static_cast<T>(hyper(3));
  step.decay = static_cast<T>(flags.is_decoupled ? 0.0 : decay);
  step.shrink = static_cast<T>(flags.is_decoupled ? 1.0 - lr * decay : 1.0);
  step.sign = static_cast<T>(flags.sign);
  const auto missing = [&](double beta) {
    return flags.corrects_bias ? 1.0 - std::pow(beta, count) : 1.0;
  };
  step.step_size = static_cast<T>(lr / missing(beta1));
  step.root_scale = static_cast<T>(1.0 / std::sqrt(missing(beta2)));
  return step;
}

// Of adam_update: run(args, step) for the numbers of the step, unless it is skipped.
template <typename N, typename Run>
Prepared adam_with(const Call& call, const Run& run) {
  const AdamFlags flags = {call.attrs().get_bool(ir::attr::maximize, false) ? -1.0 : 1.0,
                           call.attrs().get_bool(ir::attr::decoupled_weight_decay, false),
                           call.attrs().get_bool(ir::attr::bias_correction, true)};
  const DType step_type = call.in(5).dtype, hyper_type = call.in(6).dtype;
  const auto scale_type = type_of(call, 7);
  const bool can_skip = call.has_in(8), has_max = call.has_in(4);
  const std::array<int64_t, 4> bytes = {call.in(0).bytes(), call.in(2).bytes(), call.in(3).bytes(),
                                        has_max ? call.in(4).bytes() : 0};
  return {[=](const Args& args) {
    if (can_skip && *args.in<bool>(8)) {
      keep(args, {0, 0}, bytes[0]);
      for (size_t i = 1; i < (has_max ? 4 : 3); ++i) keep(args, {i + 1, i}, bytes[i]);
      return;
    }
    AdamFlags scaled = flags;
    scaled.sign *= factor(args, 7, scale_type);
    run(args, adam_numbers<N>([&](int64_t i) { return number(args, 6, hyper_type, i); },
                              number(args, 5, step_type, 0), scaled));
  }};
}

template <typename Tensor>
Prepared adam(const Call& call) {
  using T = typename Tensor::Element;
  using Step = simd::AdamStep<simd::NumberOf<T>>;
  const int64_t n = call.out().numel();
  const bool has_max = call.has_in(4);
  const DType type = call.in(0).dtype, grad_type = call.in(1).dtype;
  const DType average_type = call.in(2).dtype, square_type = call.in(3).dtype;
  const DType max_type = has_max ? call.in(4).dtype : type;
  const auto run = table<T>().adam;
  return adam_with<simd::NumberOf<T>>(call, [=](const Args& args, const Step& step) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      Tensor param(type, args.inputs[0], args.outputs[0]), grad(grad_type, args.inputs[1], {});
      Tensor average(average_type, args.inputs[2], args.outputs[1]);
      Tensor square(square_type, args.inputs[3], args.outputs[2]);
      Tensor largest(max_type, args.inputs[4], has_max ? args.outputs[3] : nullptr);
      each_block<Tensor>(begin, end, [&](int64_t i, int64_t count) {
        run({param.read(i, count), grad.read(i, count), average.read(i, count),
             square.read(i, count), largest.read(i, count), param.target(i), average.target(i),
             square.target(i), largest.target(i)},
            step, count);
        for (Tensor* side : {&param, &average, &square, &largest}) side->write(i, count);
      });
    });
  });
}

#define UPDATE_KERNEL(op, name, tensors)                          \
  Prepared name##_kernel(const Call& call) {                      \
    if (!is_uniform(call, tensors)) return name<Floats>(call);    \
    switch (call.out().dtype) {                                   \
      case DType::f16: return name<Whole<simd::F16>>(call);       \
      case DType::bf16: return name<Whole<simd::BF16>>(call);     \
      case DType::f64: return name<Whole<double>>(call);          \
      default: return name<Whole<float>>(call);                   \
    }                                                             \
  }                                                               \
  KERNEL(op, name##_kernel, true)
UPDATE_KERNEL("accumulate", accumulate, 2)
UPDATE_KERNEL("sgd_update", sgd, 3)
UPDATE_KERNEL("adam_update", adam, 5)
#undef UPDATE_KERNEL

}  // namespace

}  // namespace poptorch::kernels
