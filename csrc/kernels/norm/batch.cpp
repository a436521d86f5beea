// Kernels of batch norm.
#include <cmath>

#include "kernels/float16.h"
#include "kernels/norm/channels.h"
#include "kernels/norm/factors.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/batch_norm.h"
#include "ops/kernel.h"
#include "ops/layout.h"
#include "support/mutant.h"

namespace poptorch::kernels {

namespace {

// What is computed for each channel before the elements are gone through: in scratch, after an
// array of `Part` for each chunk.
template <typename T, typename Part>
struct Work {
  Part* parts;
  T* factors[5];  // one entry for each channel

  Work(const Args& args, const Channels& c) {
    parts = reinterpret_cast<Part*>(args.scratch);
    T* next = reinterpret_cast<T*>(parts + c.chunks * c.channels);
    for (T*& factor : factors) {
      factor = next;
      next += c.channels;
    }
  }
  static size_t bytes(const Channels& c) {
    const auto parts = static_cast<size_t>(c.chunks * c.channels);
    return parts * sizeof(Part) + static_cast<size_t>(5 * c.channels) * sizeof(T);
  }
};

template <typename T>
T weight_of(const Args& args, size_t operand, int64_t channel, T otherwise) {
  const T* weight = args.in<T>(operand);
  return weight == nullptr ? otherwise : weight[channel];
}

// y = (x - mean) * scale + offset, mean, scale, offset being factors 0, 1, 2.
template <typename E>
void normalize(const Args& args, const Channels& c, const BatchNormRows<E>& images,
               simd::NumberOf<E>* const* factors) {
  using T = simd::NumberOf<E>;
  const BatchNormLoops<E>& loops = batch_norm_loops<E>();
  c.for_each(
      args.threads,
      [&](int64_t at, int64_t, int64_t channel) {
        const Affine<T> f{factors[0][channel], factors[1][channel], factors[2][channel]};
        loops.affine(images, at, c.inner, f);
      },
      [&](int64_t at, const Columns& columns, int64_t, int64_t first) {
        const AffineColumns<T> f{factors[0] + first, factors[1] + first, factors[2] + first};
        loops.affine_columns(images, at, columns, f);
      });
}

// Of the ops that take a residual.
template <typename E>
BatchNormRows<E> finished_images(const Args& args, bool relu) {
  return {args.in<E>(0), args.in<E>(5), args.out<E>(0), relu};
}

template <typename T>
T scale_of(const Args& args, size_t weight, int64_t channel, T invstd) {
  return weight_of<T>(args, weight, channel, 1) * invstd;
}

template <typename T>
void set_factors(const Work<T, Moments>& work, int64_t channel, T mean, T scale, T offset) {
  const Affine<T> factors = factors_of(mean, scale, offset);
  work.factors[0][channel] = factors.mean;
  work.factors[1][channel] = factors.scale;
  work.factors[2][channel] = factors.offset;
}

Moments join(const Moments* parts, const Channels& c, int64_t channel) {
  Moments sum;
  for (int64_t chunk = 0; chunk < c.chunks; ++chunk) {
    sum.add(parts[chunk * c.channels + channel]);
  }
  return sum;
}

template <typename E>
struct BatchNorm {
  using T = simd::NumberOf<E>;
  Channels c;
  double eps, momentum;
  bool relu;

  void measure(const Args& args, Moments* parts) const {
    const BatchNormLoops<E>& loops = batch_norm_loops<E>();
    const E* x = args.in<E>(0);
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          parts[chunk * c.channels + channel] = loops.moments(x + at, c.inner);
        },
        [&](int64_t at, const Columns& columns, int64_t chunk, int64_t first) {
          loops.moments_columns(x + at, columns, parts + chunk * c.channels + first);
        });
  }

  void move_running(const Args& args, size_t which, int64_t channel, double batch_value) const {
    if (args.in<T>(which) == nullptr) return;
    const double old = args.in<T>(which)[channel];
    args.out<T>(which)[channel] = static_cast<T>((1 - momentum) * old + momentum * batch_value);
  }

