// Kernels of batch norm.
#include <cmath>

#include "kernels/float16.h"
#include "kernels/norm/channels.h"
#include "kernels/norm/factors.h"
#include "kernels/norm/images.h"
#include "kernels/reduction/types.h"
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

ImageBlock run_of(int64_t at, int64_t n) { return {at, 1, n, n}; }
ImageBlock block_of(int64_t at, const Columns& c) { return {at, c.n, c.stride, c.columns}; }
Columns columns_of(const ImageBlock& block) { return {block.rows, block.stride, block.columns}; }

// Of which the loops keep sums in the type of the entries.
constexpr int64_t summed_rows = 128;

// So many that four images' entries stay in the first cache.
int64_t rows_at_once(const Columns& c) {
  constexpr int64_t entries = 2048;
  return std::max<int64_t>(1, entries / std::max<int64_t>(c.columns, 1));
}

// What a normalization reads and writes: y = relu(x + residual), as far as there are such.
struct NormalizedImages {
  const void *x, *residual;
  void* y;
  bool relu;
};

// loops(rows, block) for a block of the images.
template <typename T>
void normalize_block(const Images<T>& images, const NormalizedImages& all, const ImageBlock& block,
                     const auto& loops) {
  T* y = images.target(0, all.y, block);
  loops(BatchNormRows<T>{images.read(0, all.x, block), images.read(1, all.residual, block), y,
                         all.relu},
        images.seen(block));
  images.write(y, all.y, block);
}

// y = (x - mean) * scale + offset, mean, scale, offset being factors 0, 1, 2.
template <typename T>
void normalize(const Args& args, const Channels& c, const Images<T>& images,
               const NormalizedImages& all, T* const* factors) {
  const Rows<T>& loops = rows<T>();
  c.for_each(
      args.threads,
      [&](int64_t at, int64_t, int64_t channel) {
        const Affine<T> f{factors[0][channel], factors[1][channel], factors[2][channel]};
        normalize_block(images, all, run_of(at, c.inner),
                        [&](const BatchNormRows<T>& data, const ImageBlock& block) {
                          loops.batch_affine(data, block.at, block.columns, f);
                        });
      },
      [&](int64_t at, const Columns& columns, int64_t, int64_t first) {
        const AffineColumns<T> f{factors[0] + first, factors[1] + first, factors[2] + first};
        for_rows_of(block_of(at, columns), rows_at_once(columns), [&](const ImageBlock& part) {
          normalize_block(images, all, part,
                          [&](const BatchNormRows<T>& data, const ImageBlock& block) {
                            loops.batch_affine_columns(data, block.at, columns_of(block), f);
                          });
        });
      });
}

