// Kernels of scaled dot product attention: rows of scores of one head at a time, in scratch.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention/parts.h"
#include "kernels/float16.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

template <typename E>
const E* head_of(const Args& args, size_t operand, const Heads& heads, int64_t head) {
  return args.in<E>(operand) + heads.offsets[head];
}

// -- forward --

template <typename E>
struct Forward {
  using T = simd::NumberOf<E>;
  Scores<E> scores;
  Heads v;

  explicit Forward(const Call& call) : scores(call, 0, 4, false), v(call.in(2)) {}

  void run_block(const Args& args, const Block& b, const Buffers<E>& buffers) const {
    const Sizes& s = scores.sizes;
    scores.compute(args, b, buffers.scores);
    T* logsumexp = args.out<T>(1) + b.head * s.queries;
    for (int64_t i = b.first; i < b.first + b.rows; ++i) {
      const ScoreRow<T> row = scores.row(args, b, i, buffers);
      const int64_t columns = s.columns_of(i);
      logsumexp[i] = scores.loops.attention_softmax(row, columns);
      std::fill(row.scores + columns, row.scores + b.columns, T{0});
      put(row.scores, buffers.softmax + (i - b.first) * s.row_stride(), b.columns);
    }
    E* out = args.out<E>(0) + (b.head * s.queries + b.first) * s.value_features;
    T* computed = computed_of(out, buffers.rows);
    scores.multiply({.m = b.rows,
                     .n = s.value_features,
                     .k = b.columns,
                     .trans_b = v.layout.transposed,
                     .lda = s.row_stride(),
                     .ldb = v.layout.leading,
                     .ldc = std::max<int64_t>(s.value_features, 1)},
                    buffers.softmax, head_of<E>(args, 2, v, b.head), computed);
    put(computed, out, b.rows * s.value_features);
  }

  void run(const Args& args) const {
    const Sizes& s = scores.sizes;
    const int64_t blocks = s.blocks();
    const bool nested = omp_in_parallel();
    parallel_for(args.threads, s.heads * blocks, s.grain(), [&](int64_t begin, int64_t end) {
      const Buffers<E> buffers = scores.buffers(args, nested ? 0 : omp_get_thread_num());
      for (int64_t i = begin; i < end; ++i) {
        run_block(args, s.block(i / blocks, i % blocks), buffers);
      }
    });
  }
};

// -- backward --

template <typename E>
struct Backward {
  using T = simd::NumberOf<E>;
  Scores<E> scores;
  Heads grad, q, k, v;
  ir::Dims logsumexp_strides;
  int64_t heads_per_sample;

  explicit Backward(const Call& call)
      : scores(call, 1, 6, true),
        grad(call.in(0)),
        q(call.in(1)),
        k(call.in(2)),
        v(call.in(3)),
        logsumexp_strides(call.in(5).actual_strides()),
        heads_per_sample(std::max<int64_t>(call.in(5).sizes[1], 1)) {}

  T logsumexp(const Args& args, int64_t head, int64_t row) const {
    return args.in<T>(5)[head / heads_per_sample * logsumexp_strides[0] +
                         head % heads_per_sample * logsumexp_strides[1] +
                         row * logsumexp_strides[2]];
  }

  // The softmax of a row with NaN is NaN in hidden columns, too: then a block has all columns.
  Block with_hidden_nan(const Args& args, Block b) const {
    for (int64_t i = b.first; i < b.first + b.rows; ++i) {
      if (std::isnan(logsumexp(args, b.head, i))) b.columns = scores.sizes.keys;
    }
    return b;
  }

  // Gradients of the scores, and the softmax as it met the values.
  void run_rows(const Args& args, const Block& b, const Buffers<E>& buffers) const {
    const Sizes& s = scores.sizes;
    for (int64_t i = b.first; i < b.first + b.rows; ++i) {
      const ScoreRow<T> row = scores.row(args, b, i, buffers);
      const int64_t columns = s.columns_of(i), at = (i - b.first) * s.row_stride();
      const T of_row = logsumexp(args, b.head, i), hidden = std::isnan(of_row) ? of_row : T{0};
      scores.loops.attention_gradient(row, columns, of_row);
      std::fill(row.scores + columns, row.scores + b.columns, hidden);
      std::fill(row.grads + columns, row.grads + b.columns, hidden);
      put(row.scores, buffers.softmax + at, b.columns);
      put(row.grads, buffers.score_grads + at, b.columns);
    }
  }

