// sum, mean, prod, amax, amin, logsumexp, any, all.
#include "ops/families/reduction.h"

#include <cmath>
#include <limits>

#include "kernels/reduction/engine.h"
#include "kernels/reduction/loops.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/cpu/half.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

using ir::DType;

// Entry by entry in order: the walk for everything without a vectorized loop. `Fold` has join,
// neutral and entry. Not inlined: the loops, of sixty types and operations, are most of the code.
template <typename Fold>
struct Plain {
  using In = typename Fold::In;
  using Total = typename Fold::Total;

  Total total() const { return Fold::neutral(); }
  static Total join(Total a, Total b) { return Fold::join(a, b); }

  // Eight lanes: shorter chains of dependent operations, and smaller rounding errors.
  [[gnu::noinline]] Total run(const In* x, int64_t n, int64_t stride, int64_t) const {
    Total lanes[8];
    for (Total& lane : lanes) lane = Fold::neutral();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      for (int64_t l = 0; l < 8; ++l) {
        lanes[l] = Fold::join(lanes[l], Fold::entry(x[(i + l) * stride]));
      }
    }
    for (int64_t l = 0; i < n; ++i, ++l)
      lanes[l] = Fold::join(lanes[l], Fold::entry(x[i * stride]));
    for (int64_t half = 4; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) lanes[l] = Fold::join(lanes[l], lanes[l + half]);
    }
    return lanes[0];
  }

  [[gnu::noinline]] void rows(Total* acc, const ReduceRows<In>& r) const {
    for (int64_t row = 0; row < r.rows; ++row) {
      const In* x = r.x + row * r.row_stride;
      for (int64_t i = 0; i < r.columns; ++i) {
        acc[i] = Fold::join(acc[i], Fold::entry(x[i * r.stride]));
      }
    }
  }
};

template <typename T, typename To>
struct Sum {
  using In = T;
  using Total = To;
  static Total neutral() { return 0; }
  static Total entry(T x) { return static_cast<To>(simd::number_of(x)); }
  static Total join(Total a, Total b) { return a + b; }
};

template <typename T, typename To>
struct Product : Sum<T, To> {
  using Total = To;
  static Total neutral() { return 1; }
  static Total join(Total a, Total b) { return a * b; }
};

template <typename T, bool largest>
struct Extreme {
  using In = T;
  using Total = T;
  using Limits = std::numeric_limits<T>;
  static Total neutral() {
    if constexpr (std::is_floating_point_v<T>)
      return largest ? -Limits::infinity() : Limits::infinity();
    return largest ? Limits::lowest() : Limits::max();
  }
  static Total entry(T x) { return x; }
  static Total join(Total a, Total b) { return (largest ? b > a : b < a) || b != b ? b : a; }
};

template <typename T, bool every>
struct Truth {
  using In = T;
  using Total = bool;
  static Total neutral() { return every; }
  static Total entry(T x) { return x != 0; }
  static Total join(Total a, Total b) { return every ? a & b : a | b; }
};

template <typename E>
const simd::SumLoops<E>& sum_loops() {
  const simd::ReduceLoops& loops = simd::reduce_loops();
  if constexpr (std::is_same_v<E, simd::F16>) return loops.f16;
  if constexpr (std::is_same_v<E, simd::BF16>) return loops.bf16;
  if constexpr (std::is_same_v<E, float>) return loops.f32;
}

// In f64: hardly slower than memory, and exact but for the last rounding.
template <typename E>
struct FloatSum : Plain<Sum<E, double>> {
  using Base = Plain<Sum<E, double>>;
  const simd::SumLoops<E>* loops = &sum_loops<E>();

  double run(const E* x, int64_t n, int64_t stride, int64_t out) const {
    return stride == 1 ? loops->sum(x, n) : Base::run(x, n, stride, out);
  }

