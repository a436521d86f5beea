#include "kernels/convolution_pointwise.h"

#include <algorithm>
#include <array>

#include "kernels/convolution_weights.h"
#include "kernels/gemm.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

struct Sizes {
  int64_t images, inputs, outputs, pixels;  // pixels of the output

  Sizes(const ir::Type& input, const ir::Type& weight, const ir::Type& output)
      : images(input.sizes[0]), inputs(input.sizes[1]), outputs(weight.sizes[0]), pixels(1) {
    for (size_t i = 2; i < output.sizes.size(); ++i) pixels *= output.sizes[i];
  }
};

// The pixels of the input that a convolution with strides reads, as if it had three dimensions.
struct Grid {
  std::array<int64_t, 3> input = {1, 1, 1}, output = {1, 1, 1}, stride = {1, 1, 1};

  Grid(const ir::Type& in, const ir::Type& out, const ir::Dims& steps) {
    const size_t dims = in.sizes.size() - 2;
    for (size_t i = 0; i < dims; ++i) {
      input[3 - dims + i] = in.sizes[2 + i];
      output[3 - dims + i] = out.sizes[2 + i];
      stride[3 - dims + i] = steps[steps.size() == 1 ? 0 : i];
    }
  }
  bool is_strided() const { return stride != std::array<int64_t, 3>{1, 1, 1}; }
  int64_t input_pixels() const { return input[0] * input[1] * input[2]; }
  int64_t output_pixels() const { return output[0] * output[1] * output[2]; }

  // fn(first pixel of a row in the input, in the output).
  template <typename Fn>
  void for_each_row(const Fn& fn) const {
    for (int64_t i = 0; i < output[0]; ++i) {
      for (int64_t j = 0; j < output[1]; ++j) {
        fn((i * stride[0] * input[1] + j * stride[1]) * input[2], (i * output[1] + j) * output[2]);
      }
    }
  }
};

int64_t plane_grain(const Grid& g) { return std::max<int64_t>(1, 16384 / g.input_pixels()); }

// The pixels that are read, of `planes` planes.
template <typename T>
void gather(const Grid& g, int64_t planes, const T* x, T* out, int threads) {
  parallel_for(threads, planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      g.for_each_row([&](int64_t in, int64_t row) {
        const T* from = x + plane * g.input_pixels() + in;
        T* to = out + plane * g.output_pixels() + row;
        for (int64_t k = 0; k < g.output[2]; ++k) to[k] = from[k * g.stride[2]];
      });
    }
  });
}

// The other way; pixels that are not read get 0.
template <typename T>
void scatter(const Grid& g, int64_t planes, const T* x, T* out, int threads) {
  parallel_for(threads, planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      std::fill_n(out + plane * g.input_pixels(), g.input_pixels(), T{0});
      g.for_each_row([&](int64_t in, int64_t row) {
        const T* from = x + plane * g.output_pixels() + row;
        T* to = out + plane * g.input_pixels() + in;
        for (int64_t k = 0; k < g.output[2]; ++k) to[k * g.stride[2]] = from[k];
      });
    }
  });
}

bool is_all(const ir::Dims& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == value; });
}

template <typename T>
void fill_bias(const Sizes& s, const T* bias, T* y) {
  for (int64_t i = 0; i < s.images * s.outputs; ++i) {
    std::fill_n(y + i * s.pixels, s.pixels, bias[i % s.outputs]);
  }
}

// fn(image, threads) for all images: side by side, or one after the other on all threads when there
// are fewer images than threads.
template <typename Fn>
void for_each_image(const Sizes& s, int threads, const Fn& fn) {
  if (s.images < threads) {
    for (int64_t i = 0; i < s.images; ++i) fn(i, threads);
    return;
  }
  const int64_t work = s.inputs * s.outputs * s.pixels;
  const int64_t grain = std::max<int64_t>(1, gemm_grain / std::max<int64_t>(1, work));
  parallel_for(threads, s.images, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i, 1);
  });
}

template <typename T>
void forward(const Sizes& s, const T* x, const Args& args) {
  const T *w = args.in<T>(1), *bias = args.in<T>(2);
  T* y = args.out<T>(0);
  if (bias != nullptr) fill_bias(s, bias, y);
  const double beta = bias == nullptr ? 0 : 1;
  if (s.pixels == 1) {
    gemm<T>({s.images, s.outputs, s.inputs, false, true, s.inputs, s.inputs, s.outputs, 1, beta}, x,
            w, y, args.threads);
    return;
  }
  const Gemm g{s.outputs, s.pixels, s.inputs, false, false, s.inputs, s.pixels, s.pixels, 1, beta};
  for_each_image(s, args.threads, [&](int64_t i, int threads) {
    gemm<T>(g, w, x + i * s.inputs * s.pixels, y + i * s.outputs * s.pixels, threads);
  });
}

