// The source of the f32 table in rows.h, compiled once for each instruction set.
namespace row_loops {

using namespace poptorch::kernels;

#include "kernels/simd/vec/half.inl"
#include "kernels/simd/vec/lanes.inl"

using T = float;
using V = vf;

inline V exp_of(V x) { return exp(x); }
inline V log_of(V x) { return log(x); }
inline V log1p_of(V x) { return log1p(x); }
inline vi bools_of(const uint8_t* p) { return load_bools(p); }

#include "kernels/rows/loops.inl"

}  // namespace row_loops
