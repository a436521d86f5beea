// Kernels of group norm.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/norm/factors.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "ops/kernel.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

// A tensor as [batch, groups, depth, inner]: each group is normalized, each channel scaled.
struct Groups {
  int64_t batch, groups, depth, inner;

  explicit Groups(const Call& call) {
    batch = call.attrs().get_int(ir::attr::N);
    groups = call.attrs().get_int(ir::attr::group);
    depth = call.attrs().get_int(ir::attr::C) / groups;
    inner = call.attrs().get_int(ir::attr::HxW);
  }
  int64_t channels() const { return groups * depth; }
  int64_t per_group() const { return depth * inner; }

  // fn(unit, group): unit counts all groups of all samples.
  void for_each(int threads, const auto& fn) const {
    if (per_group() == 0) return;
    const int64_t grain = std::max<int64_t>(8192 / per_group(), 1);
    parallel_for(threads, batch * groups, grain, [&](int64_t unit) { fn(unit, unit % groups); });
  }
};

Prepared group_norm(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Groups s(call);
    const double eps = call.attrs().get_float(ir::attr::eps);
    return {[s, eps, &loops = rows<T>()](const Args& args) {
      const T *weight = args.in<T>(1), *bias = args.in<T>(2);
      if (s.per_group() == 0) {
        const int64_t units = s.batch * s.groups;
        std::fill_n(args.out<T>(1), units, T{0});
        std::fill_n(args.out<T>(2), units, std::numeric_limits<T>::quiet_NaN());
      }
      s.for_each(args.threads, [&](int64_t unit, int64_t group) {
        const int64_t at = unit * s.per_group();
        const Moments m = loops.moments(args.in<T>(0) + at, s.per_group());
        const double rstd = 1 / std::sqrt(m.squares / m.count + eps);
        args.out<T>(1)[unit] = static_cast<T>(m.mean);
        args.out<T>(2)[unit] = static_cast<T>(rstd);
        for (int64_t d = 0; d < s.depth; ++d) {
          const int64_t channel = group * s.depth + d, from = at + d * s.inner;
          const double scale = weight == nullptr ? rstd : rstd * weight[channel];
          loops.affine(args.in<T>(0) + from, args.out<T>(0) + from, s.inner,
                       factors_of(static_cast<T>(m.mean), static_cast<T>(scale),
                                  bias == nullptr ? T{0} : bias[channel]));
        }
      });
    }};
  });
}

template <typename T>
struct GroupNormBackward {
  Groups s;
  bool wants[3];
  const Rows<T>& loops = rows<T>();

  // Sums of each channel of the unit, and from them the gradient of the input.
  void run_unit(const Args& args, GradSums* sums, int64_t unit, int64_t group) const {
    const T *g = args.in<T>(0), *x = args.in<T>(1), *weight = args.in<T>(4);
    const T mean = args.in<T>(2)[unit];
    const double rstd = args.in<T>(3)[unit];
    const auto weight_of = [&](int64_t d) -> double {
      return weight == nullptr ? 1 : weight[group * s.depth + d];
    };
    GradSums all;
    for (int64_t d = 0; d < s.depth; ++d) {
      const int64_t row = unit * s.depth + d, at = row * s.inner;
      sums[row] = loops.grad_sums(g + at, x + at, s.inner, mean);
      all.plain += weight_of(d) * sums[row].plain;
      all.times_x += weight_of(d) * sums[row].times_x;
    }
    if (!wants[0]) return;
    const double n = static_cast<double>(s.per_group());
    for (int64_t d = 0; d < s.depth; ++d) {
      const int64_t at = (unit * s.depth + d) * s.inner;
      loops.grad_affine(g + at, x + at, args.out<T>(0) + at, s.inner,
                        {mean, static_cast<T>(rstd * weight_of(d)),
                         static_cast<T>(-rstd * rstd * rstd * all.times_x / n),
                         static_cast<T>(-rstd * all.plain / n)});
    }
  }

  void run(const Args& args) const {
    auto* sums = reinterpret_cast<GradSums*>(args.scratch);
    s.for_each(args.threads,
               [&](int64_t unit, int64_t group) { run_unit(args, sums, unit, group); });
    for (int64_t channel = 0; channel < s.channels(); ++channel) {
      double weight = 0, bias = 0;
      for (int64_t n = 0; n < s.batch; ++n) {
        // Of nothing the deviation is NaN, and so is what is multiplied with it.
        const GradSums part = s.inner > 0 ? sums[n * s.channels() + channel] : GradSums{};
        const bool mixes = MUTANT(group_norm_mixes_groups);
        const int64_t group = mixes ? channel % s.groups : channel / s.depth;
        weight += part.times_x * args.in<T>(3)[n * s.groups + group];
        bias += part.plain;
      }
      if (wants[1]) args.out<T>(1)[channel] = static_cast<T>(weight);
      if (wants[2]) args.out<T>(2)[channel] = static_cast<T>(bias);
    }
  }
};

Prepared group_norm_backward(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const std::vector<bool> mask = call.attrs().get_bools(ir::attr::output_mask);
    const GroupNormBackward<T> norm{Groups(call), {mask[0], mask[1], mask[2]}};
    const int64_t rows = norm.s.batch * norm.s.channels();
    return {[norm](const Args& args) { norm.run(args); },
            static_cast<size_t>(rows) * sizeof(GradSums)};
  });
}

}  // namespace

KERNEL("native_group_norm", group_norm)
KERNEL("native_group_norm_backward", group_norm_backward)

}  // namespace poptorch::kernels
