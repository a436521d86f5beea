// var: the mean first, then the squared deviations from it, and their root, all in f64.
#include "ops/families/reduction.h"

#include <cmath>

#include "kernels/reduction/engine.h"
#include "kernels/reduction/loops.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

// Sum of the deviations (power 1) or squared deviations (power 2) from `shift[out]`; no shift: 0.
template <typename T, bool squared>
struct Moment {
  using In = T;
  using Total = double;
  const double* shift = nullptr;
  const simd::ReduceLoops* loops = &simd::reduce_loops();

  double total() const { return 0; }
  static double join(double a, double b) { return a + b; }
  static double entry(double x, double shift) { return squared ? (x - shift) * (x - shift) : x; }

  double run(const T* x, int64_t n, int64_t stride, int64_t out) const {
    const double around = squared ? shift[out] : 0;
    if constexpr (std::is_same_v<T, float>) {
      if (stride == 1) return squared ? loops->squares(x, n, around) : loops->f32.sum(x, n);
    }
    double lanes[4] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i % 4] += entry(x[i * stride], around);
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }

  void rows(double* acc, const ReduceRows<T>& r) const {
    if constexpr (std::is_same_v<T, float>) {
      if (r.stride == 1 && !squared) {
        return loops->f32.sum_rows(acc, r.x, r.row_stride, r.rows, r.columns);
      }
      if (r.stride == 1 && r.out_stride == 1) {
        return loops->squares_rows(acc, r.x, r.row_stride, r.rows, r.columns, shift + r.out);
      }
    }
    for (int64_t row = 0; row < r.rows; ++row) {
      const T* x = r.x + row * r.row_stride;
      for (int64_t i = 0; i < r.columns; ++i) {
        acc[i] += entry(x[i * r.stride], squared ? shift[r.out + i * r.out_stride] : 0);
      }
    }
  }
};

Prepared var(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    using Sum = Moment<T, false>;
    using Squares = Moment<T, true>;
    const ReducePlan plan(call.in(0), ops::reduced_dims({call.op}, call.in(0)));
    const auto count = static_cast<double>(plan.count);
    const double correction = call.attrs().maybe_float(ir::attr::correction).value_or(1);
    const double divisor = count == 0 ? 0.0 : std::max(0.0, count - correction);
    const bool root = call.attrs().get_bool(ir::attr::root, false);
    const size_t totals = align_up(Reduction<Sum>(plan, {}).scratch_bytes());
    const auto run = [=](const Args& args) {
      auto* mean = reinterpret_cast<double*>(args.scratch + totals);
      const T* x = args.in<T>(0);
      Reduction<Sum>(plan, {}).run(x, args.scratch, args.threads,
                                   [&](int64_t i, double total) { mean[i] = total / count; });
      Reduction<Squares>(plan, {mean})
          .run(x, args.scratch, args.threads, [&](int64_t i, double total) {
            const double found = total / divisor;
            args.out<T>(0)[i] = static_cast<T>(root ? std::sqrt(found) : found);
          });
    };
    return {run, totals + static_cast<size_t>(plan.outputs) * sizeof(double)};
  });
}

KERNEL("var", var)

}  // namespace

}  // namespace poptorch::kernels
