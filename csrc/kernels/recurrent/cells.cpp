#include "kernels/recurrent/cells.h"

#define POPTORCH_SIMD_SOURCE "kernels/recurrent/cells_simd.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace wide {

// float64 is for tests and debugging: one number at a time.
using T = double;
using V = double;
constexpr int width = 1;

inline V load(const T* p) { return *p; }
inline void store(T* p, V value) { *p = value; }
inline V load_part(const T*, int64_t) { return 0; }
inline void store_part(T*, V, int64_t) {}
inline V select(bool condition, V yes, V no) { return condition ? yes : no; }
inline V gate(V x) { return 1 / (1 + std::exp(-x)); }
inline V tanh(V x) { return std::tanh(x); }

#include "kernels/recurrent/cells.inl"

}  // namespace wide

template <>
const Cells<double>& cells<double>() {
  return wide::recurrent_cells;
}

template <>
const Cells<float>& cells<float>() {
  return simd::choose(simd::base::recurrent_cells, simd::avx2::recurrent_cells,
                      simd::avx512::recurrent_cells);
}

}  // namespace poptorch::kernels