  // Adds to dk and dv.
  void run_block(const Args& args, const Block& b, const Buffers<E>& buffers, T* dk,
                 T* dv) const {
    const Sizes& s = scores.sizes;
    const E* g = head_of<E>(args, 0, grad, b.head) + grad.layout.row_offset(b.first);
    const E* of_q = head_of<E>(args, 1, q, b.head) + q.layout.row_offset(b.first);
    E* dq = args.out<E>(0) + (b.head * s.queries + b.first) * s.features;
    T* computed_dq = computed_of(dq, buffers.rows);
    const int64_t stride = s.row_stride();
    scores.multiply({.m = b.rows, .n = b.columns, .k = s.value_features,
                     .trans_a = grad.layout.transposed, .trans_b = !v.layout.transposed,
                     .lda = grad.layout.leading, .ldb = v.layout.leading, .ldc = stride},
                    g, head_of<E>(args, 3, v, b.head), buffers.grads);
    scores.compute(args, b, buffers.scores);
    run_rows(args, b, buffers);
    const int64_t value_stride = std::max<int64_t>(s.value_features, 1);
    const int64_t feature_stride = std::max<int64_t>(s.features, 1);
    scores.multiply({.m = b.columns, .n = s.value_features, .k = b.rows,
                     .trans_a = true, .trans_b = grad.layout.transposed,
                     .lda = stride, .ldb = grad.layout.leading, .ldc = value_stride, .beta = 1},
                    buffers.softmax, g, dv);
    scores.multiply({.m = b.rows, .n = s.features, .k = b.columns,
                     .trans_b = k.layout.transposed, .lda = stride, .ldb = k.layout.leading,
                     .ldc = feature_stride, .alpha = s.scale},
                    buffers.score_grads, head_of<E>(args, 2, k, b.head), computed_dq);
    put(computed_dq, dq, b.rows * s.features);
    scores.multiply({.m = b.columns, .n = s.features, .k = b.rows,
                     .trans_a = true, .trans_b = q.layout.transposed,
                     .lda = stride, .ldb = q.layout.leading, .ldc = feature_stride,
                     .alpha = s.scale, .beta = 1},
                    buffers.score_grads, of_q, dk);
  }

  void run_head(const Args& args, int64_t head, const Buffers<E>& buffers) const {
    const Sizes& s = scores.sizes;
    const int64_t features = s.keys * s.features, value_features = s.keys * s.value_features;
    E *dk = args.out<E>(1) + head * features, *dv = args.out<E>(2) + head * value_features;
    T *computed_dk = computed_of(dk, buffers.dk), *computed_dv = computed_of(dv, buffers.dv);
    std::fill(computed_dk, computed_dk + features, T{0});
    std::fill(computed_dv, computed_dv + value_features, T{0});
    for (int64_t i = 0; i < s.blocks(); ++i) {
      const Block b = with_hidden_nan(args, s.block(head, i));
      run_block(args, b, buffers, computed_dk, computed_dv);
    }
    put(computed_dk, dk, features);
    put(computed_dv, dv, value_features);
  }

  void run(const Args& args) const {
    const bool nested = omp_in_parallel();
    // The blocks of a head add to the same gradients of keys and values: one after the other.
    parallel_for(args.threads, scores.sizes.heads, 1, [&](int64_t begin, int64_t end) {
      const Buffers<E> buffers = scores.buffers(args, nested ? 0 : omp_get_thread_num());
      for (int64_t head = begin; head < end; ++head) run_head(args, head, buffers);
    });
  }
};

template <typename Kernel>
Prepared prepared(const Kernel& kernel, const Call& call) {
  return {[kernel](const Args& args) { kernel.run(args); },
          kernel.scores.scratch_bytes(call.threads), std::string(kernel.scores.algorithm())};
}

template <template <typename> typename Kernel, size_t q>
Prepared attention(const Call& call) {
  const ir::DType dtype = call.in(q).dtype;
  if (ir::is_half(dtype)) {
    const Kernel<uint16_t> kernel(call);
    const bool has_unit = kernel.scores.has_unit();
    return has_unit ? prepared(kernel, call) : prepare_upcast(call, attention<Kernel, q>);
  }
  return with_float_type(call, dtype, [&]<typename T>(T) -> Prepared {
    return prepared(Kernel<T>(call), call);
  });
}

}  // namespace

KERNEL("attention", (attention<Forward, 0>), true)
KERNEL("attention_backward", (attention<Backward, 1>), true)

}  // namespace poptorch::kernels
