// The cells on vectors of floats. Included by simd/each_isa.h.
using T = float;
using V = vf;
using namespace kernels;

// The sigmoid. Where e^-x would leave the floats, the result is 0 or 1 but for 2e-38.
inline vf gate(vf x) {
  const vf low = select(x < -87.0f, splat(-87.0f), x);
  const Reduced r = reduce_exp(-select(low > 87.0f, splat(87.0f), low));
  const vf e = r.rest * r.rest * exp_tail(r.rest) + r.rest + 1.0f;
  return reciprocal(1.0f + e * power_of_two(r.exponent));
}

#include "kernels/recurrent/cells.inl"
