// The cells on vectors of floats. Included by simd/each_isa.h.
using T = float;
using V = vf;
using namespace kernels;
#include "kernels/recurrent_cells.inl"
