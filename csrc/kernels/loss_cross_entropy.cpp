// Kernels of cross entropy: softmax and likelihood in one pass over the scores, both ways.
#include <algorithm>

#include "kernels/loss.h"
#include "kernels/reduction_types.h"
#include "kernels/rows/rows.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;
using enum ops::Reduction;

constexpr int64_t grain_elements = 4096;  // worth some 5 us

struct Scores {
  int64_t samples;
  Classes classes;
  ops::Reduction reduction;

  Scores(const Call& call, const ir::Type& x)
      : samples(x.sizes[0]),
        classes{x.sizes[1], call.attrs().get_int("ignore_index")},
        reduction(ops::reduction_of({call.op})) {}

  int64_t grain() const { return std::max<int64_t>(grain_elements / (classes.count + 1), 1); }
};

// Calls row(i, target) for each sample; a target that does not count, or that is no class, is -1.
template <typename Index, typename Row>
void for_rows(const char* op, const Scores& s, const Index* targets, int threads, const Row& row) {
  IndexGuard guard;
  parallel_for(threads, s.samples, s.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i, s.classes.of(targets[i], i, guard));
  });
  s.classes.check(op, guard, targets);
}

template <typename T, typename Index>
void run_forward(const Args& args, const Scores& s, const Rows<T>& loops) {
  const T *x = args.in<T>(0), *weight = args.in<T>(2);
  T *out = args.out<T>(0), *sums = args.out<T>(2);
  auto* each = reinterpret_cast<Likelihood*>(args.scratch);
  const auto row = [&](int64_t i, int64_t target) {
    const T* scores = x + i * s.classes.count;
    T largest;
    const T log_sum = loops.log_sum(scores, s.classes.count, &largest);
    sums[2 * i] = largest;
    sums[2 * i + 1] = log_sum;
    const T w = target < 0 ? T{0} : weight == nullptr ? T{1} : weight[target];
    const T loss = target < 0 ? T{0} : -w * (scores[target] - largest - log_sum);
    each[i] = {static_cast<double>(loss), static_cast<double>(w)};
    if (s.reduction == none) out[i] = loss;
  };
  for_rows("cross_entropy", s, args.in<Index>(1), args.threads, row);
  if (s.reduction == none) {
    *args.out<T>(1) = 0;
    return;
  }
  finish(each, s.samples, s.reduction, out, args.out<T>(1));
}

template <typename T, typename Index>
void run_backward(const Args& args, const Scores& s, const Rows<T>& loops) {
  const T *grad = args.in<T>(0), *x = args.in<T>(1), *weight = args.in<T>(3);
  const T* sums = args.in<T>(5);
  T* dx = args.out<T>(0);
  const T factor = s.reduction == mean ? 1 / *args.in<T>(4) : T{1};
  const auto row = [&](int64_t i, int64_t target) {
    T* to = dx + i * s.classes.count;
    if (target < 0) return static_cast<void>(std::fill_n(to, s.classes.count, T{0}));
    const T w = weight == nullptr ? T{1} : weight[target];
    const T scale = w * factor * grad[s.reduction == none ? i : 0];
    loops.scaled_softmax(x + i * s.classes.count, to, s.classes.count,
                         {sums[2 * i], sums[2 * i + 1], scale});
    to[target] -= scale;
  };
  for_rows("cross_entropy_backward", s, args.in<Index>(2), args.threads, row);
}

template <bool backward>
Prepared cross_entropy(const Call& call) {
  const size_t first = backward ? 1 : 0;
  const ir::Type& x = call.in(first);
  const Scores s(call, x);
  return with_float_type(call, x.dtype, [&]<typename T>(T) {
    return with_index_type(call, call.in(first + 1).dtype, [&]<typename Index>(Index) -> Prepared {
      const Rows<T>& loops = rows<T>();
      if (backward) {
        return {[s, &loops](const Args& args) { run_backward<T, Index>(args, s, loops); }};
      }
      return {[s, &loops](const Args& args) { run_forward<T, Index>(args, s, loops); },
              static_cast<size_t>(s.samples) * sizeof(Likelihood)};
    });
  });
}

}  // namespace

KERNEL("cross_entropy", cross_entropy<false>)
KERNEL("cross_entropy_backward", cross_entropy<true>)

}  // namespace poptorch::kernels
