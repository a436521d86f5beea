// The product that every step of a recurrence repeats: [batch, k] times the same weights. The
// weights are packed once for a run. The product is cut into blocks of hidden units with all their
// gates, so that whoever has multiplied a block can go on with the cells of its units. The cut does
// not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poptorch::kernels {

// forward: w is [gates * hidden, hidden], a state times w^T gives the gates' sums.
// backward: gradients of the sums, [batch, gates * hidden], times w give those of the state.
enum class Direction { forward, backward };

template <typename T>
class RecurrentProduct {
 public:
  RecurrentProduct(Direction direction, int64_t batch, int64_t hidden, int64_t gates);

  struct Block {
    int64_t unit, units;  // hidden units [unit, unit + units)
    int64_t width;        // numbers of a row of its product
    T* product;           // [batch, width]: the gates of the units side by side
    const T* weights;
    std::byte* packed;
  };
  int64_t block_count() const { return (hidden_ + units_ - 1) / units_; }
  // How many blocks are worth a thread of their own.
  int64_t grain() const;

  // Memory for `pack` and `multiply`: 64-byte aligned, the same for the whole run.
  size_t scratch_bytes() const;
  void pack(const T* w, std::byte* scratch, int threads) const;
  Block block(int64_t index, const T* w, std::byte* scratch) const;
  // Fills block.product from `a`, [batch, k] with rows `stride` apart.
  void multiply(const Block& block, const T* a, int64_t stride) const;

 private:
  size_t packed_bytes() const;  // of one block

  bool forward_;
  int64_t batch_, hidden_, gates_;
  int64_t columns_;  // results of a unit: its gates, or one
  int64_t depth_;    // k: what is multiplied and added for a result
  int64_t units_;    // of a block
};

}  // namespace poptorch::kernels
