// Convolutions of bfloat16 images as products of im2col (conv/im2col_last.h) and the weight, summed
// in f32 by the loops of gemm/bf16/bf16_loops.h and rounded once:
//
//   forward          y[pixel, o]  = sum over k of im2col(x)[pixel, k] * w[o, k]
//   data gradient    the same of y's gradient with the kernel turned round, for strides of 1
//   weight gradient  dw[o, k]     = sum over pixels of dy[pixel, o] * im2col(x)[pixel, k]
//
// Strips of im2col are laid out by the thread that multiplies them, and stay in its cache. Tensors
// that do not lie channels-last are copied on the way.
#pragma once

#include "kernels/conv/problem.h"

namespace poptorch::kernels {

// Whether it computes a problem: of images or sequences, in one group, not transposed, where
// computes_bf16().
bool bf16_im2col_applies(const ConvProblem& problem);

ops::Prepared bf16_im2col(const ConvProblem& problem);

}  // namespace poptorch::kernels
