// The cells on vectors of floats. Included by simd/each_isa.h.
using T = float;
using V = vf;
using namespace kernels;

// The sigmoid, within 2e-38 where e^-x is near the largest float; 0 where it is beyond, which
// makes a NaN of an infinite state as in PyTorch.
inline vf gate(vf x) {
  const vf low = select(x < -87.0f, splat(-87.0f), x);
  const Reduced r = reduce_exp(-select(low > 87.0f, splat(87.0f), low));
  const vf e = r.rest * r.rest * exp_tail(r.rest) + r.rest + 1.0f;
  return select(x < -89.0f, vf{}, reciprocal(1.0f + e * power_of_two(r.exponent)));
}

#include "kernels/recurrent/cells.inl"
