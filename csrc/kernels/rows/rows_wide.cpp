// The f64 table of rows.h: the same loops on vectors of one element.
#include <cmath>

#include "kernels/rows/batch_norm.h"
#include "kernels/rows/rows.h"
#include "support/mutant.h"

namespace poptorch::kernels {

namespace wide_loops {

using T = double;
using V = double;

inline V exp_of(V x) { return std::exp(x); }
inline V log_of(V x) { return std::log(x); }
inline V log1p_of(V x) { return std::log1p(x); }
inline bool bools_of(const uint8_t* p) { return *p != 0; }
inline T join_lanes(V v, const auto&) { return v; }

// A vector of one element has no part.
inline bool first_lanes(int64_t) { return true; }
inline V load_part(const T* p, int64_t) { return *p; }
inline void store_part(T* p, V v, int64_t) { *p = v; }

// All elements are doubles.
template <typename E>
struct Lanes;

#include "kernels/rows/loops.inl"

}  // namespace wide_loops

template <>
const Rows<double>& rows() {
  return wide_loops::table;
}
template <>
const BatchNormLoops<double>& batch_norm_loops() {
  return wide_loops::batch_norm_table<double>;
}

}  // namespace poptorch::kernels
