// Convolutions by PyTorch, which calls oneDNN for most of them: rows of conv/algorithms.h.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Where the kernel of a `convolution`, its gradient, or a `packed_convolution` stands on the image.
struct ConvolutionGeometry {
  ir::Dims stride, padding, dilation;
  int64_t groups;

  // The attributes are those of a `convolution`, its gradient, or a `packed_convolution`.
  explicit ConvolutionGeometry(const ir::Attrs& attrs)
      : stride(attrs.get_ints("stride")),
        padding(attrs.get_ints("padding")),
        dilation(attrs.get_ints("dilation")),
        groups(attrs.get_int("groups")) {}
};

// In any direction, of f32, f64 and packed weights.
ops::Prepared onednn_convolution(const ConvProblem& problem);
// The same in torch's own memory, where it is seldom called.
ops::Prepared onednn_unplanned(const ConvProblem& problem);
// The bias, or zeros, of a problem that sees padding alone; NaN where what padding is multiplied by
// is not finite.
ops::Prepared no_products_convolution(const ConvProblem& problem);
ops::Prepared onednn_bf16(const ConvProblem& problem);
// 16-bit tensors converted to f32 around another algorithm, which it names.
ops::Prepared upcast_convolution(const ConvProblem& problem);

// Of the row packed_convolution. By parts only relu of the activations is applied.
ops::Prepared packed_by_parts(const ops::Call& call);
ops::Prepared packed_by_onednn(const ops::Call& call);
ops::Prepared packed_without_products(const ops::Call& call);

}  // namespace poptorch::kernels