  void rows(double* acc, const ReduceRows<E>& r) const {
    if (r.stride != 1) return Base::rows(acc, r);
    loops->sum_rows(acc, r.x, r.row_stride, r.rows, r.columns);
  }
};

// A total as an entry of the result.
template <typename To>
To rounded(auto total) {
  if constexpr (std::is_same_v<To, simd::F16>) {
    return {float_to_f16(static_cast<float>(total))};
  } else if constexpr (std::is_same_v<To, simd::BF16>) {
    return {float_to_bf16(static_cast<float>(total))};
  } else {
    return static_cast<To>(total);
  }
}

template <bool largest>
struct FloatExtreme : Plain<Extreme<float, largest>> {
  using Base = Plain<Extreme<float, largest>>;
  const simd::ReduceLoops* loops = &simd::reduce_loops();

  float run(const float* x, int64_t n, int64_t stride, int64_t out) const {
    if (stride != 1) return Base::run(x, n, stride, out);
    return largest ? loops->largest(x, n) : loops->smallest(x, n);
  }

  void rows(float* acc, const ReduceRows<float>& r) const {
    if (r.stride != 1) return Base::rows(acc, r);
    const auto loop = largest ? loops->largest_rows : loops->smallest_rows;
    loop(acc, r.x, r.row_stride, r.rows, r.columns);
  }
};

// The result has the type of the totals, or the same kind with 32 bits.
template <typename Operation, typename Narrow = typename Operation::Total>
Prepared reduce(const Call& call, Operation operation, double divisor = 1) {
  using Total = typename Operation::Total;
  const ReducePlan plan(call.in(0), ops::reduced_dims({call.op}, call.in(0)));
  const Reduction<Operation> reduction(plan, operation);
  const bool narrow = ir::item_bytes(call.out().dtype) < static_cast<int64_t>(sizeof(Total));
  const auto run = [reduction, divisor, narrow](const Args& args) {
    const auto finish = [out = args.outputs[0], divisor, narrow](int64_t i, Total total) {
      if constexpr (std::is_same_v<Total, double>) total /= divisor;
      if (narrow) {
        static_cast<Narrow*>(out)[i] = rounded<Narrow>(total);
      } else {
        static_cast<Total*>(out)[i] = total;
      }
    };
    reduction.run(args.in<typename Operation::In>(0), args.scratch, args.threads, finish);
  };
  return {run, reduction.scratch_bytes()};
}

template <template <typename, typename> typename Fold>
Prepared sum_like(const Call& call, double divisor) {
  const ir::DType out = call.out().dtype;
  USER_CHECK(is_float(out) || out == DType::i32 || out == DType::i64, "[", call.op.name,
             "] cannot make a result of ", name_of(out),
             ". Ask for a float dtype, i32 or i64 and cast the result.");
  return with_number_type(call.in(0).dtype, [&]<typename T>(T) {
    if (!is_float(out)) return reduce<Plain<Fold<T, int64_t>>, int32_t>(call, {});
    using Operation = Fold<T, double>;
    if constexpr (std::is_same_v<Operation, Sum<float, double>>) {
      return reduce<FloatSum<float>, float>(call, {}, divisor);
    } else {
      return reduce<Plain<Operation>, float>(call, {}, divisor);
    }
  });
}

Prepared sum(const Call& call) { return sum_like<Sum>(call, 1); }
Prepared prod(const Call& call) { return sum_like<Product>(call, 1); }

double mean_divisor(const Call& call) {
  const int64_t outputs = call.out().numel();
  return outputs == 0 ? 1 : static_cast<double>(call.in(0).numel() / outputs);
}

Prepared mean(const Call& call) { return sum_like<Sum>(call, mean_divisor(call)); }

