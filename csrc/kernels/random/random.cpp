// Kernels of the random ops.
#include "kernels/random/random.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "kernels/float16_blocks.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/error.h"
#include "support/parallel.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {

namespace {

using ir::DType;
using simd::Draw;
using simd::random_group;

constexpr int64_t block = 4 * random_group;    // elements whose words are made at once
constexpr int64_t grain = 16 * 1024;           // elements worth a thread
constexpr uint32_t second_stream = 0x80000000;  // salts of a second word for each element

// The words of a run of elements, some 256 at a time: fn(first element, count, words).
void for_blocks(const simd::RandomTable& table, const Draw& draw, int threads, int64_t n,
                const auto& fn) {
  parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
    uint32_t words[block];
    for (int64_t i = begin; i < end; i += block) {
      const int64_t count = std::min(block, end - i);
      table.words(draw, i / random_group, ceil_div(count, random_group), words);
      fn(i, count, words);
    }
  });
}

// fn(word, element) -> value for each element of the result.
template <typename T, typename Fn>
Prepared by_word(const Call& call, size_t rng, Fn fn) {
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const simd::RandomTable& table = simd::random_table();
  return {[=, &table](const Args& args) {
    T* out = args.out<T>();
    for_blocks(table, draw_of(args.in<int32_t>(rng), salt), args.threads, n,
               [&](int64_t first, int64_t count, const uint32_t* words) {
                 for (int64_t i = 0; i < count; ++i) {
                   out[first + i] = static_cast<T>(fn(args, words[i], first + i));
                 }
               });
  }};
}

// A word as a number in [0, 1): of 24 bits for float, so that 1 is never reached by rounding.
template <typename T>
constexpr T unit(uint32_t word) {
  if constexpr (sizeof(T) == 4) return static_cast<T>(word >> 8) * T(0x1p-24);
  return static_cast<T>(word) * T(0x1p-32);
}

Prepared rng_advance(const Call&) {
  return {[](const Args& args) {
    const int32_t* in = args.in<int32_t>(0);
    int32_t* out = args.out<int32_t>();
    for (int i = 0; i < 3; ++i) out[i] = in[i];
    out[3] = static_cast<int32_t>(static_cast<uint32_t>(in[3]) + 1);
  }};
}

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Prepared rng_fold(const Call&) {
  return {[](const Args& args) {
    const int32_t* in = args.in<int32_t>(0);
    int32_t* out = args.out<int32_t>();
    const uint64_t seed = static_cast<uint64_t>(static_cast<uint32_t>(in[1])) << 32 |
                          static_cast<uint32_t>(in[0]);
    const uint64_t number = static_cast<uint32_t>(*args.in<int32_t>(1));
    const uint64_t folded = mixed(seed + mixed((number + 1) * 0x9e3779b97f4a7c15));
    out[0] = static_cast<int32_t>(static_cast<uint32_t>(folded));
    out[1] = static_cast<int32_t>(static_cast<uint32_t>(folded >> 32));
    out[2] = in[2];
    out[3] = in[3];
  }};
}

Prepared dropout_f32(const Call& call) {
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const Dropout dropout(call.attrs().get_float(ir::attr::p));
  const simd::RandomTable& table = simd::random_table();
  return {[=, &table](const Args& args) {
    const float* x = args.in<float>(0);
    float* out = args.out<float>();
    if (dropout.drops_all) {
      std::transform(x, x + n, out, [](float number) { return number * 0.0f; });
      return;
    }
    const Draw draw = draw_of(args.in<int32_t>(1), salt);
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      table.dropout(draw, begin, end - begin, dropout.threshold,
                    static_cast<float>(dropout.scale), x + begin, out + begin);
    });
  }};
}