  void finish_channel(const Args& args, const Work<T, Moments>& work, int64_t channel) const {
    const Moments m = join(work.parts, c, channel);
    const bool is_constant = m.squares == 0 && eps == 0;  // torch's factor is 0, and not infinite
    const T invstd = is_constant ? T{0} : static_cast<T>(1 / std::sqrt(m.squares / m.count + eps));
    const T mean = static_cast<T>(m.mean);
    args.out<T>(1)[channel] = mean;
    args.out<T>(2)[channel] = invstd;
    set_factors<T>(work, channel, mean, scale_of<T>(args, 1, channel, invstd),
                   weight_of<T>(args, 2, channel, 0));
    move_running(args, 3, channel, m.mean);
    move_running(args, 4, channel, m.squares / (m.count - (MUTANT(running_var_biased) ? 0 : 1)));
  }

  void run(const Args& args) const {
    const Work<T, Moments> work(args, c);
    measure(args, work.parts);
    c.for_each_channel(args.threads, [&](int64_t i) { finish_channel(args, work, i); });
    normalize<E>(args, c, finished_images<E>(args, relu), work.factors);
  }
};

Channels channels_of(const Call& call, size_t operand) {
  return Channels(call.in(operand), ops::is_channels_last(call.op));
}

// Calls fn(E{}) with the type of the images.
Prepared with_image_type(const Call& call, size_t images, const auto& fn) {
  switch (call.in(images).dtype) {
    case ir::DType::f16: return fn(simd::F16{});
    case ir::DType::bf16: return fn(simd::BF16{});
    default: return with_float_type(call, call.in(images).dtype, fn);
  }
}

// Any mixture of types. Of 16-bit floats images stay as they are, if all of them are of that type,
// and what has an entry for each channel is upcast.
Prepared of_any_types(const Call& call, size_t images, ops::Prepare prepare) {
  if (!ops::uses_half(call)) return prepare(call);
  const ir::Type& type = call.in(images);
  const auto is_image = [sizes = type.sizes](const ir::Type& t) { return t.sizes == sizes; };
  const auto is_other = [&](const ir::Type& t) {
    return is_image(t) && (t.dtype != type.dtype || !t.is_contiguous());
  };
  bool are_alike = ir::is_half(type.dtype);
  for (size_t i = 0; i < call.in_count(); ++i) {
    are_alike = are_alike && !(call.has_in(i) && is_other(call.in(i)));
  }
  for (const auto& result : call.op.results) are_alike = are_alike && !is_other(result->type);
  return are_alike ? prepare_upcast(call, prepare, is_image) : prepare_upcast(call, prepare);
}

Prepared batch_norm(const Call& call) {
  return with_image_type(call, 0, [&]<typename E>(E) -> Prepared {
    const BatchNorm<E> norm{channels_of(call, 0), call.attrs().get_float(ir::attr::eps),
                            call.attrs().get_float(ir::attr::momentum),
                            call.attrs().get_bool(ir::attr::relu)};
    return {[norm](const Args& args) { norm.run(args); },
            Work<simd::NumberOf<E>, Moments>::bytes(norm.c)};
  });
}

// Normalizes by given statistics: a mean and what `invstd_of` makes of the other one. `images_of`
// gives the BatchNormRows.
template <typename E, typename ImagesOf, typename Invstd>
Prepared normalize_by(const Call& call, const ImagesOf& images_of, const Invstd& invstd_of) {
  using T = simd::NumberOf<E>;
  const Channels c = channels_of(call, 0);
  const auto run = [=](const Args& args) {
    const Work<T, Moments> work(args, c);
    for (int64_t channel = 0; channel < c.channels; ++channel) {
      set_factors<T>(work, channel, args.in<T>(3)[channel],
                     scale_of<T>(args, 1, channel, invstd_of(args.in<T>(4)[channel])),
                     weight_of<T>(args, 2, channel, 0));
    }
    normalize<E>(args, c, images_of(args), work.factors);
  };
  return {run, Work<T, Moments>::bytes(c)};
}

Prepared batch_norm_inference(const Call& call) {
  return with_image_type(call, 0, [&]<typename E>(E) -> Prepared {
    const double eps = call.attrs().get_float(ir::attr::eps);
    return normalize_by<E>(
        call,
        [](const Args& args) {
          return BatchNormRows<E>{args.in<E>(0), nullptr, args.out<E>(0), false};
        },
        [eps]<typename T>(T variance) { return static_cast<T>(1 / std::sqrt(variance + eps)); });
  });
}

Prepared batch_norm_apply(const Call& call) {
  return with_image_type(call, 0, [&]<typename E>(E) -> Prepared {
    const bool relu = call.attrs().get_bool(ir::attr::relu);
    return normalize_by<E>(
        call, [relu](const Args& args) { return finished_images<E>(args, relu); },
        [](auto invstd) { return invstd; });
  });
}