// Of the rows that take a residual.
NormalizedImages finished_images(const Args& args, bool relu) {
  return {args.inputs[0], args.inputs[5], args.outputs[0], relu};
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

template <typename T>
struct BatchNorm {
  Channels c;
  Images<T> images;
  double eps, momentum;
  bool relu;

  void measure(const Args& args, Moments* parts) const {
    const Rows<T>& loops = rows<T>();
    const void* x = args.inputs[0];
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          const ImageBlock run = run_of(at, c.inner);
          parts[chunk * c.channels + channel] =
              loops.moments(images.read(0, x, run) + images.seen(run).at, c.inner);
        },
        [&](int64_t at, const Columns& columns, int64_t chunk, int64_t first) {
          const ImageBlock block = block_of(at, columns), seen = images.seen(block);
          loops.moments_columns(images.read(0, x, block) + seen.at, columns_of(seen),
                                parts + chunk * c.channels + first);
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
    normalize<T>(args, c, images, finished_images(args, relu), work.factors);
  }
};

Channels channels_of(const Call& call, size_t operand) {
  return Channels(call.in(operand), ops::is_channels_last(call.op));
}

// Calls fn(T{}) with the type that images of this type are computed in.
Prepared with_type_of(const Call& call, size_t images, const auto& fn) {
  const ir::DType dtype = call.in(images).dtype;
  return with_float_type(call, ir::is_half(dtype) ? ir::DType::f32 : dtype, fn);
}

// Of 16-bit floats: what has an entry for each channel is upcast as a whole, and images block by
// block. All of them, or large planes, where a block would be one.
Prepared float16_batch_norm(const Call& call, size_t images, ops::Prepare prepare) {
  constexpr int64_t most = 1 << 16;  // numbers of a plane
  const ir::Type& type = call.in(images);
  const Channels c(type, ops::is_channels_last(call.op));
  const auto is_other = [&](const ir::Type& other) {
    return other.sizes == type.sizes && (other.dtype != type.dtype || !other.is_contiguous());
  };
  bool are_blocks = ir::is_half(type.dtype) && c.inner <= most && type.rank() > 1;
  for (size_t i = 0; i < call.in_count(); ++i) {
    are_blocks = are_blocks && !(call.has_in(i) && is_other(call.in(i)));
  }
  for (const auto& result : call.op.results) are_blocks = are_blocks && !is_other(result->type);
  if (!are_blocks) return prepare_upcast(call, prepare);
  return prepare_upcast(call, prepare, [sizes = type.sizes](const ir::Type& other) {
    return other.sizes == sizes;
  });
}

Prepared batch_norm(const Call& call) {
  return with_type_of(call, 0, [&]<typename T>(T) -> Prepared {
    const BatchNorm<T> norm{channels_of(call, 0), Images<T>(call.in(0).dtype),
                            call.attrs().get_float("eps"), call.attrs().get_float("momentum"),
                            call.attrs().get_bool("relu")};
    return {[norm](const Args& args) { norm.run(args); }, Work<T, Moments>::bytes(norm.c)};
  });
}

Prepared float16_batch_norm(const Call& call) { return float16_batch_norm(call, 0, batch_norm); }

// Normalizes by given statistics: a mean and what `invstd_of` makes of the other one. `images_of`
// gives the NormalizedImages.
template <typename T, typename ImagesOf, typename Invstd>
Prepared normalize_by(const Call& call, const ImagesOf& images_of, const Invstd& invstd_of) {
  const Channels c = channels_of(call, 0);
  const Images<T> images(call.in(0).dtype);
  const auto run = [=](const Args& args) {
    const Work<T, Moments> work(args, c);
    for (int64_t channel = 0; channel < c.channels; ++channel) {
      set_factors<T>(work, channel, args.in<T>(3)[channel],
                     scale_of<T>(args, 1, channel, invstd_of(args.in<T>(4)[channel])),
                     weight_of<T>(args, 2, channel, 0));
    }
    normalize<T>(args, c, images, images_of(args), work.factors);
  };
  return {run, Work<T, Moments>::bytes(c)};
}

Prepared batch_norm_inference(const Call& call) {
  return with_type_of(call, 0, [&]<typename T>(T) -> Prepared {
    const double eps = call.attrs().get_float("eps");
    return normalize_by<T>(
        call,
        [](const Args& args) {
          return NormalizedImages{args.inputs[0], nullptr, args.outputs[0], false};
        },
        [eps](T variance) { return static_cast<T>(1 / std::sqrt(variance + eps)); });
  });
}

Prepared float16_batch_norm_inference(const Call& call) {
  return float16_batch_norm(call, 0, batch_norm_inference);
}

Prepared batch_norm_apply(const Call& call) {
  return with_type_of(call, 0, [&]<typename T>(T) -> Prepared {
    const bool relu = call.attrs().get_bool("relu");
    return normalize_by<T>(
        call, [relu](const Args& args) { return finished_images(args, relu); },
        [](T invstd) { return invstd; });
  });
}

Prepared float16_batch_norm_apply(const Call& call) {
  return float16_batch_norm(call, 0, batch_norm_apply);
}

// What the gradient reads and writes; as in BatchNormGradRows.
struct GradImages {
  const void *g, *x, *out;
  void *dx, *masked;
};

template <typename T>
struct BatchNormBackward {
  Channels c;
  Images<T> images;
  bool training, wants_masked;

  BatchNormGradRows<T> read(const GradImages& all, const ImageBlock& block) const {
    return {images.read(0, all.g, block), images.read(1, all.x, block),
            images.read(2, all.out, block), images.target(3, all.dx, block),
            images.target(3, all.masked, block), !training};
  }

  void measure(const Args& args, const GradImages& all, GradSums* parts) const {
    const Rows<T>& loops = rows<T>();
    const T* mean = args.in<T>(3);
    const auto sum = [&](const ImageBlock& block, const auto& add) {
      const BatchNormGradRows<T> data = read(all, block);
      add(data, images.seen(block));
      images.write(data.masked, all.masked, block);
    };
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          sum(run_of(at, c.inner), [&](const BatchNormGradRows<T>& data, const ImageBlock& block) {
            parts[chunk * c.channels + channel] =
                loops.batch_grad_sums(data, block.at, block.columns, mean[channel]);
          });
        },
        [&](int64_t at, const Columns& columns, int64_t chunk, int64_t first) {
          GradSums* sums = parts + chunk * c.channels + first;
          std::fill_n(sums, columns.columns, GradSums{});
          GradSums more[most_columns];
          for_rows_of(block_of(at, columns), summed_rows, [&](const ImageBlock& part) {
            sum(part, [&](const BatchNormGradRows<T>& data, const ImageBlock& block) {
              loops.batch_grad_sums_columns(data, block.at, columns_of(block), mean + first, more);
            });
            for (int64_t i = 0; i < columns.columns; ++i) {
              sums[i].plain += more[i].plain;
              sums[i].times_x += more[i].times_x;
            }
          });
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
    // Gradients that sum to zero: what rounding adds to all entries of a channel alike is added up
    // by the weights before. So the mean is subtracted first, and its own rounding is mended.
    const double mean = sums.plain / n;
    const T rounded = static_cast<T>(mean);
    work.factors[3][channel] =
        std::isfinite(rounded) ? static_cast<T>(-scale * (mean - rounded)) : T{0};
    work.factors[4][channel] = rounded;
  }

  void run(const Args& args) const {
    const Rows<T>& loops = rows<T>();
    const Work<T, GradSums> work(args, c);
    GradImages all{args.inputs[0], args.inputs[1], args.inputs[5], args.outputs[0],
                   wants_masked ? args.outputs[3] : nullptr};
    measure(args, all, work.parts);
    c.for_each_channel(args.threads, [&](int64_t i) { finish_channel(args, work, i); });
    if (wants_masked) all = {all.masked, all.x, nullptr, all.dx, nullptr};
    const auto change = [&](const ImageBlock& block, const auto& apply) {
      const BatchNormGradRows<T> data = read(all, block);
      apply(data, images.seen(block));
      images.write(data.dx, all.dx, block);
    };
    T* const* f = work.factors;
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t, int64_t channel) {
          const GradAffine<T> factors{f[0][channel], f[1][channel], f[2][channel], f[3][channel],
                                      f[4][channel]};
          change(run_of(at, c.inner),
                 [&](const BatchNormGradRows<T>& data, const ImageBlock& block) {
                   loops.batch_grad_affine(data, block.at, block.columns, factors);
                 });
        },
        [&](int64_t at, const Columns& columns, int64_t, int64_t first) {
          const GradAffineColumns<T> factors{f[0] + first, f[1] + first, f[2] + first,
                                             f[3] + first, f[4] + first};
          for_rows_of(block_of(at, columns), rows_at_once(columns), [&](const ImageBlock& part) {
            change(part, [&](const BatchNormGradRows<T>& data, const ImageBlock& block) {
              loops.batch_grad_affine_columns(data, block.at, columns_of(block), factors);
            });
          });
        });
  }
};

Prepared batch_norm_backward(const Call& call) {
  return with_type_of(call, 1, [&]<typename T>(T) -> Prepared {
    const BatchNormBackward<T> norm{channels_of(call, 1), Images<T>(call.in(1).dtype),
                                    call.attrs().get_bool("training"),
                                    call.attrs().get_bool("grad_residual")};
    return {[norm](const Args& args) { norm.run(args); }, Work<T, GradSums>::bytes(norm.c)};
  });
}

Prepared float16_batch_norm_backward(const Call& call) {
  return float16_batch_norm(call, 1, batch_norm_backward);
}

}  // namespace

KERNEL("batch_norm", batch_norm, false, float16_batch_norm)
KERNEL("batch_norm_inference", batch_norm_inference, false, float16_batch_norm_inference)
KERNEL("batch_norm_apply", batch_norm_apply, false, float16_batch_norm_apply)
KERNEL("batch_norm_backward", batch_norm_backward, false, float16_batch_norm_backward)

}  // namespace poptorch::kernels