// Of 16-bit floats, block by block in the first cache.
Prepared dropout_half(const Call& call) {
  constexpr int64_t most = 16 * random_group;
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const Dropout dropout(call.attrs().get_float(ir::attr::p));
  if (dropout.drops_all || !is_on("blocked_upcast")) return {};
  const Upcast upcast = upcast_from(call.out().dtype);
  const Downcast downcast = downcast_to(call.out().dtype);
  const simd::RandomTable& table = simd::random_table();
  return {[=, &table](const Args& args) {
    const Draw draw = draw_of(args.in<int32_t>(1), salt);
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      alignas(64) float x[most];
      for (int64_t at = begin; at < end; at += most) {
        const int64_t count = std::min(most, end - at);
        upcast(args.in<uint16_t>(0) + at, x, count);
        table.dropout(draw, at, count, dropout.threshold, static_cast<float>(dropout.scale), x, x);
        downcast(x, args.out<uint16_t>() + at, count);
      }
    });
  }};
}

Prepared stochastic_cast(const Call& call) {
  constexpr int64_t most = 16 * random_group;
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const ChanceRound round = chance_round_to(call.out().dtype);
  const Downcast downcast = downcast_to(call.out().dtype);
  return {[=](const Args& args) {
    const Draw draw = draw_of(args.in<int32_t>(1), salt);
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      alignas(64) float rounded[most];
      for (int64_t at = begin; at < end; at += most) {
        const int64_t count = std::min(most, end - at);
        round(draw, at, count, args.in<float>(0) + at, rounded);
        downcast(rounded, args.out<uint16_t>() + at, count);
      }
    });
  }};
}

Prepared dropout_f64(const Call& call) {
  const Dropout dropout(call.attrs().get_float(ir::attr::p));
  return by_word<double>(call, 1, [=](const Args& args, uint32_t word, int64_t i) {
    const bool stays = !dropout.drops_all && word >= dropout.threshold;
    return args.in<double>(0)[i] * (stays ? dropout.scale : 0.0);
  });
}

Prepared dropout(const Call& call) {
  return call.out().dtype == DType::f64 ? dropout_f64(call) : dropout_f32(call);
}

Prepared bernoulli(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) {
    Prepared drawn = by_word<T>(call, 1, [](const Args& args, uint32_t word, int64_t i) {
      return unit<T>(word) < args.in<T>(0)[i] ? T{1} : T{0};
    });
    drawn.run = [draw = std::move(drawn.run), n = call.in(0).numel()](const Args& args) {
      const T* p = args.in<T>(0);
      const T* wrong = std::find_if_not(p, p + n, [](T x) { return x >= 0 && x <= 1; });
      USER_CHECK(wrong == p + n, "[bernoulli] a probability is ", *wrong,
                 ". Give numbers from 0 to 1, as torch.sigmoid or torch.clamp do.");
      draw(args);
    };
    return drawn;
  });
}

Prepared uniform(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) {
    const auto low = static_cast<T>(call.attrs().get_float(ir::attr::low, 0.0));
    const auto high = static_cast<T>(call.attrs().get_float(ir::attr::high, 1.0));
    return by_word<T>(call, 0, [=](const Args&, uint32_t word, int64_t) {
      const T value = low + unit<T>(word) * (high - low);
      return value < high ? value : low;  // rounding may reach `high`, which is not of the range
    });
  });
}

Prepared exponential(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) {
    const auto scale = static_cast<T>(-1.0 / call.attrs().get_float(ir::attr::lambd, 1.0));
    return by_word<T>(call, 0, [=](const Args&, uint32_t word, int64_t) {
      constexpr T least = T{0.5} * unit<T>(0x100);
      return scale * std::log1p(-std::max(unit<T>(word), least));  // all are above 0
    });
  });
}

Prepared normal_f32(const Call& call) {
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const auto mean = static_cast<float>(call.attrs().get_float(ir::attr::mean, 0.0));
  const auto std = static_cast<float>(call.attrs().get_float(ir::attr::std, 1.0));
  const simd::RandomTable& table = simd::random_table();
  return {[=, &table](const Args& args) {
    float* out = args.out<float>();
    const Draw draw = draw_of(args.in<int32_t>(0), salt);
    Draw second = draw;
    second.salt |= second_stream;
    for_blocks(table, draw, args.threads, n,
               [&](int64_t first, int64_t count, const uint32_t* words) {
                 uint32_t more[block];
                 table.words(second, first / random_group,
                             ceil_div(count, random_group), more);
                 table.normal(words, more, count, mean, std, out + first);
               });
  }};
}

