#include "kernels/gemm_blocked.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "kernels/gemm_packed.h"
#include "support/align.h"
#include "support/error.h"
#include "support/switches.h"
#include "support/thread_memory.h"

namespace poptorch::simd {

// The loops of one instruction set, which need memory for so many numbers.
struct BlockedFunctions {
  void (*multiply)(const kernels::Gemm&, const float* a, const float* b, float* c, float* packed);
  int64_t packed_numbers;
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/gemm_blocked.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

bool parse(const char* where, std::string_view name) {
  USER_CHECK(name == "loops" || name == "library", "[", where, "] matrix products by \"", name,
             "\": there are \"loops\", the package's own, and \"library\", PyTorch's BLAS. "
             "Choose one of those.");
  return name == "loops";
}

bool initial() {
  const char* forced = std::getenv("POPTORCH_GEMM");
  if (forced != nullptr && *forced != '\0') return parse("POPTORCH_GEMM", forced);
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel");
}

std::atomic<bool>& in_use() {
  static std::atomic<bool> loops = initial();
  return loops;
}

}  // namespace

std::string_view gemm_by() { return in_use() ? "loops" : "library"; }

void set_gemm(std::string_view name) { in_use() = parse("set_gemm", name); }

bool blocked_gemm_pays(const Gemm& g) {
  static const bool on = is_on("blocked_gemm");
  // b is packed for these rows alone, and turned where its columns lie by themselves.
  const int64_t least_rows = g.trans_b ? 48 : 32;
  constexpr int64_t least_columns = 16;
  return on && simd::isa() != simd::Isa::base && g.m >= least_rows && g.n >= least_columns &&
         in_use();
}

void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  const simd::BlockedFunctions& functions =
      simd::choose(simd::base::blocked_functions, simd::avx2::blocked_functions,
                   simd::avx512::blocked_functions);
  thread_local ThreadMemory memory;
  functions.multiply(g, a, b, c, memory.numbers<float>(functions.packed_numbers));
}

}  // namespace poptorch::kernels
