// The gradient of a convolution's weight over channels-last images, without im2col:
//
//   dw[o, kh, kw, c] = sum over images and pixels of dy[pixel, o] * x[what (kh, kw) sees there, c]
//
// Of some rows of pixels at a time, what they see of the input is packed once for a panel of
// channels, as wide as two vectors. A tap of the kernel reads the same panel from another pixel
// on, so a tile of dw (some o by the channels of the panel at one tap) is a product of values of
// dy and of that panel, summed in registers and added to dw. Images are of f32 or, where
// computes_bf16(), of bfloat16, which are summed in f32 and rounded once.
#pragma once

#include <cstdint>

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

struct DirectGradient : ConvolutionShape {
  // How the lines of pixels are cut into strips.
  int64_t strips() const { return ceil_div(lines(), lines_at_once()); }
  int64_t first_line(int64_t strip) const { return lines() * strip / strips(); }
  int64_t most_lines() const { return ceil_div(lines(), strips()); }
};

// A part of dw that one thread computes, of its sums what some strips give.
struct WeightPart {
  int64_t channel, channels;  // at most those of a panel
  int64_t row, rows;
  int64_t tap, taps;  // of the kernel
  int64_t strip, strips;
};

}  // namespace poptorch::kernels

namespace poptorch::simd {

// The loops of one instruction set, for numbers of type T.
template <typename T>
struct DirectGradientFunctions {
  void (*sum)(const kernels::DirectGradient&, const kernels::WeightPart&, const T* x, const T* dy,
              float* dw, float* memory);
  int64_t (*memory)(const kernels::DirectGradient&);  // floats that a thread needs
  int64_t nr;                                         // channels of a panel
};

namespace avx512bf16 {
extern const DirectGradientFunctions<uint16_t> direct_gradient_functions;
}

}  // namespace poptorch::simd

namespace poptorch::kernels {

// Writes result 1 of the call, dw. The order of a sum does not depend on the number of threads.
ops::Prepared direct_weight_gradient(const ConvProblem& problem);

// Channels of a panel (NR) of images of a type, in the instruction set in use.
int64_t direct_columns(ir::DType dtype);

}  // namespace poptorch::kernels
