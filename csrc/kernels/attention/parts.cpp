#include "kernels/attention/parts.h"

#include "support/align.h"

namespace poptorch::kernels {

namespace {

// Scores of a block stay in the second-level cache.
constexpr int64_t block_elements = 32768;

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
template <typename M>
const M* mask_row(const M* from, int64_t stride, int64_t n, M* to) {
  if (stride == 1) return from;
  for (int64_t j = 0; j < n; ++j) to[j] = from[j * stride];
  return to;
}

}  // namespace

Sizes::Sizes(const ops::Call& call, const ir::Type& q, const ir::Type& k, const ir::Type& v)
    : heads(q.sizes[0] * q.sizes[1]),
      queries(q.sizes[2]),
      keys(k.sizes[2]),
      features(q.sizes[3]),
      value_features(v.sizes[3]),
      block_rows(std::clamp<int64_t>(block_elements / std::max<int64_t>(keys, 1), 16, 128)),
      is_causal(call.attrs().get_bool("is_causal")),
      scale(call.attrs().get_float("scale")) {
  // Smaller blocks leave out more of what a causal mask hides.
  if (is_causal) block_rows = std::min<int64_t>(block_rows, 64);
}

int64_t Sizes::grain() const {
  const int64_t work = std::min(block_rows, queries) * keys * (features + value_features);
  return std::max<int64_t>(gemm_grain / std::max<int64_t>(work, 1), 1);
}

template <typename T>
Scores<T>::Scores(const ops::Call& call, size_t q, size_t rng)
    : sizes(call, call.in(q), call.in(q + 1), call.in(q + 2)),
      q_index_(q),
      rng_index_(rng),
      q_(call.in(q)),
      k_(call.in(q + 1)),
      drops_(call.attrs().get_float("dropout_p") > 0),
      dropout_(call.attrs().get_float("dropout_p")),
      salt_(call.attrs().get_int("salt")) {
  const ir::Dims& of_q = call.in(q).sizes;
  mask_ = mask_of(call, q + 3, {of_q[0], of_q[1], sizes.queries, sizes.keys});
}

template <typename T>
void Scores<T>::compute(const ops::Args& args, const Block& b, T* out) const {
  gemm_block({.m = b.rows,
              .n = b.columns,
              .k = sizes.features,
              .trans_a = q_.layout.transposed,
              .trans_b = !k_.layout.transposed,
              .lda = q_.layout.leading,
              .ldb = k_.layout.leading,
              .ldc = sizes.row_stride(),
              .alpha = sizes.scale},
             args.in<T>(q_index_) + q_.offsets[b.head] + q_.layout.row_offset(b.first),
             args.in<T>(q_index_ + 1) + k_.offsets[b.head], out);
}

template <typename T>
ScoreRow<T> Scores<T>::row(const ops::Args& args, const Block& b, int64_t i,
                           const Buffers<T>& to) const {
  const int64_t at = (i - b.first) * sizes.row_stride(), n = sizes.columns_of(i);
  ScoreRow<T> row{to.scores + at, to.grads + at, nullptr, nullptr, nullptr};
  if (mask_.present) {
    const int64_t from = mask_.offsets[b.head] + i * mask_.row;
    if (mask_.is_bool) {
      row.allowed = mask_row(args.in<uint8_t>(q_index_ + 3) + from, mask_.column, n, to.allowed);
    } else {
      row.added = mask_row(args.in<T>(q_index_ + 3) + from, mask_.column, n, to.added);
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

template <typename T>
size_t Scores<T>::bytes_per_thread() const {
  const int64_t stride = sizes.row_stride();
  const int64_t block = std::min(sizes.block_rows, std::max<int64_t>(sizes.queries, 1)) * stride;
  return static_cast<size_t>(2 * align_up(block * static_cast<int64_t>(sizeof(T))) +
                             2 * align_up(stride * static_cast<int64_t>(sizeof(T))) +
                             align_up(stride));
}

template <typename T>
Buffers<T> Scores<T>::buffers(const ops::Args& args, int thread) const {
  std::byte* next = args.scratch + static_cast<size_t>(thread) * bytes_per_thread();
  const auto take = [&](int64_t elements) {
    T* here = reinterpret_cast<T*>(next);
    next += align_up(elements * static_cast<int64_t>(sizeof(T)));
    return here;
  };
  const int64_t stride = sizes.row_stride();
  const int64_t block = std::min(sizes.block_rows, std::max<int64_t>(sizes.queries, 1)) * stride;
  Buffers<T> out{};
  out.scores = take(block);
  out.grads = take(block);
  out.added = take(stride);
  out.keep = take(stride);
  out.allowed = reinterpret_cast<uint8_t*>(next);
  return out;
}

template class Scores<float>;
template class Scores<double>;

}  // namespace poptorch::kernels
