// narrowing_cast: i64 to i32, by the rule for tensors that come from the host (_base/types.py).
#include <atomic>
#include <cstdint>
#include <limits>

#include "ops/kernel.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

constexpr int64_t grain = 1 << 14;  // elements worth some 5 us

using Narrow = std::numeric_limits<int32_t>;
using Wide = std::numeric_limits<int64_t>;

bool fits(int64_t value) { return value == static_cast<int32_t>(value); }

bool is_limit(int64_t value) { return value == Wide::min() || value == Wide::max(); }

// The first number that does not fit, from `begin` to `end`; else `end`.
int64_t narrow(const int64_t* x, int32_t* out, int64_t begin, int64_t end) {
  bool all_fit = true;
  for (int64_t i = begin; i < end; ++i) {
    out[i] = static_cast<int32_t>(x[i]);
    all_fit &= fits(x[i]);
  }
  for (int64_t i = begin; !all_fit && i < end; ++i) {
    if (fits(x[i])) continue;
    if (!is_limit(x[i])) return i;
    out[i] = x[i] < 0 ? Narrow::min() : Narrow::max();
  }
  return end;
}

Prepared narrowing_cast(const Call& call) {
  return {[n = call.out().numel()](const Args& args) {
    const int64_t* x = args.in<int64_t>(0);
    int32_t* out = args.out<int32_t>();
    std::atomic<int64_t> first{n};
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      const int64_t at = narrow(x, out, begin, end);
      int64_t before = first.load(std::memory_order_relaxed);
      while (at < end && at < before && !first.compare_exchange_weak(before, at)) {}
    });
    const int64_t at = first.load();
    USER_CHECK(at == n, "[int64] the value ", x[at], " does not fit into int32 (", Narrow::min(),
               " to ", Narrow::max(), "), to which int64 is narrowed where it leaves the "
               "calculation (element ", at, "). Keep the values smaller, with `%` for instance.");
  }};
}

KERNEL("narrowing_cast", narrowing_cast)

}  // namespace

}  // namespace poptorch::kernels
