// A convolution, or a gradient of one, as its algorithms see it (conv/algorithms.h).
#pragma once

#include <functional>

#include "kernels/conv/shape.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Computes the outputs of a call from the given one on, or all of them.
using RestOfOutputs = std::function<void(const ops::Args& args, int64_t first)>;

struct ConvProblem {
  enum class Direction {
    forward,          // y of x and w
    data_gradient,    // x of y and w: of the gradients that have their types
    weight_gradient,  // w of x and y
    gradients,        // both, in one call
  };
  // As the op `convolution` has them; as pack_convolution makes them; or unpacked in the place of
  // packed ones, as in the module.
  enum class Weights { plain, packed, unpacked };

  Direction direction = Direction::forward;
  Weights weights = Weights::plain;
  ir::Type x, w, y;  // with channels as dimension 1, and strides
  ir::Dims stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
  bool is_bias_row = true;   // the bias has no strides, or there is none
  bool wants_data = false, wants_weight = false;  // of `gradients`
  // The op's tensors have 16 bits, and are converted to f32 around this.
  bool is_upcast = false;
  // To prepare it: with one result, if it is one gradient; nullptr: not to be prepared. Not owned.
  const ops::Call* call = nullptr;

  // Of the ops `convolution` and `convolution_backward`, with layout channels_first.
  static ConvProblem forward(const ops::Call& call);
  static ConvProblem gradient(const ops::Call& call, Direction direction, bool is_upcast);
  // Of the ops packed_convolution and pack_convolution, which agree.
  static ConvProblem packed(const ops::Call& call);
  static ConvProblem packing(const ops::Call& call);

  bool is(Direction d) const { return direction == d; }
  // The side that the kernel stands on, and the other one.
  const ir::Type& image() const { return transposed ? y : x; }
  const ir::Type& pixels() const { return transposed ? x : y; }
  // What is computed in the directions forward and data_gradient, and what of.
  const ir::Type& result() const { return is(Direction::forward) ? y : x; }
  const ir::Type& source() const { return is(Direction::forward) ? x : y; }

  // In one dimension no tap of any window reads a pixel of the image: there are no products, so
  // results are the bias and gradients of operands are zeros.
  bool sees_padding_alone() const;
  // The dimension that is `from_end` dimensions before the end, all ones where there is none.
  ConvolutionAxis axis(size_t from_end) const;
  // Of a problem that is not transposed, in two dimensions.
  ConvolutionShape shape() const;
  bool is_empty() const { return x.numel() == 0 || w.numel() == 0 || y.numel() == 0; }
  int64_t taps() const { return ir::product({w.sizes.begin() + 2, w.sizes.end()}); }
  int64_t image_count() const { return x.sizes[0]; }
  static int64_t pixels_of(const ir::Type& type) {
    return ir::product({type.sizes.begin() + 2, type.sizes.end()});
  }
  bool is_strided() const { return !is_all(stride, 1); }
};

}  // namespace poptorch::kernels
