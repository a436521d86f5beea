// Walks an op's element space: sizes broadcast, dimensions merged where every operand allows it,
// the innermost one left to an inner loop. Results are contiguous.
#pragma once

#include <array>
#include <vector>

#include "ir/type.h"
#include "kernels/float16_blocks.h"
#include "kernels/simd/inner_loop.h"

namespace poptorch::kernels {

// What inner loops take of 16-bit floats: their bits, or f32 (results are then rounded).
enum class Float16Form { bits, upcast };

class Loop {
 public:
  // At most three operands, each of sizes that broadcast to those of `out`.
  Loop(const ir::Type& out, const std::vector<const ir::Type*>& operands,
       Float16Form form = Float16Form::bits);

  // The inner loop.
  struct Work {
    simd::InnerLoopFn run;
    const double* params;
    int64_t grain;  // elements worth some 5 us
  };
  void run(const Work& work, const std::array<const void*, 3>& in, void* out, int threads) const;

  int64_t numel() const { return numel_; }
  // Elements of the innermost dimension after merging.
  int64_t row() const { return sizes_[rank_ - 1]; }

  // Elements [at, at + n) of an operand that begins at `from`: where they lie, if one step of 0 or
  // 1 serves them all, else a copy in `to`.
  struct Elements {
    const void* first;
    int64_t step;
  };
  Elements read(size_t operand, const void* from, int64_t at, int64_t n, void* to) const;

 private:
  static constexpr size_t max_rank = 12;  // after merging

  struct Operand {
    int64_t item_bytes = 0;
    std::array<int64_t, max_rank> strides{};  // elements
    bool flat = false;  // one step serves the whole space: contiguous, or a single value
    Upcast upcast = nullptr;  // of 16-bit floats that loops take as f32
  };

  struct Cursor;

  void merge(std::vector<ir::Dims>& strides, ir::Dims& sizes) const;
  void run_rows(const Work& work, simd::InnerLoop inner, std::byte* out, int64_t begin,
              int64_t end) const;
  void run_blocks(const Work& work, simd::InnerLoop inner, std::byte* out, int64_t begin,
              int64_t end) const;
  void gather(size_t operand, const void* from, Cursor cursor, int64_t count, void* to) const;

  size_t rank_ = 0;
  size_t operands_count_ = 0;
  int64_t numel_ = 0;
  int64_t out_bytes_ = 0;
  Downcast downcast_ = nullptr;  // of a 16-bit result that loops give as f32
  bool converts_ = false;
  std::array<int64_t, max_rank> sizes_{};
  std::array<Operand, 3> operands_{};
};

// Elements that take some 5 us at this time for each.
int64_t grain_of(int picoseconds);

}  // namespace poptorch::kernels