Prepared normal_f64(const Call& call) {
  const int64_t salt = call.attrs().get_int(ir::attr::salt);
  const double mean = call.attrs().get_float(ir::attr::mean, 0.0);
  const double std = call.attrs().get_float(ir::attr::std, 1.0);
  const simd::RandomTable& table = simd::random_table();
  return by_word<double>(call, 0, [=, &table](const Args& args, uint32_t word, int64_t i) {
    Draw second = draw_of(args.in<int32_t>(0), salt);
    second.salt |= second_stream;
    uint32_t more[random_group];
    table.words(second, i / random_group, 1, more);
    const double radius = std::sqrt(-2.0 * std::log1p(-unit<double>(word)));
    const double angle = 2.0 * std::numbers::pi * unit<double>(more[i % random_group]);
    return mean + std * radius * std::cos(angle);
  });
}

template <typename T>
Prepared random_int_of(const Call& call) {
  const int64_t low = call.attrs().get_int(ir::attr::low, 0),
                salt = call.attrs().get_int(ir::attr::salt);
  const auto range = static_cast<uint64_t>(call.attrs().get_int(ir::attr::high)) -
                     static_cast<uint64_t>(low);
  const simd::RandomTable& table = simd::random_table();
  return by_word<T>(call, 0, [=, &table](const Args& args, uint32_t word, int64_t i) {
    if (range <= 0xffffffffu) {
      return low + static_cast<int64_t>((static_cast<uint64_t>(word) * range) >> 32);
    }
    Draw second = draw_of(args.in<int32_t>(0), salt);
    second.salt |= second_stream;
    uint32_t more[random_group];
    table.words(second, i / random_group, 1, more);
    const uint64_t both = static_cast<uint64_t>(word) << 32 | more[i % random_group];
    return static_cast<int64_t>(static_cast<uint64_t>(low) + both % range);
  });
}

template <typename T>
Prepared permutation_of(const Call& call) {
  const int64_t n = call.out().numel(), salt = call.attrs().get_int(ir::attr::salt);
  const simd::RandomTable& table = simd::random_table();
  return {[=, &table](const Args& args) {
    T* out = args.out<T>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(i);
    const Draw draw = draw_of(args.in<int32_t>(0), salt);
    // Fisher and Yates, on one thread: every swap depends on those before.
    for_blocks(table, draw, 1, n, [&](int64_t first, int64_t count, const uint32_t* words) {
      for (int64_t k = 0; k < count; ++k) {
        const int64_t i = first + k;
        const auto left = static_cast<uint64_t>(n - i);
        std::swap(out[i], out[i + static_cast<int64_t>((words[k] * left) >> 32)]);
      }
    });
  }};
}

Prepared normal(const Call& call) {
  return call.out().dtype == DType::f64 ? normal_f64(call) : normal_f32(call);
}

Prepared random_int(const Call& call) {
  return with_number_type(call.out().dtype, [&]<typename T>(T) { return random_int_of<T>(call); });
}

Prepared permutation(const Call& call) {
  return with_number_type(call.out().dtype, [&]<typename T>(T) { return permutation_of<T>(call); });
}

KERNEL("rng_advance", rng_advance)
KERNEL("rng_fold", rng_fold)
KERNEL("dropout", dropout)
HALF_KERNEL("dropout", dropout_half)
KERNEL("stochastic_cast", stochastic_cast, true)
KERNEL("bernoulli", bernoulli)
KERNEL("random_uniform", uniform)
KERNEL("random_exponential", exponential)
KERNEL("random_normal", normal)
KERNEL("random_int", random_int)
KERNEL("random_permutation", permutation)

}  // namespace

}  // namespace poptorch::kernels
