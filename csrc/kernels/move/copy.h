// Copies between strided tensors of equal sizes. A plan is made once (it merges dimensions and
// chooses a loop) and run many times; it works on bytes, so one plan serves every dtype of an item
// size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace poptorch::kernels {

class CopyPlan {
 public:
  CopyPlan() = default;
  // Strides in elements; source strides may be 0 or negative, no two target elements may overlap.
  CopyPlan(const ir::Dims& sizes, const ir::Dims& target_strides, const ir::Dims& source_strides,
           int64_t item_bytes);

  // Elements to skip from the pointers given to `run`.
  CopyPlan& offsets(int64_t target, int64_t source);

  // Source and target must not overlap.
  void run(void* target, const void* source, int threads) const;

 private:
  struct Dim {
    int64_t size, target, source;  // strides in bytes
  };
  enum class Loop { rows, transpose, items };

  void merge();
  void widen_items();
  void choose_loop();
  void cut(int64_t lines_per_unit, int64_t items_per_unit);
  void run_units(int64_t begin, int64_t end, std::byte* target, const std::byte* source) const;
  template <typename T>
  void run_unit(std::byte* target, const std::byte* source, int64_t lines, int64_t items) const;
  void run_unit_of_rows(std::byte* target, const std::byte* source, int64_t lines,
                        int64_t items) const;

  std::vector<Dim> outer_;  // all but the line and the item dimension, outermost first
  Dim line_{1, 0, 0};
  Dim item_{1, 0, 0};
  int64_t element_bytes_ = 1;
  int64_t item_bytes_ = 1;                         // an element, or a short run of them
  int64_t target_offset_ = 0, source_offset_ = 0;  // bytes
  Loop loop_ = Loop::items;
  // A unit of work: some lines of some items.
  int64_t lines_per_unit_ = 1, items_per_unit_ = 1;
  int64_t units_ = 0, grain_ = 1;
};

// Contiguous bytes that do not overlap.
void copy_bytes(void* target, const void* source, int64_t bytes, int threads);

// Fills `n` items of `item_bytes` with the item at `value`.
void fill_items(void* target, const void* value, int64_t item_bytes, int64_t n, int threads);

// Zero bytes.
void fill_zero(void* target, int64_t bytes, int threads);

}  // namespace poptorch::kernels
