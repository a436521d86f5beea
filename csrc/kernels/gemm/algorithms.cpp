#include "kernels/gemm/algorithms.h"

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/bf16/bf16_loops.h"
#include "kernels/gemm/bf16/bf16x3.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/blocked.h"
#include "kernels/gemm/float16.h"
#include "kernels/gemm/small.h"
#include "kernels/simd/isa.h"
#include "support/ceil_div.h"
#include "support/cpu/bf16_unit.h"
#include "support/loading/at_load.h"
#include "support/loading/torch_library.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {

namespace {

template <typename T>
BlasGemm<T, T> blas_gemm() {
  constexpr const char* name = std::is_same_v<T, float> ? "sgemm_" : "dgemm_";
  static const auto function = find_symbol<BlasGemm<T, T>>(name);
  return function;
}

// -- costs: time of a multiplication, in units of one by loops at full speed --

constexpr double never = 1e6;  // only where nothing else applies, or if it is forced
constexpr double by_copies = 0.2;  // of 16-bit floats in f32

bool is_f32_based(const GemmProblem& p) {
  return p.dtype == ir::DType::f32 || ir::is_half(p.dtype);
}

// Rows that compute f32 are right for 16-bit floats, too, through copies.
double f32_cost(const GemmProblem& p, bool pays, double cost) {
  if (!pays) return never;
  return ir::is_half(p.dtype) ? cost + by_copies : cost;
}

bool may_split(const GemmProblem& p) {
  const Gemm& g = p.gemm;
  return ir::is_float(p.dtype) && g.scale == nullptr && !p.is_block && g.k >= 2 && g.m > 0 &&
         g.n > 0 && g.m * g.n <= most_sums;
}

// What a method costs in one piece, or cut along rows and columns where sums could be cut, too.
double unsplit(const GemmProblem& p, const GemmMethod& method, double cost) {
  const bool is_alternative =
      may_split(p) && is_on("split_k") && is_worth_splitting(p.gemm, method);
  return is_alternative ? cost * cost_of_cut(p.gemm, method, false) : cost;
}

bool has_blas(const GemmProblem& p) {
  return (p.dtype == ir::DType::f64 || is_f32_based(p)) && fits_blas(p.gemm) && has_torch();
}

// MKL reaches 0.5 to 0.85 of what an EPYC can do, the blocked loops 0.8 to 0.9.
constexpr double small_cost = 0.9, blocked_cost = 1, blas_cost = 1.2, loops_cost = 50;

// Sums of few terms: what is packed or turned is hardly read again, and the BLAS takes 0.4 to 0.85
// of the time of our loops, with AVX2 and AVX-512.
bool has_few_terms(const Gemm& g) {
  constexpr int64_t most_terms = 8, most_columns = 128, least_sums = 1 << 13;
  const bool is_short = g.k == 1 || (g.trans_b && g.k <= most_terms && g.n <= most_columns);
  return is_short && g.m * g.n >= least_sums;
}
constexpr double few_terms_cost = 20;  // but compared with plain loops

double cost_of_bf16x3(const GemmProblem& p) {
  const double cost = 0.4 + bf16x3_cutting(p.gemm);
  return unsplit(p, bf16x3_method, f32_cost(p, bf16x3_gemm_pays(p.gemm), cost));
}

double cost_of_small(const GemmProblem& p) {
  const Gemm& g = p.gemm;
  const bool is_f32 = p.dtype == ir::DType::f32;
  if (!is_f32) return small_gemm_pays(g) && is_on("blocked_upcast") ? small_cost : never;
  if (!small_gemm_pays(g) && !thin_gemm_pays(g)) return never;
  if (!g.trans_b) return small_cost;
  if (blocked_gemm_pays(g)) {
    if (has_few_terms(g)) return few_terms_cost;
    // Packing pays unless rows are few. They are computed in groups of 16; the last group takes as
    // long as a whole one.
    const bool has_few_rows = g.m <= (g.n < 64 ? 16 : 32);
    const double groups = static_cast<double>(round_up(g.m, 16)) / static_cast<double>(g.m);
    return has_few_rows ? 0.75 * groups : 1.1 * blocked_cost;
  }
  // With AVX2 the BLAS takes 0.5 to 0.7 of its time where b lies transposed.
  const bool is_slow = simd::isa() == simd::Isa::avx2 && g.m >= 16 && g.n * g.k >= 256;
  return is_slow ? 1.8 : small_cost;
}

double cost_of_blocked(const GemmProblem& p) {
  const double cost = has_few_terms(p.gemm) ? few_terms_cost : blocked_cost;
  return unsplit(p, blocked_method, f32_cost(p, blocked_gemm_pays(p.gemm), cost));
}

double cost_of_blas(const GemmProblem& p) {
  return unsplit(p, blas_method, f32_cost(p, true, blas_cost));
}

double cost_of_loops(const GemmProblem& p) {
  return unsplit(p, loops_method, f32_cost(p, true, loops_cost));
}

double cost_of_split_k(const GemmProblem& p) {
  if (ir::is_half(p.dtype)) return is_on("blocked_upcast") && is_deep(p.gemm) ? 0.5 : never;
  const GemmMethod& method = method_of_parts(p);
  if (!is_worth_splitting(p.gemm, method)) return never;
  const double cost = &method == &blocked_method ? blocked_cost
                      : &method == &blas_method  ? blas_cost
                                                 : loops_cost;
  return cost * cost_of_cut(p.gemm, method, true);
}

bool can_be_small(const GemmProblem& p) {
  return is_f32_based(p) && p.gemm.scale == nullptr &&
         (p.gemm.k <= small::most_depth || !p.gemm.trans_b);
}

}  // namespace

