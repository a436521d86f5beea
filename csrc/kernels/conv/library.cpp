// Rows of conv/algorithms.h: convolutions by PyTorch, which calls oneDNN for most of them.
#include "kernels/conv/library.h"

#include "kernels/conv/algorithms.h"
#include "ops/layout.h"
#include "support/cpu/bf16_unit.h"
#include "support/loading/torch_library.h"

namespace poptorch::kernels {
namespace {

using Direction = ConvProblem::Direction;
using P = const ConvProblem&;

LibraryConvolutions& known() {
  static LibraryConvolutions functions;
  return functions;
}

Prepared onednn(P p) { return library_convolutions().onednn(p); }
Prepared bf16(P p) { return library_convolutions().bf16(p); }
Prepared no_products(P p) { return library_convolutions().no_products(p); }
RestOfOutputs rest(P p) { return library_convolutions().rest(p); }

// oneDNN ends the process where windows spread wider than the image see padding alone.
bool no_products_applies(P p) {
  return has_torch() && !p.is(Direction::gradients) && p.sees_padding_alone();
}
double no_products_cost(P) { return 0; }

bool onednn_takes(P p) {
  return has_torch() && !ir::is_half(p.x.dtype) && !p.sees_padding_alone();
}

bool onednn_applies(P p) { return !p.is(Direction::gradients) && onednn_takes(p); }

// Of a gradient of weights oneDNN cuts the sums by the number of threads. For 16 bits that is
// avoided, even for a slower one whose bits do not depend on it.
double weight_cost(P p) { return (p.is_upcast ? 4 : 1) + copy_cost(p); }

// The costs of other algorithms are times relative to this one's.
double onednn_cost(P p) {
  return p.is(Direction::weight_gradient) ? weight_cost(p) : 1 + copy_cost(p);
}

bool joint_applies(P p) { return p.is(Direction::gradients) && onednn_takes(p); }
// Winograd's for the input and oneDNN's for the weights together take 1.05 times as long.
double joint_cost(P p) {
  if (!p.wants_data) return weight_cost(p);
  return p.wants_weight ? 0.62 + weight_cost(p) : 1;
}

// Not where oneDNN's results are wrong: of spread kernels, for which it reads past the image, where
// zeros need not be; of images that a kernel does not fit into without padding; of volumes.
bool bf16_unit_applies(P p) {
  const ir::Type& image = p.image();
  if (!has_torch() || p.is(Direction::gradients) || image.dtype != ir::DType::bf16 ||
      !computes_bf16() || image.rank() > 4 || !is_all(p.dilation, 1)) {
    return false;
  }
  for (int64_t dim = 2; dim < image.rank(); ++dim) {
    if (image.sizes[dim] < p.w.sizes[dim]) return false;
  }
  return true;
}

// Gradients of weights get one thread. Of channels by themselves oneDNN takes 0.2 to 0.9 of the
// time of the loops for f32 and their copies, but where images lie in rows, gradients of images
// have strides or those of weights large kernels: there it takes up to 16 times as long.
double bf16_unit_cost(P p) {
  const bool is_dw = p.is(Direction::weight_gradient);
  const bool is_depthwise = p.groups > 1 && p.groups == p.x.sizes[1];
  const bool is_slow = is_dw ? p.taps() > 9 : p.is(Direction::data_gradient) && p.is_strided();
  const bool is_last = ops::lies_channels_last(p.x) && ops::lies_channels_last(p.y);
  if (is_depthwise && (is_slow || !is_last)) return 3;
  // few_channels takes 0.2 to 0.55 of the time, with the copies.
  if (p.groups == 1 && p.w.sizes[1] == 1 && !p.is(Direction::data_gradient)) return 1.2;
  return is_dw ? 0.6 : 0.3;
}

CONVOLUTION("no_products", "windows that see padding alone: the bias, or zeros",
            no_products_applies, no_products_cost, {no_products, WeightForm::by_tap})
CONVOLUTION("bf16_unit", "PyTorch's operator on bfloat16, which calls oneDNN", bf16_unit_applies,
            bf16_unit_cost, {bf16}, /*is_library=*/true, /*is_unit=*/true)
CONVOLUTION("onednn", "PyTorch's operator, which calls oneDNN for most problems", onednn_applies,
            onednn_cost, {onednn, WeightForm::onednn, rest}, /*is_library=*/true)
CONVOLUTION("onednn_joint", "the same for both gradients in one call", joint_applies, joint_cost,
            {onednn, WeightForm::onednn}, /*is_library=*/true)

}  // namespace

const LibraryConvolutions& library_convolutions() {
  load_torch();
  return known();
}

bool set_library_convolutions(const LibraryConvolutions& functions) {
  known() = functions;
  return note_torch();
}

}  // namespace poptorch::kernels
