// The loops of direct_weight_gradient.h for floats. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"
#include "kernels/conv/window.inl"
#include "kernels/conv/weight_gradient/direct_weight_gradient_loops.inl"

inline constexpr DirectGradientFunctions<float> direct_gradient_functions = {
    sum_weights<float>, weight_memory, NR};
