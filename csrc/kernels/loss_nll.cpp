// Kernels of the negative log likelihood.
#include <algorithm>
#include <atomic>

#include "kernels/reduction_types.h"
#include "kernels/shape_copy.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

enum Reduction : int64_t { none, mean, sum };

constexpr int64_t part_elements = 2048;

struct Sums {
  double loss = 0, weight = 0;
};

// Scores as [batch, classes, inner], targets as [batch, inner].
struct Likelihood {
  int64_t batch, classes, inner, reduction, ignored;

  Likelihood(const Call& call, const ir::Type& x) {
    const bool one_sample = x.rank() == 1;
    batch = one_sample ? 1 : x.sizes[0];
    classes = x.sizes[one_sample ? 0 : 1];
    inner = one_sample ? 1 : ir::product({x.sizes.begin() + 2, x.sizes.end()});
    reduction = call.attrs().get_int("reduction");
    if (one_sample && reduction == none) reduction = sum;  // of one number
    ignored = call.attrs().get_int("ignore_index");
  }

  int64_t count() const { return batch * inner; }
  int64_t parts() const { return (count() + part_elements - 1) / part_elements; }

  // Calls fn(i, at, target) for the targets i of part `part` that count, `at` being the place of
  // their score. `bad` becomes the place of a target that is no class.
  template <typename Index, typename Fn>
  void for_part(int64_t part, const Index* targets, std::atomic<int64_t>& bad,
                const Fn& fn) const {
    const int64_t begin = part * part_elements;
    for (int64_t i = begin; i < std::min(begin + part_elements, count()); ++i) {
      const int64_t target = targets[i];
      if (target == ignored) continue;
      if (target < 0 || target >= classes) {
        bad = i;
        continue;
      }
      fn(i, (i / inner * classes + target) * inner + i % inner, target);
    }
  }
};

// An exception must not leave a parallel region: the place of a bad target is kept and reported
// afterwards.
template <typename Index>
void check(const char* op, const std::atomic<int64_t>& bad, const Index* targets,
           const Likelihood& s) {
  const int64_t i = bad;
  USER_CHECK(i < 0, "[", op, "] target ", static_cast<int64_t>(targets[i]), " at flat index ", i,
             " is no class: there are ", s.classes, ". Use 0 to ", s.classes - 1,
             ", or ignore_index (", s.ignored, ").");
}

template <typename T, typename Index>
void run_forward(const Args& args, const Likelihood& s) {
  const T *x = args.in<T>(0), *weight = args.in<T>(2);
  const Index* targets = args.in<Index>(1);
  T* out = args.out<T>(0);
  auto* parts = reinterpret_cast<Sums*>(args.scratch);
  std::atomic<int64_t> bad = -1;
  parallel_for(args.threads, s.parts(), 4, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      const int64_t begin = part * part_elements;
      if (s.reduction == none) {
        std::fill(out + begin, out + std::min(begin + part_elements, s.count()), T{0});
      }
      Sums sums;
      s.for_part(part, targets, bad, [&](int64_t i, int64_t at, int64_t target) {
        const T w = weight == nullptr ? T{1} : weight[target];
        if (s.reduction == none) out[i] = -w * x[at];
        sums.loss -= static_cast<double>(w) * x[at];
        sums.weight += w;
      });
      parts[part] = sums;
    }
  });
  check("nll_loss", bad, targets, s);
  if (s.reduction == none) {
    *args.out<T>(1) = 0;
    return;
  }
  Sums all;
  for (int64_t part = 0; part < s.parts(); ++part) {
    all.loss += parts[part].loss;
    all.weight += parts[part].weight;
  }
  *out = static_cast<T>(s.reduction == mean ? all.loss / all.weight : all.loss);
  *args.out<T>(1) = static_cast<T>(all.weight);
}

template <typename T, typename Index>
void run_backward(const Args& args, const Likelihood& s) {
  const T *grad = args.in<T>(0), *weight = args.in<T>(3);
  const Index* targets = args.in<Index>(2);
  T* dx = args.out<T>(0);
  fill_zero(dx, s.count() * s.classes * static_cast<int64_t>(sizeof(T)), args.threads);
  const T scale = s.reduction == mean ? 1 / *args.in<T>(4) : T{1};
  std::atomic<int64_t> bad = -1;
  parallel_for(args.threads, s.parts(), 4, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      s.for_part(part, targets, bad, [&](int64_t i, int64_t at, int64_t target) {
        const T w = weight == nullptr ? T{1} : weight[target];
        dx[at] = -w * scale * grad[s.reduction == none ? i : 0];
      });
    }
  });
  check("nll_loss_backward", bad, targets, s);
}

template <bool backward>
Prepared nll_loss(const Call& call) {
  const size_t first = backward ? 1 : 0;
  const ir::Type& x = call.in(first);
  const Likelihood s(call, x);
  return with_float_type(call, x.dtype, [&]<typename T>(T) {
    return with_index_type(call, call.in(first + 1).dtype, [&]<typename Index>(Index) -> Prepared {
      if (backward) return {[s](const Args& args) { run_backward<T, Index>(args, s); }};
      return {[s](const Args& args) { run_forward<T, Index>(args, s); },
              static_cast<size_t>(s.parts()) * sizeof(Sums)};
    });
  });
}

}  // namespace

KERNEL("nll_loss", nll_loss<false>)
KERNEL("nll_loss_backward", nll_loss<true>)

}  // namespace poptorch::kernels
