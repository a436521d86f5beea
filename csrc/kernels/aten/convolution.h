// Shared code of convolutions by PyTorch, with the weights of the module or with packed weights.
#pragma once

#include "kernels/conv/algorithms.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Where the kernel of a `convolution`, its gradient, or a `packed_convolution` stands on the image.
struct ConvolutionGeometry {
  ir::Dims stride, padding, dilation;
  int64_t groups;

  // The attributes are those of a `convolution`, its gradient, or a `packed_convolution`.
  explicit ConvolutionGeometry(const ir::Attrs& attrs)
      : stride(attrs.get_ints(ir::attr::stride)),
        padding(attrs.get_ints(ir::attr::padding)),
        dilation(attrs.get_ints(ir::attr::dilation)),
        groups(attrs.get_int(ir::attr::groups)) {}
};

// Of the op packed_convolution. In the rest of outputs only relu of the activations is applied.
ops::Prepared packed_by_onednn(const ops::Call& call);
ops::Prepared packed_without_products(const ops::Call& call);
RestOfOutputs packed_rest(const ops::Call& call);
// Of the op pack_convolution.
ops::Prepared pack_for_onednn(const ops::Call& call);

}  // namespace poptorch::kernels