template <typename E>
struct BatchNormBackward {
  using T = simd::NumberOf<E>;
  Channels c;
  bool training, wants_masked;

  void measure(const Args& args, const BatchNormGradRows<E>& images, GradSums* parts) const {
    const BatchNormLoops<E>& loops = batch_norm_loops<E>();
    const T* mean = args.in<T>(3);
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          parts[chunk * c.channels + channel] =
              loops.grad_sums(images, at, c.inner, mean[channel]);
        },
        [&](int64_t at, const Columns& columns, int64_t chunk, int64_t first) {
          loops.grad_sums_columns(images, at, columns, mean + first,
                                  parts + chunk * c.channels + first);
        });
  }

  void finish_channel(const Args& args, const Work<T, GradSums>& work, int64_t channel) const {
    GradSums sums;
    for (int64_t chunk = 0; chunk < c.chunks; ++chunk) {
      sums.plain += work.parts[chunk * c.channels + channel].plain;
      sums.times_x += work.parts[chunk * c.channels + channel].times_x;
    }
    const double invstd = args.in<T>(4)[channel];
    const double n = static_cast<double>(c.per_channel());
    const double scale = weight_of<T>(args, 2, channel, 1) * invstd;
    args.out<T>(1)[channel] = static_cast<T>(sums.times_x * invstd);
    args.out<T>(2)[channel] = static_cast<T>(sums.plain);
    work.factors[0][channel] = args.in<T>(3)[channel];
    work.factors[1][channel] = static_cast<T>(scale);
    work.factors[2][channel] = static_cast<T>(-scale * invstd * invstd * sums.times_x / n);
    // The gradients sum to zero. Equal rounding errors in all entries of a channel would add up in
    // the weights before. So the mean is subtracted first, and its own rounding error is corrected.
    const double mean = sums.plain / n;
    const T rounded = static_cast<T>(mean);
    work.factors[3][channel] =
        std::isfinite(rounded) ? static_cast<T>(-scale * (mean - rounded)) : T{0};
    work.factors[4][channel] = rounded;
  }

  void run(const Args& args) const {
    const BatchNormLoops<E>& loops = batch_norm_loops<E>();
    const Work<T, GradSums> work(args, c);
    BatchNormGradRows<E> images{args.in<E>(0),  args.in<E>(1),
                                args.in<E>(5),  args.out<E>(0),
                                wants_masked ? args.out<E>(3) : nullptr, !training};
    measure(args, images, work.parts);
    c.for_each_channel(args.threads, [&](int64_t i) { finish_channel(args, work, i); });
    if (wants_masked) images.g = images.masked, images.out = nullptr, images.masked = nullptr;
    T* const* f = work.factors;
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t, int64_t channel) {
          const GradAffine<T> factors{f[0][channel], f[1][channel], f[2][channel], f[3][channel],
                                      f[4][channel]};
          loops.grad_affine(images, at, c.inner, factors);
        },
        [&](int64_t at, const Columns& columns, int64_t, int64_t first) {
          const GradAffineColumns<T> factors{f[0] + first, f[1] + first, f[2] + first,
                                             f[3] + first, f[4] + first};
          loops.grad_affine_columns(images, at, columns, factors);
        });
  }
};

Prepared batch_norm_backward(const Call& call) {
  return with_image_type(call, 1, [&]<typename E>(E) -> Prepared {
    const BatchNormBackward<E> norm{channels_of(call, 1), call.attrs().get_bool(ir::attr::training),
                                    call.attrs().get_bool(ir::attr::grad_residual)};
    return {[norm](const Args& args) { norm.run(args); },
            Work<simd::NumberOf<E>, GradSums>::bytes(norm.c)};
  });
}

template <ops::Prepare prepare, size_t images = 0>
Prepared of_any_types(const Call& call) {
  return of_any_types(call, images, prepare);
}

}  // namespace

KERNEL("batch_norm", of_any_types<batch_norm>, true)
KERNEL("batch_norm_inference", of_any_types<batch_norm_inference>, true)
KERNEL("batch_norm_apply", of_any_types<batch_norm_apply>, true)
KERNEL("batch_norm_backward", (of_any_types<batch_norm_backward, 1>), true)

}  // namespace poptorch::kernels