// Of 16-bit floats to the same type, others not.
Prepared float16_sum_like(const Call& call, double divisor) {
  if (call.in(0).dtype != call.out().dtype) return {};
  const auto of = [&]<typename E>(E) { return reduce<FloatSum<E>, E>(call, {}, divisor); };
  return call.in(0).dtype == DType::f16 ? of(simd::F16{}) : of(simd::BF16{});
}
Prepared float16_sum(const Call& call) { return float16_sum_like(call, 1); }
Prepared float16_mean(const Call& call) { return float16_sum_like(call, mean_divisor(call)); }

template <bool largest>
Prepared extreme(const Call& call) {
  return with_number_type(call.in(0).dtype, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, float>) {
      return reduce(call, FloatExtreme<largest>{});
    } else {
      return reduce(call, Plain<Extreme<T, largest>>{});
    }
  });
}

// Sum of e^(x - shift[out]).
template <typename T>
struct Exponentials {
  using In = T;
  using Total = double;
  const T* shift = nullptr;
  const simd::ReduceLoops* loops = &simd::reduce_loops();

  double total() const { return 0; }
  static double join(double a, double b) { return a + b; }

  double run(const T* x, int64_t n, int64_t stride, int64_t out) const {
    if constexpr (std::is_same_v<T, float>) {
      if (stride == 1) return loops->exps(x, n, shift[out]);
    }
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(x[i * stride] - shift[out]);
    return total;
  }

  void rows(double* acc, const ReduceRows<T>& r) const {
    if constexpr (std::is_same_v<T, float>) {
      if (r.stride == 1 && r.out_stride == 1) {
        return loops->exps_rows(acc, r.x, r.row_stride, r.rows, r.columns, shift + r.out);
      }
    }
    for (int64_t row = 0; row < r.rows; ++row) {
      const T* x = r.x + row * r.row_stride;
      for (int64_t i = 0; i < r.columns; ++i) {
        acc[i] += std::exp(x[i * r.stride] - shift[r.out + i * r.out_stride]);
      }
    }
  }
};

// The largest entries first, so that no power overflows.
template <typename T, typename Largest>
Prepared logsumexp_typed(const Call& call) {
  const ReducePlan plan(call.in(0), ops::reduced_dims({call.op}, call.in(0)));
  const Reduction<Largest> largest(plan, {});
  const size_t totals =
      std::max(largest.scratch_bytes(), Reduction<Exponentials<T>>(plan, {}).scratch_bytes());
  const size_t aligned = align_up(totals);
  const auto run = [=](const Args& args) {
    auto* shift = reinterpret_cast<T*>(args.scratch + aligned);
    const T* x = args.in<T>(0);
    T* out = args.out<T>();
    largest.run(x, args.scratch, args.threads,
                [shift](int64_t i, T most) { shift[i] = std::isinf(most) ? T{0} : most; });
    Reduction<Exponentials<T>>(plan, {shift})
        .run(x, args.scratch, args.threads, [shift, out](int64_t i, double total) {
          out[i] = static_cast<T>(std::log(total) + shift[i]);
        });
  };
  return {run, aligned + static_cast<size_t>(plan.outputs) * sizeof(T)};
}

Prepared logsumexp(const Call& call) {
  if (call.in(0).dtype == DType::f64) {
    return logsumexp_typed<double, Plain<Extreme<double, true>>>(call);
  }
  return logsumexp_typed<float, FloatExtreme<true>>(call);
}

template <bool every>
Prepared truth(const Call& call) {
  return with_number_type(call.in(0).dtype,
                   [&]<typename T>(T) { return reduce(call, Plain<Truth<T, every>>{}); });
}

KERNEL("sum", sum)
HALF_KERNEL("sum", float16_sum)
KERNEL("mean", mean)
HALF_KERNEL("mean", float16_mean)
KERNEL("prod", prod)
KERNEL("amax", extreme<true>)
KERNEL("amin", extreme<false>)
KERNEL("logsumexp", logsumexp)
KERNEL("any", truth<false>)
KERNEL("all", truth<true>)

}  // namespace

}  // namespace poptorch::kernels
