// Products of matrices of 16-bit floats: summed in f32, each result rounded once. Blocks of the
// result are summed in cache, from pieces of the operands that are upcast there, or by a unit for
// bfloat16; small products leave their registers rounded.
#pragma once

#include <cstddef>
#include <string>

#include "ir/dtype.h"
#include "kernels/gemm/gemm.h"

namespace poptorch::kernels {

// Whether the BLAS has products of bfloat16 numbers, and whether the CPU has a unit for them that
// the BLAS was written for: on others they take longer than f32 ones.
bool has_bf16_gemm();
bool bf16_gemm_pays();

// As gemm_block, by that BLAS.
void bf16_blas_block(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c);

// Whether the algorithm that is chosen for such a product is one of Float16Gemm's: else it goes
// through f32 copies. So do those for bf16x3, which would cut the operands of each block into parts
// for that block alone.
bool has_float16_gemm(const Gemm& g, ir::DType dtype);

// As gemm. Where c and its sums are cut depends on the sizes of the product alone.
class Float16Gemm {
 public:
  using Element = uint16_t;
  Float16Gemm(const Gemm& g, ir::DType dtype);
  // By this one of the table.
  Float16Gemm(const Gemm& g, ir::DType dtype, const GemmMethod& method);

  const std::string& algorithm() const { return algorithm_; }
  size_t scratch_bytes(int threads) const;
  void run(const uint16_t* a, const uint16_t* b, uint16_t* c, std::byte* scratch,
           int threads) const;

 private:
  struct Block;

  Block block_at(int64_t index) const;
  void sum(const Block& block, const uint16_t* a, const uint16_t* b, const uint16_t* c,
           float* sums, float* pieces) const;
  void round(const Block& block, const float* sums, uint16_t* c) const;
  void join(float* sums, uint16_t* c) const;
  void run_small(const uint16_t* a, const uint16_t* b, uint16_t* c, float* pieces) const;
  int64_t count() const { return down_ * across_ * deep_; }

  Gemm gemm_;
  ir::DType dtype_;
  std::string algorithm_;
  // A block by a unit for bfloat16; without, operands are upcast.
  void (*by_unit_)(const Gemm&, const uint16_t*, const uint16_t*, float*) = nullptr;
  bool small_ = false;           // computed as a whole, rounded where it is summed
  int64_t deep_ = 1;             // parts of each sum
  int64_t rows_, columns_;       // of a block
  int64_t down_, across_;        // blocks
  int64_t sums_, piece_a_ = 0, piece_b_ = 0;  // f32 numbers: of a block, of upcast operands
};

}  // namespace poptorch::kernels
