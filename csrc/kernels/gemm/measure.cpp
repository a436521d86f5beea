// How the algorithms of products are measured (support/algorithms/measured.h): in one thread,
// as no choice depends on their number, and on a part of the product where it is large.
#include <algorithm>
#include <memory>

#include "kernels/float16_blocks.h"
#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/float16.h"
#include "support/error.h"
#include "support/loading/at_load.h"
#include "support/memory/thread_memory.h"
#include "support/settings/settings.h"

namespace poptorch::kernels {

namespace {

// Multiplications: fewer take less than some 20 us, which a call of torch's alone takes in part;
// more say nothing new.
constexpr int64_t least_work = int64_t{1} << 20, most_work = int64_t{1} << 25;

// The part of a product that is measured: all of its sum, and rows and columns so few that it takes
// about a millisecond. Its operands lie without gaps.
Gemm part_of(const Gemm& g) {
  constexpr int64_t least_side = 64;
  Gemm part{.m = g.m, .n = g.n, .k = g.k, .trans_a = g.trans_a, .trans_b = g.trans_b};
  while (part.m * part.n * part.k > most_work && std::max(part.m, part.n) > least_side) {
    int64_t& side = part.m > part.n ? part.m : part.n;
    side = std::max(side / 2, least_side);
  }
  part.lda = part.trans_a ? part.m : part.k;
  part.ldb = part.trans_b ? part.k : part.n;
  part.ldc = part.n;
  return part;
}

// Operands and results of all trials of a problem, and f32 copies for rows that take no 16 bits.
struct Operands {
  ThreadMemory a, b, c, wide_a, wide_b, wide_c, scratch;
};

// What each element is: no arithmetic on it is slow.
template <typename T>
T* ones(ThreadMemory& memory, int64_t count, T one) {
  T* numbers = memory.numbers<T>(count);
  std::fill_n(numbers, count, one);
  return numbers;
}

Trial f32_trial(const Gemm& g, const GemmMethod& method, const std::shared_ptr<Operands>& on) {
  const float *a = ones(on->wide_a, g.m * g.k, 1.0F), *b = ones(on->wide_b, g.k * g.n, 1.0F);
  float* c = ones(on->wide_c, g.m * g.n, 1.0F);
  return [=, product = PreparedGemm<float>(g, method)] {
    (void)on;  // keeps the operands
    product.run(a, b, c, 1);
  };
}

Trial half_trial(const Gemm& g, ir::DType dtype, const GemmMethod& method,
                 const std::shared_ptr<Operands>& on) {
  const uint16_t one = dtype == ir::DType::bf16 ? 0x3f80 : 0x3c00;
  const uint16_t *a = ones(on->a, g.m * g.k, one), *b = ones(on->b, g.k * g.n, one);
  uint16_t* c = ones(on->c, g.m * g.n, one);
  if (method.takes_float16) {
    const Float16Gemm product(g, dtype, method);
    const auto bytes = static_cast<int64_t>(product.scratch_bytes(1));
    ones(on->scratch, std::max<int64_t>(bytes, 1), std::byte{0});
    return [=] { product.run(a, b, c, on->scratch.numbers<std::byte>(bytes), 1); };
  }
  const Trial product = f32_trial(g, method, on);
  float *wide_a = on->wide_a.numbers<float>(g.m * g.k);
  float *wide_b = on->wide_b.numbers<float>(g.k * g.n);
  const float* wide_c = on->wide_c.numbers<float>(g.m * g.n);
  return [=, upcast = upcast_from(dtype), downcast = downcast_to(dtype)] {
    upcast(a, wide_a, g.m * g.k);
    upcast(b, wide_b, g.k * g.n);
    product();
    downcast(wide_c, c, g.m * g.n);
  };
}

// half_trial, but in a runner for programs of f32 alone.
Trial (*trial_of_half)(const Gemm&, ir::DType, const GemmMethod&,
                       const std::shared_ptr<Operands>&) = nullptr;
AT_LOAD("half.trial") { trial_of_half = half_trial; }

}  // namespace

std::string measuring_key(const GemmProblem& p, bool has_unit) {
  const Gemm& g = p.gemm;
  const bool is_f32 = p.dtype == ir::DType::f32;
  if (!is_f32) note_need("half.", "trial");
  // Products that are chosen again in each run are looked up only if a unit can compute them.
  if (!p.is_prepared && !has_unit) return "";
  if (is_f32 && settings().names_gemm && !has_unit) return "";  // the user chose
  if ((!is_f32 && !ir::is_half(p.dtype)) || g.scale != nullptr) return "";
  if (g.m * g.n * std::max<int64_t>(g.k, 1) < least_work) return "";
  return concat(ir::name_of(p.dtype), " ", g.m, "x", g.n, "x", g.k, " ", g.trans_a ? "t" : "n",
                g.trans_b ? "t" : "n");
}

std::vector<Trial> gemm_trials(const GemmProblem& p,
                               const std::vector<const GemmTable::Row*>& rows) {
  const Gemm part = part_of(p.gemm);
  if (p.dtype != ir::DType::f32 && trial_of_half == nullptr) return {};
  const auto operands = std::make_shared<Operands>();
  std::vector<Trial> trials;
  for (const GemmTable::Row* row : rows) {
    trials.push_back(p.dtype == ir::DType::f32 ? f32_trial(part, *row->make, operands)
                                               : trial_of_half(part, p.dtype, *row->make,
                                                               operands));
  }
  return trials;
}

}  // namespace poptorch::kernels
