#include "kernels/conv/pointwise.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/gemm/float16.h"
#include "kernels/gemm/gemm.h"
#include "ops/layout.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

struct Sizes {
  int64_t images, inputs, outputs, pixels;  // pixels of the output
  bool is_matrix;  // the images are one matrix of pixels times channels

  Sizes(const ir::Type& input, const ir::Type& weight, const ir::Type& output)
      : images(input.sizes[0]), inputs(input.sizes[1]), outputs(weight.sizes[0]), pixels(1) {
    int64_t input_pixels = 1;
    for (size_t i = 2; i < output.sizes.size(); ++i) {
      pixels *= output.sizes[i];
      input_pixels *= input.sizes[i];
    }
    // With a stride one pixel may be read of a row-major image of several.
    is_matrix = input_pixels == 1 || !output.is_contiguous() || !input.is_contiguous();
  }
  int64_t rows() const { return images * pixels; }
};

// The pixels of the input that a convolution with strides reads, as if it had three dimensions: of
// planes with one number a pixel, or of images with all channels in one run.
struct Grid {
  std::array<int64_t, 3> input = {1, 1, 1}, output = {1, 1, 1}, stride = {1, 1, 1};
  int64_t planes, run;

  Grid(const Sizes& s, const ir::Type& in, const ir::Type& out, const ir::Dims& steps)
      : planes(s.is_matrix ? s.images : s.images * s.inputs), run(s.is_matrix ? s.inputs : 1) {
    const size_t dims = in.sizes.size() - 2;
    for (size_t i = 0; i < dims; ++i) {
      input[3 - dims + i] = in.sizes[2 + i];
      output[3 - dims + i] = out.sizes[2 + i];
      stride[3 - dims + i] = steps[steps.size() == 1 ? 0 : i];
    }
  }
  bool is_strided() const { return stride != std::array<int64_t, 3>{1, 1, 1}; }
  // Numbers of a plane.
  int64_t input_size() const { return input[0] * input[1] * input[2] * run; }
  int64_t output_size() const { return output[0] * output[1] * output[2] * run; }

  // fn(offset of a row in the input, in the output), for the rows of a plane.
  void for_each_row(const auto& fn) const {
    for (int64_t i = 0; i < output[0]; ++i) {
      for (int64_t j = 0; j < output[1]; ++j) {
        fn((i * stride[0] * input[1] + j * stride[1]) * input[2] * run,
           (i * output[1] + j) * output[2] * run);
      }
    }
  }
};

int64_t plane_grain(const Grid& g) { return std::max<int64_t>(1, 16384 / g.input_size()); }

// A row of n pixels that lie `from_step` and `to_step` apart.
template <typename T>
void copy_pixels(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t n, int64_t run) {
  if (run == 1) {
    for (int64_t k = 0; k < n; ++k) to[k * to_step] = from[k * from_step];
  } else {
    for (int64_t k = 0; k < n; ++k) std::copy_n(from + k * from_step, run, to + k * to_step);
  }
}

// The pixels that are read.
template <typename T>
void gather(const Grid& g, const T* x, T* out, int threads) {
  parallel_for(threads, g.planes, plane_grain(g), [&](int64_t plane) {
    g.for_each_row([&](int64_t in, int64_t row) {
      copy_pixels(x + plane * g.input_size() + in, g.stride[2] * g.run,
                  out + plane * g.output_size() + row, g.run, g.output[2], g.run);
    });
  });
}

// The other way; pixels that are not read get 0.
template <typename T>
void scatter(const Grid& g, const T* x, T* out, int threads) {
  parallel_for(threads, g.planes, plane_grain(g), [&](int64_t plane) {
    std::fill_n(out + plane * g.input_size(), g.input_size(), T{0});
    g.for_each_row([&](int64_t in, int64_t row) {
      copy_pixels(x + plane * g.output_size() + row, g.run,
                  out + plane * g.input_size() + in, g.stride[2] * g.run, g.output[2], g.run);
    });
  });
}

template <typename T>
void fill_bias(const Sizes& s, const T* bias, T* y) {
  if (s.is_matrix) {
    for (int64_t i = 0; i < s.rows(); ++i) std::copy_n(bias, s.outputs, y + i * s.outputs);
    return;
  }
  for (int64_t i = 0; i < s.images * s.outputs; ++i) {
    std::fill_n(y + i * s.pixels, s.pixels, bias[i % s.outputs]);
  }
}

