// Inner loops of convolutions of each channel by itself, over images with channels last; compiled
// once for each instruction set.
#pragma once

#include <cstdint>

namespace poptorch::simd {

// An entry of the result takes entry `source` of the image, times weight `weight`, along one axis.
struct DepthwiseTap {
  int32_t source, weight;
};

// So many columns are computed together.
inline constexpr int quad = 4;

// The columns of a row of the result: those of column j are taps[first[j]] to taps[first[j + 1]].
struct DepthwiseColumns {
  const int32_t* first;
  const DepthwiseTap* taps;
  // What can be computed together from column j on:
  //   spread: `quad` times `step` columns; those that are `step` apart take by the same weights,
  //       with equal distances from one to the next.
  //   windows: `quad` neighbours, which take what DepthwiseWindow says.
  enum Alike : uint8_t { unlike, spread, windows };
  const Alike* alike;
  int64_t count, step;
};

// The columns of a result that take by one weight: `count` from `begin` on, from the image's column
// `source` on, `apart` columns from each other.
struct DepthwiseRange {
  int32_t begin, count, source, apart;
};

struct DepthwiseRow {
  const float* image;  // [rows, width, channels]
  int64_t width, channels;
  const DepthwiseTap* rows;  // what the row of the result takes
  int64_t row_count;
  int64_t kernel_width;
  // What the next row of the result takes of the image in addition, to be brought from memory while
  // this one is computed; it may be empty.
  const float* ahead;
  int64_t ahead_count;
};

// What a column takes where it takes by all weights and these lie side by side: `taps` columns of
// the image, `apart` from those of the next. 0 taps: where they do not.
struct DepthwiseWindow {
  int64_t taps = 0, apart = 1;
};

struct DepthwiseLoops {
  // out[j] = bias + the sum over taps of image * weights, weights being [taps, channels]; bias may
  // be null.
  void (*convolve)(const DepthwiseRow& row, const DepthwiseColumns& columns, const float* weights,
                   const float* bias, float* out);
  // sums[tap] += the sum over columns of grad * image, sums being [taps, channels]; a range for
  // each column of the weights.
  void (*weight_sums)(const DepthwiseRow& row, const DepthwiseRange* ranges, const float* grad,
                      double* sums);
};

// Of the instruction set in use: to be got when a kernel is prepared.
const DepthwiseLoops& depthwise_loops(const DepthwiseWindow& window);

}  // namespace poptorch::simd
