// Kernels of the negative log likelihood.
#include <algorithm>

#include "kernels/loss/loss.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using enum ops::Reduction;

constexpr int64_t part_elements = 2048;

// Scores as [batch, classes, inner], targets as [batch, inner].
struct Scores {
  int64_t batch, inner;
  Classes classes;
  ops::Reduction reduction;

  Scores(const Call& call, const ir::Type& x) : reduction(ops::reduction_of({call.op})) {
    const bool one_sample = x.rank() == 1;
    batch = one_sample ? 1 : x.sizes[0];
    classes = {x.sizes[one_sample ? 0 : 1], call.attrs().get_int(ir::attr::ignore_index)};
    inner = one_sample ? 1 : ir::product({x.sizes.begin() + 2, x.sizes.end()});
    if (one_sample && reduction == none) reduction = sum;  // of one number
  }

  int64_t count() const { return batch * inner; }
  int64_t parts() const { return ceil_div(count(), part_elements); }

  // Calls fn(i, at, target) for the targets i of part `part` that count, `at` being the place of
  // their score.
  template <typename Index, typename Fn>
  void for_part(int64_t part, const Index* targets, IndexGuard& guard, const Fn& fn) const {
    const int64_t begin = part * part_elements;
    for (int64_t i = begin; i < std::min(begin + part_elements, count()); ++i) {
      const int64_t target = classes.of(targets[i], i, guard);
      if (target >= 0) fn(i, (i / inner * classes.count + target) * inner + i % inner, target);
    }
  }
};

template <typename T, typename Index>
void run_forward(const Args& args, const Scores& s) {
  const T *x = args.in<T>(0), *weight = args.in<T>(2);
  const Index* targets = args.in<Index>(1);
  T* out = args.out<T>(0);
  auto* parts = reinterpret_cast<Likelihood*>(args.scratch);
  IndexGuard guard;
  parallel_for(args.threads, s.parts(), 4, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      const int64_t begin = part * part_elements;
      if (s.reduction == none) {
        std::fill(out + begin, out + std::min(begin + part_elements, s.count()), T{0});
      }
      Likelihood sums;
      s.for_part(part, targets, guard, [&](int64_t i, int64_t at, int64_t target) {
        const T w = weight == nullptr ? T{1} : weight[target];
        if (s.reduction == none) out[i] = -w * x[at];
        sums.loss -= static_cast<double>(w) * x[at];
        sums.weight += w;
      });
      parts[part] = sums;
    }
  });
  s.classes.check("nll_loss", guard, targets);
  if (s.reduction == none) {
    *args.out<T>(1) = 0;
    return;
  }
  finish(parts, s.parts(), s.reduction, out, args.out<T>(1));
}

template <typename T, typename Index>
void run_backward(const Args& args, const Scores& s) {
  const T *grad = args.in<T>(0), *weight = args.in<T>(3);
  const Index* targets = args.in<Index>(2);
  T* dx = args.out<T>(0);
  fill_zero(dx, s.count() * s.classes.count * static_cast<int64_t>(sizeof(T)), args.threads);
  const T scale = s.reduction == mean ? 1 / *args.in<T>(4) : T{1};
  IndexGuard guard;
  parallel_for(args.threads, s.parts(), 4, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      s.for_part(part, targets, guard, [&](int64_t i, int64_t at, int64_t target) {
        const T w = weight == nullptr ? T{1} : weight[target];
        dx[at] = -w * scale * grad[s.reduction == none ? i : 0];
      });
    }
  });
  s.classes.check("nll_loss_backward", guard, targets);
}

template <bool backward>
Prepared nll_loss(const Call& call) {
  const size_t first = backward ? 1 : 0;
  const ir::Type& x = call.in(first);
  const Scores s(call, x);
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    if (backward) return {[s](const Args& args) { run_backward<T, Index>(args, s); }};
    return {[s](const Args& args) { run_forward<T, Index>(args, s); },
            static_cast<size_t>(s.parts()) * sizeof(Likelihood)};
  };
  return with_float_and_index_type(call, x.dtype, call.in(first + 1).dtype, prepare);
}

}  // namespace

KERNEL("nll_loss", nll_loss<false>)
KERNEL("nll_loss_backward", nll_loss<true>)

}  // namespace poptorch::kernels