// fn(image, threads) for all images: side by side, or one after the other on all threads when there
// are fewer images than threads.
void for_each_image(const Sizes& s, int threads, const auto& fn) {
  if (s.images < threads) {
    for (int64_t i = 0; i < s.images; ++i) fn(i, threads);
    return;
  }
  const int64_t work = s.inputs * s.outputs * s.pixels;
  const int64_t grain = std::max<int64_t>(1, gemm_grain / std::max<int64_t>(1, work));
  parallel_for(threads, s.images, grain, [&](int64_t i) { fn(i, 1); });
}

Gemm product_of(const Sizes& s) {
  return {s.rows(), s.outputs, s.inputs, false, true, s.inputs, s.inputs, s.outputs};
}

Gemm input_gradient_of(const Sizes& s) {
  return {s.rows(), s.inputs, s.outputs, false, false, s.outputs, s.inputs, s.inputs};
}

Gemm weight_gradient_of(const Sizes& s) {
  return {s.outputs, s.inputs, s.rows(), true, false, s.outputs, s.inputs, s.inputs};
}

template <typename T>
void forward(const Sizes& s, const T* x, const Args& args) {
  const T *w = args.in<T>(1), *bias = args.in<T>(2);
  T* y = args.out<T>(0);
  if constexpr (std::is_same_v<T, float>) {
    if (s.is_matrix) {
      Gemm g = product_of(s);
      g.bias = bias;
      return gemm(g, x, w, y, args.threads);
    }
  }
  if (bias != nullptr) fill_bias(s, bias, y);
  const double beta = bias == nullptr ? 0 : 1;
  if (s.is_matrix) {
    Gemm g = product_of(s);
    g.beta = beta;
    return gemm(g, x, w, y, args.threads);
  }
  const Gemm g{s.outputs, s.pixels, s.inputs, false, false, s.inputs, s.pixels, s.pixels, 1, beta};
  for_each_image(s, args.threads, [&](int64_t i, int threads) {
    gemm<T>(g, w, x + i * s.inputs * s.pixels, y + i * s.outputs * s.pixels, threads);
  });
}

template <typename T>
void input_gradient(const Sizes& s, const T* dy, const T* w, T* dx, int threads) {
  if (s.is_matrix) {
    return gemm<T>(input_gradient_of(s), dy, w, dx, threads);
  }
  const Gemm g{s.inputs, s.pixels, s.outputs, true, false, s.inputs, s.pixels, s.pixels};
  for_each_image(s, threads, [&](int64_t i, int inner) {
    gemm<T>(g, w, dy + i * s.outputs * s.pixels, dx + i * s.inputs * s.pixels, inner);
  });
}

template <typename T>
void weight_gradient(const Sizes& s, const T* dy, const T* x, T* dw, int threads) {
  if (s.is_matrix) {
    return gemm<T>(weight_gradient_of(s), dy, x, dw, threads);
  }
  Gemm g{s.outputs, s.inputs, s.pixels, false, true, s.pixels, s.pixels, s.inputs};
  for (int64_t i = 0; i < s.images; ++i) {
    gemm<T>(g, dy + i * s.outputs * s.pixels, x + i * s.inputs * s.pixels, dw, threads);
    g.beta = 1;
  }
}

// The pixels that the product reads: x itself, or what is gathered of it at the start of scratch.
template <typename T>
const T* pixels_read(const Grid& grid, const T* x, const Args& args) {
  if (!grid.is_strided()) return x;
  T* read = reinterpret_cast<T*>(args.scratch);
  gather(grid, x, read, args.threads);
  return read;
}

template <typename T>
size_t scratch_bytes(const Sizes& s, const Grid& grid) {
  return grid.is_strided() ? static_cast<size_t>(s.rows() * s.inputs) * sizeof(T) : 0;
}

template <typename T>
Prepared prepare_forward(const ConvProblem& p) {
  const Sizes s(p.x, p.w, p.y);
  const Grid grid(s, p.x, p.y, p.stride);
  const auto run = [=](const Args& args) {
    forward<T>(s, pixels_read(grid, args.in<T>(0), args), args);
  };
  return {run, scratch_bytes<T>(s, grid)};
}

template <typename T>
Prepared prepare_gradient(const ConvProblem& p) {
  const Sizes s(p.x, p.w, p.y);
  const Grid grid(s, p.x, p.y, p.stride);
  const size_t bytes = scratch_bytes<T>(s, grid);
  if (p.is(ConvProblem::Direction::weight_gradient)) {
    const auto run = [=](const Args& args) {
      const T* x = pixels_read(grid, args.in<T>(1), args);
      weight_gradient(s, args.in<T>(0), x, args.out<T>(1), args.threads);
    };
    return {run, bytes};
  }
  const auto run = [=](const Args& args) {
    T* dx = grid.is_strided() ? reinterpret_cast<T*>(args.scratch) : args.out<T>(0);
    input_gradient(s, args.in<T>(0), args.in<T>(2), dx, args.threads);
    if (grid.is_strided()) scatter(grid, dx, args.out<T>(0), args.threads);
  };
  return {run, bytes};
}

