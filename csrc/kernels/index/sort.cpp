// sort, topk: (value, position) pairs of one row at a time, in scratch.
#include <algorithm>

#include "kernels/along_dim.h"
#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

template <typename T>
struct Pair {
  T value;
  int32_t position;
};

// NaN is larger than all numbers; equal values keep their order, so that every sort is stable.
template <typename T, bool descending>
struct Before {
  static bool less(T a, T b) { return a < b || (b != b && a == a); }
  bool operator()(const Pair<T>& a, const Pair<T>& b) const {
    if (descending ? less(b.value, a.value) : less(a.value, b.value)) return true;
    if (descending ? less(a.value, b.value) : less(b.value, a.value)) return false;
    return a.position < b.position;
  }
};

// Rows along the sorted dimension; `kept` entries of each are results, all if it is negative.
struct Rows : AlongDim {
  int64_t kept;
  ir::DType position_type;

  Rows(const Call& call, int64_t kept)
      : AlongDim(call, call.in(0)),
        kept(kept < 0 ? AlongDim::n : kept),
        position_type(call.out(1).dtype) {}
};

template <typename T, bool descending>
void sort_row(const Rows& rows, int64_t row, const T* x, T* values,
              const Positions& positions, Pair<T>* pairs) {
  const int64_t outer = row / rows.inner, inner = row % rows.inner;
  x += outer * rows.n * rows.inner + inner;
  for (int64_t i = 0; i < rows.n; ++i) pairs[i] = {x[i * rows.inner], static_cast<int32_t>(i)};
  if (rows.kept < rows.n) {
    std::partial_sort(pairs, pairs + rows.kept, pairs + rows.n, Before<T, descending>{});
  } else {
    std::sort(pairs, pairs + rows.n, Before<T, descending>{});
  }
  const int64_t out = outer * rows.kept * rows.inner + inner;
  for (int64_t i = 0; i < rows.kept; ++i) {
    const int64_t at = out + i * rows.inner;
    values[at] = pairs[i].value;
    positions.put(at, pairs[i].position);
  }
}

template <typename T, bool descending>
Prepared sort_typed(const Call& call, int64_t kept) {
  const Rows rows(call, kept);
  const Slots slots(call.threads, rows.outer * rows.inner, rows.n * 16,
                    rows.n * static_cast<int64_t>(sizeof(Pair<T>)));
  return slots.prepared([rows](const Args& args, const Slot& slot) {
    const Positions positions(args.outputs[1], rows.position_type);
    for (int64_t row = slot.begin; row < slot.end; ++row) {
      sort_row<T, descending>(rows, row, args.in<T>(0), args.out<T>(0), positions,
                              reinterpret_cast<Pair<T>*>(slot.scratch));
    }
  });
}

Prepared sorted(const Call& call, bool descending, int64_t kept) {
  return with_number_type(call.in(0).dtype, [&]<typename T>(T) {
    return descending ? sort_typed<T, true>(call, kept) : sort_typed<T, false>(call, kept);
  });
}

Prepared sort(const Call& call) {
  return sorted(call, call.attrs().get_bool(ir::attr::descending), -1);
}

Prepared topk(const Call& call) {
  return sorted(call, call.attrs().get_bool(ir::attr::largest), call.attrs().get_int(ir::attr::k));
}

KERNEL("sort", sort)
KERNEL("topk", topk)

}  // namespace

}  // namespace poptorch::kernels
