// Kernels of batch norm.
#include <cmath>

#include "kernels/norm/channels.h"
#include "kernels/norm/factors.h"
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
  T* factors[4];  // one entry for each channel

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
    return parts * sizeof(Part) + static_cast<size_t>(4 * c.channels) * sizeof(T);
  }
};

template <typename T>
T weight_of(const Args& args, size_t operand, int64_t channel, T otherwise) {
  const T* weight = args.in<T>(operand);
  return weight == nullptr ? otherwise : weight[channel];
}

// y = (x - mean) * scale + offset, mean, scale, offset being factors 0, 1, 2.
template <typename T>
void normalize(const Args& args, const Channels& c, const BatchNormRows<T>& data,
               T* const* factors) {
  const Rows<T>& loops = rows<T>();
  c.for_each(
      args.threads,
      [&](int64_t at, int64_t, int64_t channel) {
        loops.batch_affine(data, at, c.inner,
                           {factors[0][channel], factors[1][channel], factors[2][channel]});
      },
      [&](int64_t at, Columns columns, int64_t, int64_t first) {
        loops.batch_affine_columns(data, at, columns,
                                   {factors[0] + first, factors[1] + first, factors[2] + first});
      });
}

// Of the rows that take a residual.
template <typename T>
BatchNormRows<T> finished_rows(const Args& args, bool relu) {
  return {args.in<T>(0), args.in<T>(5), args.out<T>(0), relu};
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
  double eps, momentum;
  bool relu;

  void measure(const Args& args, Moments* parts) const {
    const Rows<T>& loops = rows<T>();
    const T* x = args.in<T>(0);
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          parts[chunk * c.channels + channel] = loops.moments(x + at, c.inner);
        },
        [&](int64_t at, Columns columns, int64_t chunk, int64_t first) {
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
    normalize<T>(args, c, finished_rows<T>(args, relu), work.factors);
  }
};

Channels channels_of(const Call& call, size_t operand) {
  return Channels(call.in(operand), ops::is_channels_last(call.op));
}

Prepared batch_norm(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const BatchNorm<T> norm{channels_of(call, 0), call.attrs().get_float("eps"),
                            call.attrs().get_float("momentum"), call.attrs().get_bool("relu")};
    return {[norm](const Args& args) { norm.run(args); }, Work<T, Moments>::bytes(norm.c)};
  });
}

// Normalizes by given statistics: a mean and what `invstd_of` makes of the other one. `rows_of`
// gives the BatchNormRows.
template <typename T, typename RowsOf, typename Invstd>
Prepared normalize_by(const Call& call, const RowsOf& rows_of, const Invstd& invstd_of) {
  const Channels c = channels_of(call, 0);
  const auto run = [=](const Args& args) {
    const Work<T, Moments> work(args, c);
    for (int64_t channel = 0; channel < c.channels; ++channel) {
      set_factors<T>(work, channel, args.in<T>(3)[channel],
                     scale_of<T>(args, 1, channel, invstd_of(args.in<T>(4)[channel])),
                     weight_of<T>(args, 2, channel, 0));
    }
    normalize<T>(args, c, rows_of(args), work.factors);
  };
  return {run, Work<T, Moments>::bytes(c)};
}

Prepared batch_norm_inference(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const double eps = call.attrs().get_float("eps");
    return normalize_by<T>(
        call,
        [](const Args& args) {
          return BatchNormRows<T>{args.in<T>(0), nullptr, args.out<T>(0), false};
        },
        [eps](T variance) { return static_cast<T>(1 / std::sqrt(variance + eps)); });
  });
}

Prepared batch_norm_apply(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const bool relu = call.attrs().get_bool("relu");
    return normalize_by<T>(
        call, [relu](const Args& args) { return finished_rows<T>(args, relu); },
        [](T invstd) { return invstd; });
  });
}

template <typename T>
struct BatchNormBackward {
  Channels c;
  bool training, wants_masked;

  void measure(const Args& args, const BatchNormGradRows<T>& data, GradSums* parts) const {
    const Rows<T>& loops = rows<T>();
    const T* mean = args.in<T>(3);
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t chunk, int64_t channel) {
          parts[chunk * c.channels + channel] =
              loops.batch_grad_sums(data, at, c.inner, mean[channel]);
        },
        [&](int64_t at, Columns columns, int64_t chunk, int64_t first) {
          loops.batch_grad_sums_columns(data, at, columns, mean + first,
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
    work.factors[3][channel] = static_cast<T>(-scale * sums.plain / n);
  }

  void run(const Args& args) const {
    const Rows<T>& loops = rows<T>();
    const Work<T, GradSums> work(args, c);
    BatchNormGradRows<T> data{args.in<T>(0), args.in<T>(1), args.in<T>(5), args.out<T>(0),
                              wants_masked ? args.out<T>(3) : nullptr, !training};
    measure(args, data, work.parts);
    c.for_each_channel(args.threads, [&](int64_t i) { finish_channel(args, work, i); });
    if (wants_masked) {
      data.g = data.masked;
      data.out = nullptr;
    }
    T* const* f = work.factors;
    c.for_each(
        args.threads,
        [&](int64_t at, int64_t, int64_t channel) {
          loops.batch_grad_affine(data, at, c.inner,
                                  {f[0][channel], f[1][channel], f[2][channel], f[3][channel]});
        },
        [&](int64_t at, Columns columns, int64_t, int64_t first) {
          loops.batch_grad_affine_columns(data, at, columns,
                                          {f[0] + first, f[1] + first, f[2] + first, f[3] + first});
        });
  }
};

Prepared batch_norm_backward(const Call& call) {
  return with_float_type(call, call.in(1).dtype, [&]<typename T>(T) -> Prepared {
    const BatchNormBackward<T> norm{channels_of(call, 1), call.attrs().get_bool("training"),
                                    call.attrs().get_bool("grad_residual")};
    return {[norm](const Args& args) { norm.run(args); }, Work<T, GradSums>::bytes(norm.c)};
  });
}

}  // namespace

KERNEL("batch_norm", batch_norm)
KERNEL("batch_norm_inference", batch_norm_inference)
KERNEL("batch_norm_apply", batch_norm_apply)
KERNEL("batch_norm_backward", batch_norm_backward)

}  // namespace poptorch::kernels
