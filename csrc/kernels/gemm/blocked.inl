// The loops of gemm/blocked.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"

inline void pack_panels(const float* b, int64_t stride, bool by_column, int64_t columns,
                        int64_t depth, float* packed) {
  pack_columns({b, 0, stride, by_column}, b, columns, depth, packed);
}

#include "kernels/gemm/blocked_loops.inl"

inline void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c, float* packed) {
  multiply_by_blocks(g, a, b, c, packed);
}

inline constexpr BlockedFunctions blocked_functions = {blocked_gemm, packed_words};
