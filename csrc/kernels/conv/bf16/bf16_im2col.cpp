#include "kernels/conv/bf16/bf16_im2col.h"

#include <algorithm>

#include "kernels/conv/im2col_last.h"
#include "kernels/conv/layers.h"
#include "kernels/float16_blocks.h"
#include "kernels/gemm/bf16/bf16_loops.h"
#include "kernels/gemm/blocked.h"
#include "kernels/move/copy.h"
#include "ops/layout.h"
#include "support/memory/align.h"
#include "support/ceil_div.h"
#include "support/cpu/bf16_unit.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using Direction = ConvProblem::Direction;

constexpr int64_t strip_numbers = 1 << 18;  // of im2col: half of a second cache
constexpr int64_t enough_parts = 8;         // that threads share evenly

// The gradient of the input, of a convolution without strides, as a convolution of dy.
ConvolutionShape turned(const ConvolutionShape& s) {
  const auto axis = [](const ConvolutionAxis& a) {
    return ConvolutionAxis{a.to, a.from, a.kernel, 1, a.dilation * (a.kernel - 1) - a.padding,
                           a.dilation};
  };
  return {s.images, s.outputs, s.channels, axis(s.h), axis(s.w)};
}

// Parts of scratch memory, which is nullptr when its size is asked for.
class Scratch {
 public:
  explicit Scratch(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* take(int64_t numbers) {
    T* part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += align_up(static_cast<size_t>(numbers) * sizeof(T));
    return part;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  size_t bytes_ = 0;
};

// A tensor that is read or written channels-last, in scratch memory where it lies otherwise.
class ChannelsLast {
 public:
  explicit ChannelsLast(const ir::Type& type) {
    if (ops::lies_channels_last(type)) return;
    const ir::Type lies = ops::channels_last(type), last{type.dtype, lies.sizes, {}};
    numbers_ = type.numel();
    const ir::Dims strides = lies.actual_strides(), wanted = last.actual_strides();
    to_last_ = CopyPlan(lies.sizes, wanted, strides, sizeof(uint16_t));
    from_last_ = CopyPlan(lies.sizes, strides, wanted, sizeof(uint16_t));
  }

  const uint16_t* read(const uint16_t* x, Scratch& scratch, int threads) const {
    auto* copy = scratch.take<uint16_t>(numbers_);
    if (numbers_ == 0) return x;
    to_last_.run(copy, x, threads);
    return copy;
  }
  // Where to write y, and what brings it there.
  uint16_t* target(uint16_t* y, Scratch& scratch) const {
    auto* copy = scratch.take<uint16_t>(numbers_);
    return numbers_ == 0 ? y : copy;
  }
  void finish(uint16_t* y, const uint16_t* written, int threads) const {
    if (numbers_ > 0) from_last_.run(y, written, threads);
  }
  void reserve(Scratch& scratch) const { scratch.take<uint16_t>(numbers_); }

 private:
  int64_t numbers_ = 0;  // of the copy
  CopyPlan to_last_, from_last_;
};

// -- results: pixels by outputs --

struct Forward {
  ConvolutionShape s;
  int64_t depth, pixels, strip, columns;  // columns: of the result, of a part

  explicit Forward(const ConvolutionShape& shape)
      : s(shape), depth(shape.taps() * shape.channels), pixels(shape.lines() * shape.w.to) {
    constexpr int64_t least = 768, most = 1536, least_columns = 64;
    strip = std::clamp<int64_t>(strip_numbers / depth, least, most);
    const auto strips = [&] { return ceil_div(pixels, strip); };
    strip = round_up(ceil_div(pixels, strips()), blocked_mr);
    // Few pixels are laid out again for each part of the columns.
    const int64_t wanted = strips() < enough_parts ? ceil_div(enough_parts, strips()) : 1;
    const int64_t parts = std::clamp<int64_t>(s.outputs / least_columns, 1, wanted);
    columns = round_up(ceil_div(s.outputs, parts), blocked_nr);
  }

  int64_t across() const { return ceil_div(s.outputs, columns); }
  int64_t count() const { return ceil_div(pixels, strip) * across(); }

  struct Memory {
    uint16_t* matrix;
    float* sums;
  };
  Memory memory(Scratch& scratch) const {
    return {scratch.take<uint16_t>(strip * depth), scratch.take<float>(strip * columns)};
  }
};

// b is the weight as a matrix: [outputs, depth], or with `by_depth` [depth, outputs].
struct Weight {
  const uint16_t* b;
  bool by_depth;
};

void multiply_strip(const Forward& f, int64_t i, const uint16_t* images, const Weight& weight,
                    const float* bias, const Forward::Memory& memory, uint16_t* y) {
  const int64_t first = i / f.across() * f.strip, column = i % f.across() * f.columns;
  const int64_t rows = std::min(f.strip, f.pixels - first);
  const int64_t columns = std::min(f.columns, f.s.outputs - column);
  im2col_rows(f.s, images, first, first + rows, {0, f.depth}, memory.matrix);
  for (int64_t row = 0; bias != nullptr && row < rows; ++row) {
    std::copy_n(bias + column, columns, memory.sums + row * columns);
  }
  const int64_t ldb = weight.by_depth ? f.s.outputs : f.depth;
  const Gemm g{.m = rows,
               .n = columns,
               .k = f.depth,
               .trans_b = !weight.by_depth,
               .lda = f.depth,
               .ldb = ldb,
               .ldc = columns,
               .beta = bias == nullptr ? 0.0 : 1.0};
  bf16_loops_gemm(g, memory.matrix, weight.b + column * (weight.by_depth ? 1 : ldb), memory.sums);
  const Downcast downcast = downcast_to(ir::DType::bf16);
  for (int64_t row = 0; row < rows; ++row) {
    downcast(memory.sums + row * columns, y + (first + row) * f.s.outputs + column, columns);
  }
}

void multiply(const Forward& f, const uint16_t* images, const Weight& weight, const float* bias,
              uint16_t* y, std::byte* scratch, int threads) {
  Scratch own(nullptr);
  f.memory(own);
  const int64_t parts = std::min<int64_t>(threads, f.count());
  parallel_parts(threads, parts, f.count(), [&](int64_t part, int64_t begin, int64_t end) {
    Scratch of_part(scratch + static_cast<size_t>(part) * own.bytes());
    const Forward::Memory memory = f.memory(of_part);
    for (int64_t i = begin; i < end; ++i) multiply_strip(f, i, images, weight, bias, memory, y);
  });
}

size_t scratch_bytes(const Forward& f, int threads) {
  Scratch own(nullptr);
  f.memory(own);
  return own.bytes() * static_cast<size_t>(threads);
}

Prepared forward(const ConvProblem& p) {
  const Forward f(p.shape());
  const ChannelsLast x(p.x), w(p.w), y(p.y);
  const bool has_bias = p.call->has_in(2);
  Scratch shared(nullptr);
  for (const ChannelsLast* tensor : {&x, &w, &y}) tensor->reserve(shared);
  shared.take<float>(has_bias ? f.s.outputs : 0);
  const auto run = [=](const Args& args) {
    Scratch scratch(args.scratch);
    const uint16_t* images = x.read(args.in<uint16_t>(0), scratch, args.threads);
    const uint16_t* weight = w.read(args.in<uint16_t>(1), scratch, args.threads);
    uint16_t* target = y.target(args.out<uint16_t>(), scratch);
    float* bias = scratch.take<float>(has_bias ? f.s.outputs : 0);
    if (has_bias) upcast_from(ir::DType::bf16)(args.in<uint16_t>(2), bias, f.s.outputs);
    multiply(f, images, {weight, false}, has_bias ? bias : nullptr, target,
             args.scratch + scratch.bytes(), args.threads);
    y.finish(args.out<uint16_t>(), target, args.threads);
  };
  return {run, shared.bytes() + scratch_bytes(f, p.call->threads)};
}

// [(tap of the kernel turned round, output), channel] of [output, tap, channel].
void turn_weight(const ConvolutionShape& s, const uint16_t* w, uint16_t* to, int threads) {
  const int64_t taps = s.taps();
  constexpr int64_t copy_grain = 1 << 14;
  const int64_t grain = std::max<int64_t>(1, copy_grain / s.channels);
  parallel_for(threads, taps * s.outputs, grain, [&](int64_t row) {
    const int64_t tap = taps - 1 - row / s.outputs, output = row % s.outputs;
    std::copy_n(w + (output * taps + tap) * s.channels, s.channels, to + row * s.channels);
  });
}

Prepared data_gradient(const ConvProblem& p) {
  const ConvolutionShape s = p.shape();
  const Forward f(turned(s));
  const ChannelsLast dy(p.y), w(p.w), dx(p.x);
  const int64_t numbers = s.taps() * s.channels * s.outputs;
  Scratch shared(nullptr);
  for (const ChannelsLast* tensor : {&dy, &w, &dx}) tensor->reserve(shared);
  shared.take<uint16_t>(numbers);
  const auto run = [=](const Args& args) {
    Scratch scratch(args.scratch);
    const uint16_t* images = dy.read(args.in<uint16_t>(0), scratch, args.threads);
    const uint16_t* weight = w.read(args.in<uint16_t>(2), scratch, args.threads);
    uint16_t* target = dx.target(args.out<uint16_t>(0), scratch);
    auto* turned_weight = scratch.take<uint16_t>(numbers);
    turn_weight(s, weight, turned_weight, args.threads);
    multiply(f, images, {turned_weight, true}, nullptr, target, args.scratch + scratch.bytes(),
             args.threads);
    dx.finish(args.out<uint16_t>(0), target, args.threads);
  };
  return {run, shared.bytes() + scratch_bytes(f, p.call->threads)};
}

// -- gradients of weights: outputs by columns of im2col, sums over pixels --

// Parts of a small dw are sums over parts of the pixels, joined in their order; those of a large
// one are some of its columns. How it is cut depends on the sizes alone.
struct WeightGradient {
  ConvolutionShape s;
  int64_t depth, pixels, strip;
  int64_t layers = 1, columns;  // parts of the pixels, columns of a part

  explicit WeightGradient(const ConvolutionShape& shape)
      : s(shape), depth(shape.taps() * shape.channels), pixels(shape.lines() * shape.w.to) {
    constexpr int64_t most_sums = 1 << 16, least_columns = 128, most_parts = 16;
    constexpr int64_t block = 512, longest = 2048;  // of a sum, as the loops take it
    if (s.outputs * depth <= most_sums) {
      layers = std::clamp<int64_t>(pixels / block, 1, enough_parts);
      columns = depth;
    } else {
      const int64_t parts = std::clamp<int64_t>(depth / least_columns / 2 * 2, 1, most_parts);
      columns = round_up(ceil_div(depth, parts), blocked_nr);
    }
    strip = std::clamp<int64_t>(strip_numbers / columns / block * block, block, longest);
  }

  int64_t across() const { return ceil_div(depth, columns); }
  int64_t numbers() const { return s.outputs * depth; }
};

// Some columns of one layer of the sums.
void sum_part(const WeightGradient& w, int64_t i, const uint16_t* dy, const uint16_t* images,
              uint16_t* matrix, float* sums) {
  const int64_t layer = i / w.across(), column = i % w.across() * w.columns;
  const MatrixColumns columns{column, std::min(w.depth, column + w.columns)};
  const int64_t begin = w.pixels * layer / w.layers, end = w.pixels * (layer + 1) / w.layers;
  for (int64_t first = begin; first < end; first += w.strip) {
    const int64_t count = std::min(w.strip, end - first);
    im2col_rows(w.s, images, first, first + count, columns, matrix);
    const Gemm g{.m = w.s.outputs,
                 .n = columns.count(),
                 .k = count,
                 .trans_a = true,
                 .lda = w.s.outputs,
                 .ldb = columns.count(),
                 .ldc = w.depth,
                 .beta = first == begin ? 0.0 : 1.0};
    bf16_loops_gemm(g, dy + first * w.s.outputs, matrix, sums + layer * w.numbers() + column);
  }
}

Prepared weight_gradient(const ConvProblem& p) {
  const WeightGradient w(p.shape());
  const ChannelsLast x(p.x), dy(p.y), dw(p.w);
  const int64_t of_strip = align_numbers<uint16_t>(w.strip * w.columns);
  Scratch all(nullptr);
  for (const ChannelsLast* tensor : {&x, &dy, &dw}) tensor->reserve(all);
  all.take<float>(w.layers * w.numbers());
  all.take<uint16_t>(of_strip * p.call->threads);
  const auto run = [=](const Args& args) {
    Scratch scratch(args.scratch);
    const uint16_t* values = dy.read(args.in<uint16_t>(0), scratch, args.threads);
    const uint16_t* images = x.read(args.in<uint16_t>(1), scratch, args.threads);
    uint16_t* target = dw.target(args.out<uint16_t>(1), scratch);
    auto* sums = scratch.take<float>(w.layers * w.numbers());
    auto* matrix = scratch.take<uint16_t>(of_strip * args.threads);
    const int64_t sum_parts = w.layers * w.across();
    const int64_t parts = std::min<int64_t>(args.threads, sum_parts);
    parallel_parts(args.threads, parts, sum_parts, [&](int64_t part, int64_t begin, int64_t end) {
      uint16_t* own = matrix + part * of_strip;
      for (int64_t i = begin; i < end; ++i) sum_part(w, i, values, images, own, sums);
    });
    add_layers(sums, sums + w.numbers(), w.layers - 1, w.numbers(), target, args.threads);
    dw.finish(args.out<uint16_t>(1), target, args.threads);
  };
  return {run, all.bytes()};
}

}  // namespace

bool bf16_im2col_applies(const ConvProblem& p) {
  if (p.x.dtype != ir::DType::bf16 || !computes_bf16() || p.is(Direction::gradients)) return false;
  if (p.x.rank() > 4 || p.groups != 1 || p.transposed || p.is_empty() || !p.is_bias_row) {
    return false;
  }
  if (!p.is(Direction::data_gradient)) return true;
  const ConvolutionShape t = turned(p.shape());
  return !p.is_strided() && t.h.padding >= 0 && t.w.padding >= 0;
}

Prepared bf16_im2col(const ConvProblem& p) {
  if (p.is(Direction::forward)) return forward(p);
  return p.is(Direction::data_gradient) ? data_gradient(p) : weight_gradient(p);
}

}  // namespace poptorch::kernels
