// What the forward and the backward kernel of attention share: where the operands of a head lie,
// and the scores of some of its rows with mask and dropout.
//
// Elements of operands and results have a type E: float, double, or uint16_t for bfloat16 numbers
// that a unit for them multiplies in place. All else is computed in simd::NumberOf<E>.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/float16_blocks.h"
#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/matrix_view.h"
#include "kernels/random/random.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "kernels/simd/convert.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

template <typename E>
constexpr bool is_rounded = std::is_same_v<E, uint16_t>;

// What is computed of `target`: there or, if it has to be rounded, in scratch.
template <typename E>
simd::NumberOf<E>* computed_of([[maybe_unused]] E* target,
                               [[maybe_unused]] simd::NumberOf<E>* scratch) {
  if constexpr (is_rounded<E>) return scratch;
  else return target;
}

// Puts numbers into the target that they are computed for.
template <typename E>
void put(const simd::NumberOf<E>* computed, E* target, int64_t n) {
  if constexpr (is_rounded<E>) downcast_to(ir::DType::bf16)(computed, target, n);
}

// One operand: a matrix for each head of each sample.
struct Heads {
  MatrixLayout layout{};
  std::vector<int64_t> offsets;

  explicit Heads(const ir::Type& type)
      : layout(layout_of(type)), offsets(batch_offsets(type, {type.sizes[0], type.sizes[1]})) {}
};

// Some rows of one head's scores. No row takes part in columns from `columns` on.
struct Block {
  int64_t head, first, rows, columns;
};

struct Sizes {
  int64_t heads, queries, keys, features, value_features;
  int64_t block_rows;
  bool is_causal;
  double scale;

  Sizes(const ops::Call& call, const ir::Type& q, const ir::Type& k, const ir::Type& v);

  int64_t blocks() const { return ceil_div(queries, block_rows); }
  int64_t grain() const;  // blocks worth another thread
  Block block(int64_t head, int64_t number) const {
    const int64_t first = number * block_rows, rows = std::min(block_rows, queries - first);
    return {head, first, rows, columns_of(first + rows - 1)};
  }
  // The columns that row `i` may take part in.
  int64_t columns_of(int64_t i) const { return is_causal ? std::min(i + 1, keys) : keys; }
  // Elements between rows of scores in the buffers.
  int64_t row_stride() const { return (std::max<int64_t>(keys, 1) + 15) / 16 * 16; }
};

struct Mask {
  bool present = false, is_bool = false;
  std::vector<int64_t> offsets;  // of each head
  int64_t row = 0, column = 0;   // strides
};

// One thread's part of scratch. `softmax` and `score_grads` are scores and grads as operands of
// products: the same memory where nothing is rounded.
template <typename E>
struct Buffers {
  simd::NumberOf<E> *scores, *grads;  // of one block
  E *softmax, *score_grads;
  simd::NumberOf<E> *added, *keep;  // of one row
  uint8_t* allowed;
  // Of results that are rounded, of one block and of all keys.
  simd::NumberOf<E> *rows, *dk, *dv;
};

template <typename E>
class Scores {
 public:
  using T = simd::NumberOf<E>;

  // `q` is the number of the first of the operands q, k, v, mask; `rng` that of the last operand.
  // `differs` says that there are gradients.
  Scores(const ops::Call& call, size_t q, size_t rng, bool differs);

  // c = alpha * op(a) * op(b) + beta * c
  void multiply(const Gemm& g, const E* a, const E* b, T* c) const;
  // out[rows, columns] = scale * q k^T
  void compute(const ops::Args& args, const Block& b, T* out) const;
  // Row `i` of the head, within block `b`: its place in the buffers, its mask and dropout.
  ScoreRow<T> row(const ops::Args& args, const Block& b, int64_t i, const Buffers<E>& to) const;

  Buffers<E> buffers(const ops::Args& args, int thread) const;
  size_t scratch_bytes(int threads) const {
    return static_cast<size_t>(threads) * bytes_per_thread_;
  }
  // Whether there is a unit that multiplies such operands.
  bool has_unit() const { return by_unit_ != nullptr; }
  std::string_view algorithm() const { return algorithm_; }

  Sizes sizes;
  const Rows<T>& loops = rows<T>();

 private:
  Gemm product(const Block& b) const;
  // Where parts of scratch begin that lies at an address, and the address of its end.
  std::pair<Buffers<E>, uintptr_t> lay_out(uintptr_t scratch) const;

  size_t q_index_, rng_index_;
  bool differs_;
  Heads q_, k_;
  Mask mask_;
  bool drops_;
  Dropout dropout_;
  int64_t salt_;
  const simd::RandomTable& random_ = simd::random_table();
  decltype(GemmMethod::bf16) by_unit_ = nullptr;
  std::string_view algorithm_;
  size_t bytes_per_thread_;
};

}  // namespace poptorch::kernels