template <typename T>
void input_gradient(const Sizes& s, const T* dy, const T* w, T* dx, int threads) {
  if (s.pixels == 1) {
    gemm<T>({s.images, s.inputs, s.outputs, false, false, s.outputs, s.inputs, s.inputs}, dy, w, dx,
            threads);
    return;
  }
  const Gemm g{s.inputs, s.pixels, s.outputs, true, false, s.inputs, s.pixels, s.pixels};
  for_each_image(s, threads, [&](int64_t i, int inner) {
    gemm<T>(g, w, dy + i * s.outputs * s.pixels, dx + i * s.inputs * s.pixels, inner);
  });
}

template <typename T>
void weight_gradient(const Sizes& s, const T* dy, const T* x, T* dw, int threads) {
  if (s.pixels == 1) {
    gemm<T>({s.outputs, s.inputs, s.images, true, false, s.outputs, s.inputs, s.inputs}, dy, x, dw,
            threads);
    return;
  }
  Gemm g{s.outputs, s.inputs, s.pixels, false, true, s.pixels, s.pixels, s.inputs};
  for (int64_t i = 0; i < s.images; ++i) {
    gemm<T>(g, dy + i * s.outputs * s.pixels, x + i * s.inputs * s.pixels, dw, threads);
    g.beta = 1;
  }
}

template <typename T>
Prepared prepare_forward(const Call& call) {
  const Sizes s(call.in(0), call.in(1), call.out());
  const Grid grid(call.in(0), call.out(), call.attrs().get_ints("stride"));
  const int64_t planes = s.images * s.inputs;
  const auto run = [=](const Args& args) {
    const T* x = args.in<T>(0);
    if (grid.is_strided()) {
      T* read = reinterpret_cast<T*>(args.scratch);
      gather(grid, planes, x, read, args.threads);
      x = read;
    }
    forward<T>(s, x, args);
  };
  return {run, grid.is_strided() ? static_cast<size_t>(planes * s.pixels) * sizeof(T) : 0};
}

template <typename T>
Prepared prepare_backward(const Call& call) {
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  const bool input = wanted[0], weight = wanted[1], bias = wanted[2];
  const Sizes s(call.in(1), call.in(2), call.in(0));
  const Grid grid(call.in(1), call.in(0), call.attrs().get_ints("stride"));
  const int64_t planes = s.images * s.inputs;
  const auto run = [=](const Args& args) {
    const T *dy = args.in<T>(0), *x = args.in<T>(1), *w = args.in<T>(2);
    T* read = reinterpret_cast<T*>(args.scratch);  // what is read of x, or its gradient
    if (weight) {
      if (grid.is_strided()) gather(grid, planes, x, read, args.threads);
      weight_gradient(s, dy, grid.is_strided() ? read : x, args.out<T>(1), args.threads);
    }
    if (input) {
      T* dx = grid.is_strided() ? read : args.out<T>(0);
      input_gradient(s, dy, w, dx, args.threads);
      if (grid.is_strided()) scatter(grid, planes, dx, args.out<T>(0), args.threads);
    }
    if (bias) sum_channels(s.images, s.outputs, s.pixels, dy, args.out<T>(2), args.threads);
  };
  return {run, grid.is_strided() ? static_cast<size_t>(planes * s.pixels) * sizeof(T) : 0};
}

}  // namespace

bool is_pointwise(const Call& call, const ir::Type& x, const ir::Type& w, const ir::Type& y) {
  const ir::Attrs& attrs = call.attrs();
  const bool plain = !attrs.get_bool("transposed") && attrs.get_int("groups") == 1 &&
                     is_all(attrs.get_ints("padding"), 0) &&
                     is_all({w.sizes.begin() + 2, w.sizes.end()}, 1);
  if (!plain || x.numel() == 0 || w.numel() == 0) return false;
  // Of a few pixels only, a product of matrices has nothing to gain.
  const int64_t pixels = Sizes(x, w, y).pixels;
  if (pixels > 1 && pixels < 32) return false;
  for (size_t i = 0; i < call.in_count(); ++i) {
    if (call.has_in(i) && !call.in(i).is_contiguous()) return false;
  }
  for (const auto& result : call.op.results) {
    if (!result->type.is_contiguous()) return false;
  }
  return true;
}

Prepared pointwise_convolution(const Call& call) {
  return call.in(0).dtype == ir::DType::f64 ? prepare_forward<double>(call)
                                            : prepare_forward<float>(call);
}

Prepared pointwise_convolution_backward(const Call& call) {
  return call.in(0).dtype == ir::DType::f64 ? prepare_backward<double>(call)
                                            : prepare_backward<float>(call);
}

}  // namespace poptorch::kernels