template <typename T>
void blas_block(const Gemm& g, const T* a, const T* b, T* c) {
  if (!fits_blas(g) || !has_torch() || blas_gemm<T>() == nullptr) return plain_block(g, a, b, c);
  call_blas(blas_gemm<T>(), g, a, b, c);
}

const GemmMethod small_method{.f32 = small_gemm, .takes_float16 = true, .is_even = true};
const GemmMethod blocked_method{.f32 = blocked_gemm,
                                .row_tile = blocked_mr,
                                .column_tile = blocked_nr,
                                .row_cost = blocked_row_cost,
                                .column_cost = blocked_column_cost,
                                .finishes = true,
                                .is_even = true};
const GemmMethod bf16x3_method{.f32 = bf16x3_gemm,
                               .row_tile = bf16x3_side,
                               .column_tile = bf16x3_side,
                               .finishes = true,
                               .is_even = true};
const GemmMethod bf16_unit_method{.takes_float16 = true, .bf16 = bf16_blas_block};
const GemmMethod bf16_loops_method{.takes_float16 = true,
                                   .bf16 = bf16_loops_gemm,
                                   .row_tile = blocked_mr,
                                   .column_tile = blocked_nr};
const GemmMethod float16_blocks_method{.takes_float16 = true};
const GemmMethod blas_method{.f32 = blas_block<float>, .f64 = blas_block<double>};
const GemmMethod loops_method{.f32 = plain_block<float>, .f64 = plain_block<double>};
const GemmMethod split_k_method{.takes_float16 = true};

const GemmMethod& method_of_parts(const GemmProblem& p) {
  if (p.dtype == ir::DType::bf16 && bf16_loops_pay()) {
    // By name, so that a runner for f32 programs can be without them.
    return *gemm_table().row("bf16_loops").make;
  }
  if (p.dtype == ir::DType::f32 && blocked_gemm_pays(p.gemm)) return blocked_method;
  return has_blas(p) ? blas_method : loops_method;
}

namespace {

// The table, which its rows enter when the library is loaded.
GemmTable& table() {
  static GemmTable rows{"gemm", {}, {measuring_key, gemm_trials}};
  return rows;
}

#define PRODUCT(row_name, ...) \
  AT_LOAD("algorithm.gemm." row_name) { table().add({{.name = row_name, __VA_ARGS__}}); }
PRODUCT("bf16x3",
        .doc = "f32 numbers as three bfloat16 parts, on the CPU's unit for those (AMX)",
        .applies = [](const GemmProblem& p) {
          return is_f32_based(p) && p.gemm.k > 0 && has_bf16x3_gemm();
        },
        .cost = cost_of_bf16x3,
        .make = &bf16x3_method, .is_unit = true)
PRODUCT("bf16_unit",
        .doc = "bfloat16 products of PyTorch's BLAS, on the CPU's unit for them",
        .applies = [](const GemmProblem& p) {
          return p.dtype == ir::DType::bf16 && fits_blas(p.gemm) && has_bf16_gemm();
        },
        .cost = [](const GemmProblem&) { return bf16_gemm_pays() ? 0.3 : never; },
        .make = &bf16_unit_method, .is_library = true, .is_unit = true)
PRODUCT("bf16_loops",
        .doc = "loops on packed blocks of bfloat16 pairs, for AVX512-BF16",
        .applies = [](const GemmProblem& p) {
          return p.dtype == ir::DType::bf16 && computes_bf16();
        },
        .cost = [](const GemmProblem&) { return bf16_loops_pay() ? 0.6 : never; },
        .make = &bf16_loops_method, .is_unit = true)
PRODUCT("small",
        .doc = "loops in registers, nothing is packed",
        .applies = can_be_small,
        .cost = cost_of_small,
        .make = &small_method)
PRODUCT("blocked",
        .doc = "loops on packed blocks of both operands",
        .applies = is_f32_based,
        .cost = cost_of_blocked,
        .make = &blocked_method)
PRODUCT("float16_blocks",
        .doc = "16-bit floats are upcast in cache, block by block of the result",
        .applies = [](const GemmProblem& p) { return ir::is_half(p.dtype); },
        .cost = [](const GemmProblem&) { return is_on("blocked_upcast") ? 1.0 : never; },
        .make = &float16_blocks_method)
PRODUCT("blas",
        .doc = "PyTorch's BLAS",
        .applies = [](const GemmProblem& p) { return p.gemm.scale == nullptr && has_blas(p); },
        .cost = cost_of_blas,
        .make = &blas_method, .is_library = true)
PRODUCT("loops",
        .doc = "plain loops: products of integers",
        .applies = [](const GemmProblem& p) { return p.gemm.scale == nullptr; },
        .cost = cost_of_loops,
        .make = &loops_method)
PRODUCT("split_k",
        .doc = "sums are cut into parts that threads share",
        .applies = may_split,
        .cost = cost_of_split_k,
        .make = &split_k_method, .is_for_threads = true)
#undef PRODUCT

}  // namespace

const GemmTable& gemm_table() { return table(); }

template void blas_block(const Gemm&, const float*, const float*, float*);
template void blas_block(const Gemm&, const double*, const double*, double*);

}  // namespace poptorch::kernels
