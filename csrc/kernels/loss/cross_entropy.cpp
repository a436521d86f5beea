// Kernels of cross entropy: softmax and likelihood in one pass over the scores, both ways.
#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "kernels/float16_blocks.h"
#include "kernels/loss/loss.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "ops/kernel.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using enum ops::Reduction;

constexpr int64_t grain_elements = 4096;  // worth some 5 us

struct Scores {
  int64_t samples;
  Classes classes;
  ops::Reduction reduction;
  Upcast upcast;  // of 16-bit floats: a row at a time
  Downcast downcast;

  Scores(const Call& call, const ir::Type& x)
      : samples(x.sizes[0]),
        classes{x.sizes[1], call.attrs().get_int(ir::attr::ignore_index)},
        reduction(ops::reduction_of({call.op})),
        upcast(upcast_from(x.dtype)),
        downcast(downcast_to(x.dtype)) {}

  int64_t grain() const { return std::max<int64_t>(grain_elements / (classes.count + 1), 1); }
  // Of the row that each thread has upcast.
  size_t row_bytes() const {
    return upcast == nullptr ? 0 : static_cast<size_t>(align_up(classes.count * 4));
  }
};

// Numbers of a tensor: T, or 16-bit floats.
template <typename T>
struct Numbers {
  const void* memory;
  Upcast upcast;

  bool is_absent() const { return memory == nullptr; }
  T operator[](int64_t i) const {
    if (upcast == nullptr) return static_cast<const T*>(memory)[i];
    float wide;
    upcast(static_cast<const uint16_t*>(memory) + i, &wide, 1);
    return wide;
  }
  // n of them from `first` on: where they lie, or upcast in `own`.
  const T* row(int64_t first, int64_t n, T* own) const {
    if constexpr (std::is_same_v<T, float>) {
      if (upcast != nullptr) {
        upcast(static_cast<const uint16_t*>(memory) + first, own, n);
        return own;
      }
    }
    return static_cast<const T*>(memory) + first;
  }
};

// Rounds them where they are to be 16-bit floats.
template <typename T>
void store(const Scores& s, const T* from, int64_t n, void* to, int64_t first) {
  if constexpr (std::is_same_v<T, float>) {
    if (s.downcast != nullptr) return s.downcast(from, static_cast<uint16_t*>(to) + first, n);
  }
  std::copy_n(from, n, static_cast<T*>(to) + first);
}

// Calls row(i, target, own) for each sample; a target that does not count, or is not a class, is
// -1. `own`: memory of the thread for a row of them.
template <typename T, typename Index, typename Row>
void for_rows(const char* op, const Scores& s, const Index* targets, std::byte* own_rows,
              int threads, const Row& row) {
  IndexGuard guard;
  const bool nested = omp_in_parallel();
  parallel_for(threads, s.samples, s.grain(), [&](int64_t begin, int64_t end) {
    const auto thread = static_cast<size_t>(nested ? 0 : omp_get_thread_num());
    T* own = reinterpret_cast<T*>(own_rows + thread * s.row_bytes());
    for (int64_t i = begin; i < end; ++i) row(i, s.classes.of(targets[i], i, guard), own);
  });
  s.classes.check(op, guard, targets);
}

template <typename T, typename Index>
void run_forward(const Args& args, const Scores& s, const Rows<T>& loops) {
  const Numbers<T> x{args.inputs[0], s.upcast}, weight{args.inputs[2], s.upcast};
  T* sums = args.out<T>(2);
  std::byte* own_rows = args.scratch;
  auto* each = reinterpret_cast<Likelihood*>(
      own_rows + static_cast<size_t>(args.threads) * s.row_bytes());
  const auto row = [&](int64_t i, int64_t target, T* own) {
    const T* scores = x.row(i * s.classes.count, s.classes.count, own);
    T largest;
    const T log_sum = loops.log_sum(scores, s.classes.count, &largest);
    sums[2 * i] = largest;
    sums[2 * i + 1] = log_sum;
    const T w = target < 0 ? T{0} : weight.is_absent() ? T{1} : weight[target];
    const T loss = target < 0 ? T{0} : -w * (scores[target] - largest - log_sum);
    each[i] = {static_cast<double>(loss), static_cast<double>(w)};
    if (s.reduction == none) store(s, &loss, 1, args.outputs[0], i);
  };
  for_rows<T>("cross_entropy", s, args.in<Index>(1), own_rows, args.threads, row);
  T loss = 0, total = 0;
  if (s.reduction != none) {
    finish(each, s.samples, s.reduction, &loss, &total);
    store(s, &loss, 1, args.outputs[0], 0);
  }
  store(s, &total, 1, args.outputs[1], 0);
}

template <typename T, typename Index>
void run_backward(const Args& args, const Scores& s, const Rows<T>& loops) {
  const Numbers<T> grad{args.inputs[0], s.upcast}, x{args.inputs[1], s.upcast};
  const Numbers<T> weight{args.inputs[3], s.upcast}, total{args.inputs[4], s.upcast};
  const T* sums = args.in<T>(5);
  const T factor = s.reduction == mean ? 1 / total[0] : T{1};
  const auto row = [&](int64_t i, int64_t target, T* own) {
    const int64_t first = i * s.classes.count;
    T* to = s.downcast != nullptr ? own : args.out<T>(0) + first;
    if (target < 0) {
      // 0 - p * 0: NaN where the row has no probabilities.
      const T nothing = (sums[2 * i] - sums[2 * i]) + (sums[2 * i + 1] - sums[2 * i + 1]);
      std::fill_n(to, s.classes.count, nothing);
    } else {
      const T w = weight.is_absent() ? T{1} : weight[target];
      const T scale = w * factor * grad[s.reduction == none ? i : 0];
      loops.scaled_softmax(x.row(first, s.classes.count, own), to, s.classes.count,
                           {sums[2 * i], sums[2 * i + 1], scale});
      to[target] -= scale;
    }
    if (s.downcast != nullptr) store(s, to, s.classes.count, args.outputs[0], first);
  };
  for_rows<T>("cross_entropy_backward", s, args.in<Index>(2), args.scratch, args.threads, row);
}

// 16-bit floats are summed in f32.
template <bool backward>
Prepared cross_entropy(const Call& call) {
  const size_t first = backward ? 1 : 0;
  const ir::Type& x = call.in(first);
  const Scores s(call, x);
  const ir::DType dtype = ir::is_half(x.dtype) ? ir::DType::f32 : x.dtype;
  const size_t own_rows = static_cast<size_t>(call.threads) * s.row_bytes();
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const Rows<T>& loops = rows<T>();
    if (backward) {
      return {[s, &loops](const Args& args) { run_backward<T, Index>(args, s, loops); }, own_rows};
    }
    return {[s, &loops](const Args& args) { run_forward<T, Index>(args, s, loops); },
            own_rows + static_cast<size_t>(s.samples) * sizeof(Likelihood)};
  };
  return with_float_and_index_type(call, dtype, call.in(first + 1).dtype, prepare);
}

}  // namespace

KERNEL("cross_entropy", cross_entropy<false>, true)
KERNEL("cross_entropy_backward", cross_entropy<true>, true)

}  // namespace poptorch::kernels
