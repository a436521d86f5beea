// The products that the steps of a recurrence repeat: some rows times the same weights, which are
// packed once for a run (gemm/packed.h). The product is cut into blocks of hidden units with all
// their gates, so that whoever has multiplied a block can go on with the cells of its units. The
// cut does not depend on the number of threads, nor do the bits of a row on which others it is
// multiplied with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/packed.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// forward: w is [gates * hidden, depth]; states or inputs times w^T give the gates' sums.
// back: gradients of the sums, [rows, depth = gates * hidden], times w give those of the state.
enum class Side { forward, back };

// Entries of the batch, or blocks: [begin, end).
struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

template <typename T>
class RecurrentProduct {
 public:
  // `batch` and not `rows` decides on the cut: the products of a step have the same blocks.
  RecurrentProduct(Side side, int64_t rows, int64_t depth, int64_t hidden, int64_t gates,
                   int64_t batch);

  struct Block {
    int64_t unit, units;  // hidden units [unit, unit + units)
    int64_t width;        // numbers of a row of its product
    T* product;           // [rows, width]: the gates of the units side by side
    const T* weights;     // those of its first gate
    std::byte* packed;
  };
  int64_t block_count() const { return ceil_div(hidden_, units_); }

  // Memory for `pack` and `multiply`: 64-byte aligned, the same for the whole run.
  size_t scratch_bytes() const;
  void pack(const T* w, std::byte* scratch, int threads) const;
  Block block(int64_t index, const T* w, std::byte* scratch) const;
  // Fills these rows of block.product from those of `a`, [rows, depth] with rows `stride` apart.
  void multiply(const Block& block, const T* a, int64_t stride, Range rows) const;

  // step(k, blocks, entries) for all blocks and entries at k = 0, 1, ..., `time` - 1. Threads share
  // the blocks, and wait for each other after each step; or, where the weights stay in a core's
  // cache, the entries, which need nothing of each other.
  void for_steps(int threads, int64_t time, const auto& step) const {
    if (shares_entries(threads)) {
      return parallel_for(threads, batch_, entry_grain(time), [&](int64_t begin, int64_t end) {
        for (int64_t k = 0; k < time; ++k) step(k, Range{0, block_count()}, Range{begin, end});
      });
    }
    for (int64_t k = 0; k < time; ++k) {
      parallel_for(threads, block_count(), block_grain(), [&](int64_t begin, int64_t end) {
        step(k, Range{begin, end}, Range{0, batch_});
      });
    }
  }

 private:
  bool shares_entries(int threads) const;
  // How many blocks of a step, and entries of all, are worth a thread of their own.
  int64_t block_grain() const;
  int64_t entry_grain(int64_t time) const;
  PackedGemm packed(int64_t units, int64_t rows) const;  // the product of a block of so many
  size_t packed_bytes() const;                           // of one block
  size_t weight_bytes() const { return packed_bytes() * static_cast<size_t>(block_count()); }
  int64_t stride() const { return forward_ ? depth_ : hidden_; }  // of the rows of its weights

  bool forward_;
  bool packs_;
  int64_t rows_;
  int64_t batch_;
  int64_t depth_;  // what is multiplied and added for a result
  int64_t hidden_;
  int64_t columns_;  // results of a unit: its gates, or one
  int64_t units_;    // of a block
};

}  // namespace poptorch::kernels
