// Convolutions of channels-last images on the unit for bfloat16 products, by parts
// (gemm/bf16/bf16x3.h),
// without im2col. Of a padded image that is packed once, pixel after pixel, the pixels that one
// tap of the kernel reads for 32 neighbouring pixels of the result are 32 neighbours as well: only
// where they start differs. The result is computed for the padded width, and what lies
// beyond its own width is left out. Kernels with a stride or dilation are not for this.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of images x[images, height, width, channels]: y[images, height', width', outputs].
struct Bf16x3Convolution {
  int64_t images, height, width, channels, outputs;
  int64_t kernel_height, kernel_width, padding_height, padding_width;
  // Where the weight of an output, a channel, and tap 0, 1, ... of the kernel lies: at
  // output * line + channel * depth + first + tap * next.
  int64_t line, depth, first, next;

  int64_t taps() const { return kernel_height * kernel_width; }
  // The taps of a channel lie side by side, as in PyTorch's weights.
  bool is_by_tap() const { return line != 1 && depth != 1; }
  int64_t padded_width() const { return width + 2 * padding_width; }
  int64_t out_height() const { return height + 2 * padding_height - kernel_height + 1; }
  int64_t out_width() const { return padded_width() - kernel_width + 1; }
};

// The most taps of a kernel whose weights may lie by tap: so many are packed together.
constexpr int64_t most_taps = 25;

// How the work is cut: units are some rows of an image or some whole images.
struct Bf16x3Units {
  int64_t rows, images;      // of the result, in a unit
  int64_t image_bytes;       // of the packed rows of one image
  int64_t panels, in_block;  // panels of 32 outputs; how many of them are packed at a time
  int64_t weight_bytes;      // of a block of panels

  Bf16x3Units(const Bf16x3Convolution& s, int threads);
  int64_t unit_bytes() const { return images * image_bytes; }
};

struct Bf16x3Data {
  const float *x, *w, *bias, *scale;  // without bias or scale: nullptr
  float* y;
  std::byte* scratch;  // weight_bytes, and unit_bytes for each thread
  const float* residual = nullptr;  // is added to y, in whose memory it may lie
  bool relu = false;                // comes last
};

// How many outputs, from the first on, are computed: not all when some number has no parts. Then a
// residual in the memory of y is still there for the others; without it they hold anything. At most
// as many threads as the units were cut for.
int64_t bf16x3_convolve(const Bf16x3Convolution& s, const Bf16x3Units& cut, const Bf16x3Data& data,
                        int threads);

// For results and gradients of inputs. Packed weights are [height, width, inputs, outputs] or, with
// at most most_taps, as in the module: [outputs, inputs, height, width]. Of the activations only
// relu is applied. `rest` computes the outputs for numbers without parts.
ops::Prepared bf16x3_convolution(const ConvProblem& problem, RestOfOutputs rest);

}  // namespace poptorch::kernels
