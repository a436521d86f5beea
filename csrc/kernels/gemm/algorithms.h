// The algorithms of GEMM: how one is chosen, their table, and the loops of each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ir/dtype.h"
#include "kernels/gemm/gemm.h"
#include "support/algorithms/algorithm.h"

namespace poptorch::kernels {

// One product, also of a batch. The bits of a result may depend on the algorithm, and not on the
// number of threads, which therefore is no part of the problem.
struct GemmProblem {
  Gemm gemm;
  ir::DType dtype = ir::DType::f32;
  bool is_block = false;  // of a larger computation: to be computed in one piece
  bool is_prepared = false;  // the choice is for all runs of a program
};

template <typename T>
constexpr ir::DType gemm_dtype() {
  if constexpr (std::is_same_v<T, float>) return ir::DType::f32;
  if constexpr (std::is_same_v<T, double>) return ir::DType::f64;
  if constexpr (std::is_same_v<T, uint8_t>) return ir::DType::u8;
  if constexpr (std::is_same_v<T, int8_t>) return ir::DType::i8;
  if constexpr (std::is_same_v<T, int16_t>) return ir::DType::i16;
  return std::is_same_v<T, int32_t> ? ir::DType::i32 : ir::DType::i64;
}

template <typename T>
using GemmLoops = void (*)(const Gemm&, const T* a, const T* b, T* c);

// How blocks of c, or parts of their sums, are computed; nullptr: not this type.
struct GemmMethod {
  GemmLoops<float> f32 = nullptr;
  GemmLoops<double> f64 = nullptr;
  bool takes_float16 = false;  // by Float16Gemm; else operands of 16 bits go through f32 copies
  // A block of bfloat16 numbers, not upcast. Without this, Float16Gemm upcasts its operands.
  void (*bf16)(const Gemm&, const uint16_t* a, const uint16_t* b, float* c) = nullptr;
  // Multiples at which c may be cut so that no element changes its place in a tile: those of BLAS
  // kernels, where it is one.
  int64_t row_tile = 24, column_tile = 48;
  // What a cut costs, in multiplications for each number of b and of a that is read again.
  double row_cost = 64;
  double (*column_cost)(const Gemm&) = [](const Gemm&) { return 64.0; };
  bool finishes = false;  // applies scale, bias and relu itself
  bool is_even = false;   // a sum is taken in the same order whatever the block around it is
};

extern const GemmMethod small_method, blocked_method, bf16x3_method, bf16_unit_method,
    bf16_loops_method, float16_blocks_method, blas_method, loops_method, split_k_method;

using GemmTable = AlgorithmTable<GemmProblem, const GemmMethod*>;
const GemmTable& gemm_table();

// How products are measured: on a part of their size, in one thread.
std::string measuring_key(const GemmProblem& p, bool has_unit);
std::vector<Trial> gemm_trials(const GemmProblem& p,
                               const std::vector<const GemmTable::Row*>& rows);

// By what split_k computes parts of the sums. Of 16-bit floats only its `bf16` counts: without one
// Float16Gemm upcasts the operands.
const GemmMethod& method_of_parts(const GemmProblem& p);

// c = alpha * op(a) * op(b) + beta * c by PyTorch's BLAS, where there is one and it can count so
// far, else by plain loops. T: float and double.
template <typename T>
void blas_block(const Gemm& g, const T* a, const T* b, T* c);

// The same by plain loops. T: as gemm.
template <typename T>
void plain_block(const Gemm& g, const T* a, const T* b, T* c);

// -- how a product is cut: c into blocks, the sum of each element into parts, joined in order --

struct Cut {
  int64_t rows = 1, columns = 1, depth = 1;

  int64_t count() const { return rows * columns * depth; }
};

// Multiplications; to write a number of c takes as long as 16.
int64_t work_of(const Gemm& g);

// Numbers of c that parts of sums may take in addition to c itself.
constexpr int64_t most_sums = 1 << 19;

// The cheapest one; its `depth` is above 1 if, and only if, `splits`. Unless it says that it leaves
// the bits as they are, it does not depend on `threads`.
Cut choose_cut(const Gemm& g, const GemmMethod& method, bool splits, int threads);

// Time of a multiplication in that cut, in units of one that is alone.
double cost_of_cut(const Gemm& g, const GemmMethod& method, bool splits);

// A small c with a long sum, as weight gradients are: threads have only the sum to share.
bool is_deep(const Gemm& g);

// Whether parts of sums may gain anything.
bool is_worth_splitting(const Gemm& g, const GemmMethod& method);

}  // namespace poptorch::kernels
