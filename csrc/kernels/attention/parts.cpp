#include "kernels/attention/parts.h"

#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

// Scores of a block stay about in the second-level cache; of fewer rows the products would be slow,
// for which k and v are packed.
constexpr int64_t block_elements = 131072;

Mask mask_of(const ops::Call& call, size_t operand, const ir::Dims& scores) {
  Mask mask;
  if (!call.has_in(operand)) return mask;
  const ir::Dims strides = ir::broadcast_strides(call.in(operand), scores);
  mask.present = true;
  mask.is_bool = call.in(operand).dtype == ir::DType::boolean;
  mask.row = strides[2];
  mask.column = strides[3];
  for (int64_t b = 0; b < scores[0]; ++b) {
    for (int64_t h = 0; h < scores[1]; ++h) {
      mask.offsets.push_back(b * strides[0] + h * strides[1]);
    }
  }
  return mask;
}

// The n entries of a row of the mask side by side: where they lie, or copied to `to`.
template <typename M, typename T>
const T* mask_row(const M* from, int64_t stride, int64_t n, T* to) {
  if constexpr (is_rounded<M>) {
    using Rows = simd::StridedRows;
    const Rows entries = stride == 1 ? Rows{1, n, n, n} : Rows{n, 1, stride, 1};
    upcast_rows_from(ir::DType::bf16)(from, to, entries);
    return to;
  } else {
    if (stride == 1) return from;
    for (int64_t j = 0; j < n; ++j) to[j] = from[j * stride];
    return to;
  }
}

}  // namespace

Sizes::Sizes(const ops::Call& call, const ir::Type& q, const ir::Type& k, const ir::Type& v)
    : heads(q.sizes[0] * q.sizes[1]),
      queries(q.sizes[2]),
      keys(k.sizes[2]),
      features(q.sizes[3]),
      value_features(v.sizes[3]),
      block_rows(std::clamp<int64_t>(block_elements / std::max<int64_t>(keys, 1), 16, 256)),
      is_causal(call.attrs().get_bool(ir::attr::is_causal)),
      scale(call.attrs().get_float(ir::attr::scale)) {
  // Smaller blocks leave out more of what a causal mask hides.
  if (is_causal) block_rows = std::min<int64_t>(block_rows, 64);
}

int64_t Sizes::grain() const {
  const int64_t work = std::min(block_rows, queries) * keys * (features + value_features);
  return std::max<int64_t>(gemm_grain / std::max<int64_t>(work, 1), 1);
}

template <typename E>
Scores<E>::Scores(const ops::Call& call, size_t q, size_t rng, bool differs)
    : sizes(call, call.in(q), call.in(q + 1), call.in(q + 2)),
      q_index_(q),
      rng_index_(rng),
      differs_(differs),
      q_(call.in(q)),
      k_(call.in(q + 1)),
      drops_(call.attrs().get_float(ir::attr::dropout_p) > 0),
      dropout_(call.attrs().get_float(ir::attr::dropout_p)),
      salt_(call.attrs().get_int(ir::attr::salt)),
      bytes_per_thread_(lay_out(0).second) {
  const ir::Dims& of_q = call.in(q).sizes;
  mask_ = mask_of(call, q + 3, {of_q[0], of_q[1], sizes.queries, sizes.keys});
  if constexpr (is_rounded<E>) {
    const GemmProblem problem{product(sizes.block(0, 0)), call.in(q).dtype, true};
    const GemmTable::Row& row = gemm_table().choose(problem);
    // Not by the BLAS: within a parallel region it gives other bits than outside of one.
    if (row.make != &bf16_loops_method) return;
    by_unit_ = row.make->bf16;
    algorithm_ = row.name;
  }
}

template <typename E>
Gemm Scores<E>::product(const Block& b) const {
  return {.m = b.rows,
          .n = b.columns,
          .k = sizes.features,
          .trans_a = q_.layout.transposed,
          .trans_b = !k_.layout.transposed,
          .lda = q_.layout.leading,
          .ldb = k_.layout.leading,
          .ldc = sizes.row_stride(),
          .alpha = sizes.scale};
}

template <typename E>
void Scores<E>::multiply(const Gemm& g, const E* a, const E* b, T* c) const {
  if constexpr (is_rounded<E>) {
    if (g.m > 0 && g.n > 0) by_unit_(g, a, b, c);
  } else {
    gemm_block(g, a, b, c);
  }
}

template <typename E>
void Scores<E>::compute(const ops::Args& args, const Block& b, T* out) const {
  multiply(product(b), args.in<E>(q_index_) + q_.offsets[b.head] + q_.layout.row_offset(b.first),
           args.in<E>(q_index_ + 1) + k_.offsets[b.head], out);
}

template <typename E>
ScoreRow<simd::NumberOf<E>> Scores<E>::row(const ops::Args& args, const Block& b, int64_t i,
                                           const Buffers<E>& to) const {
  const int64_t at = (i - b.first) * sizes.row_stride(), n = sizes.columns_of(i);
  ScoreRow<T> row{.scores = to.scores + at, .grads = differs_ ? to.grads + at : nullptr};
  if (mask_.present) {
    const int64_t from = mask_.offsets[b.head] + i * mask_.row;
    if (mask_.is_bool) {
      row.allowed = mask_row(args.in<uint8_t>(q_index_ + 3) + from, mask_.column, n, to.allowed);
    } else {
      row.added = mask_row(args.in<E>(q_index_ + 3) + from, mask_.column, n, to.added);
    }
  }
  if (drops_) {
    const int64_t element = (b.head * sizes.queries + i) * sizes.keys;
    const simd::Draw draw = draw_of(args.in<int32_t>(rng_index_), salt_);
    dropout_factors(random_, draw, dropout_, element, n, to.keep);
    row.keep = to.keep;
  }
  return row;
}

template <typename E>
std::pair<Buffers<E>, uintptr_t> Scores<E>::lay_out(uintptr_t scratch) const {
  const auto take = [&]<typename N>(N*& part, int64_t elements) {
    part = reinterpret_cast<N*>(scratch);
    scratch += static_cast<uintptr_t>(align_up(elements * static_cast<int64_t>(sizeof(N))));
  };
  const int64_t rows = std::min(sizes.block_rows, std::max<int64_t>(sizes.queries, 1));
  const int64_t stride = sizes.row_stride(), block = rows * stride;
  Buffers<E> out{};
  take(out.scores, block);
  take(out.softmax, is_rounded<E> ? block : 0);
  take(out.added, stride);
  take(out.keep, stride);
  take(out.allowed, stride);
  if (differs_) {
    take(out.grads, block);
    take(out.score_grads, is_rounded<E> ? block : 0);
  }
  if constexpr (is_rounded<E>) {
    take(out.rows, rows * (differs_ ? sizes.features : sizes.value_features));
    take(out.dk, differs_ ? sizes.keys * sizes.features : 0);
    take(out.dv, differs_ ? sizes.keys * sizes.value_features : 0);
  } else {
    out.softmax = out.scores;
    out.score_grads = out.grads;
  }
  return {out, scratch};
}

template <typename E>
Buffers<E> Scores<E>::buffers(const ops::Args& args, int thread) const {
  const std::byte* own = args.scratch + static_cast<size_t>(thread) * bytes_per_thread_;
  return lay_out(reinterpret_cast<uintptr_t>(own)).first;
}

template class Scores<float>;
template class Scores<double>;
template class Scores<uint16_t>;

}  // namespace poptorch::kernels