// -- 16-bit floats --

size_t gathered_bytes(const Sizes& s, const Grid& grid) {
  return align_up(scratch_bytes<uint16_t>(s, grid));
}

}  // namespace

void copy_residual(const Args& args, int64_t n) {
  constexpr int64_t grain = 8192;
  if (args.inputs[3] == args.outputs[0]) return;
  const auto* residual = args.in<float>(3);
  parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
    std::copy(residual + begin, residual + end, args.out<float>(0) + begin);
  });
}

bool is_scaled_product(const ConvProblem& p) {
  Gemm g{.n = p.w.sizes[0], .k = p.w.sizes[1], .trans_b = true};
  g.m = p.y.numel() / p.y.sizes[1];
  return takes_scale(g);
}

Prepared scaled_product(const Call& call) {
  const ir::Type x = ops::channels_first(call.in(0)), y = ops::channels_first(call.out());
  const Sizes s(x, {x.dtype, call.attrs().get_ints(ir::attr::weight_size), {}}, y);
  const Grid grid(s, x, y, call.attrs().get_ints(ir::attr::stride));
  Gemm g = product_of(s);
  g.beta = call.has_in(3) ? 1 : 0;
  g.relu = call.attrs().get_string(ir::attr::activation) == "relu";
  const auto run = [=](const Args& args) {
    float* out = args.out<float>(0);
    if (g.beta != 0) copy_residual(args, g.m * g.n);
    Gemm product = g;
    product.bias = args.in<float>(2);
    product.scale = args.in<float>(4);
    gemm(product, pixels_read(grid, args.in<float>(0), args), args.in<float>(1), out,
         args.threads);
  };
  return {run, scratch_bytes<float>(s, grid)};
}

bool has_half_products(const ConvProblem& p) {
  const Sizes s(p.x, p.w, p.y);
  const auto is_half_product = [&](const Gemm& g) { return has_float16_gemm(g, p.x.dtype); };
  return is_half_product(product_of(s)) && is_half_product(input_gradient_of(s)) &&
         is_half_product(weight_gradient_of(s));
}

Prepared half_pointwise(const ConvProblem& p) {
  using Direction = ConvProblem::Direction;
  const Sizes s(p.x, p.w, p.y);
  const Grid grid(s, p.x, p.y, p.stride);
  const size_t gathered = gathered_bytes(s, grid);
  if (p.is(Direction::forward)) {
    const bool has_bias = p.call->has_in(2);
    Gemm g = product_of(s);
    g.beta = has_bias ? 1 : 0;
    const Float16Gemm product(g, p.y.dtype);
    const auto run = [=](const Args& args) {
      const auto* x = pixels_read(grid, args.in<uint16_t>(0), args);
      if (has_bias) fill_bias(s, args.in<uint16_t>(2), args.out<uint16_t>());
      product.run(x, args.in<uint16_t>(1), args.out<uint16_t>(), args.scratch + gathered,
                  args.threads);
    };
    return {run, gathered + product.scratch_bytes(p.call->threads)};
  }
  const bool of_weight = p.is(Direction::weight_gradient);
  const Float16Gemm product(of_weight ? weight_gradient_of(s) : input_gradient_of(s), p.y.dtype);
  const auto run = [=](const Args& args) {
    const auto* dy = args.in<uint16_t>(0);
    std::byte* scratch = args.scratch + gathered;
    if (of_weight) {
      const auto* x = pixels_read(grid, args.in<uint16_t>(1), args);
      return product.run(dy, x, args.out<uint16_t>(1), scratch, args.threads);
    }
    auto* dx = grid.is_strided() ? reinterpret_cast<uint16_t*>(args.scratch)
                                 : args.out<uint16_t>(0);
    product.run(dy, args.in<uint16_t>(2), dx, scratch, args.threads);
    if (grid.is_strided()) scatter(grid, dx, args.out<uint16_t>(0), args.threads);
  };
  return {run, gathered + product.scratch_bytes(p.call->threads)};
}

Prepared pointwise_convolution(const ConvProblem& p) {
  return p.x.dtype == ir::DType::f64 ? prepare_forward<double>(p) : prepare_forward<float>(p);
}

Prepared pointwise_gradient(const ConvProblem& p) {
  return p.x.dtype == ir::DType::f64 ? prepare_gradient<double>(p) : prepare_gradient<float>(p);
}

}  // namespace poptorch::kernels
