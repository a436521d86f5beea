#include "run/elements.h"

#include <algorithm>
#include <array>
#include <bit>

#include "support/cpu/half.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::run {

namespace {

// How an element is stored, and the type sums are made in; whether a sum may be out of the range of
// what is stored.
template <typename T>
struct Plain {
  static constexpr bool has_range = false;
  using Stored = T;
  using Sum = T;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return x; }
};

// Many small numbers, and how many they are, need more than one of them has.
template <typename T>
struct Whole {
  static constexpr bool has_range = true;
  using Stored = T;
  using Sum = int64_t;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return static_cast<Stored>(x); }
};

struct Bool {
  static constexpr bool has_range = false;
  using Stored = uint8_t;
  using Sum = int64_t;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return x != 0; }
};

struct Half {
  static constexpr bool has_range = false;
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored x) { return f16_to_float(x); }
  static Stored store(Sum x) { return float_to_f16(x); }
};

struct BHalf {
  static constexpr bool has_range = false;
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored x) { return bf16_to_float(x); }
  static Stored store(Sum x) { return float_to_bf16(x); }
};

// Elements that are summed in one go, in memory that stays in the first cache.
constexpr int64_t block_elements = 1024;

// Adds inputs [first, first + count) up.
template <typename E>
void sum_tree(const std::vector<const void*>& inputs, size_t first, size_t count, int64_t begin,
              int64_t numel, typename E::Sum* sums) {
  using Sum = typename E::Sum;
  if (count == 1) {
    const auto* terms = static_cast<const typename E::Stored*>(inputs[first]) + begin;
    for (int64_t i = 0; i < numel; ++i) sums[i] = E::load(terms[i]);
    return;
  }
  const size_t left = std::bit_ceil(count) / 2;
  std::array<Sum, block_elements> right;
  sum_tree<E>(inputs, first, left, begin, numel, sums);
  sum_tree<E>(inputs, first + left, count - left, begin, numel, right.data());
  for (int64_t i = 0; i < numel; ++i) sums[i] = static_cast<Sum>(sums[i] + right[i]);
}

template <typename E>
void reduce_block(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                  int64_t begin, int64_t count, bool is_mean) {
  using Stored = typename E::Stored;
  using Sum = typename E::Sum;
  std::array<Sum, block_elements> sums;
  sum_tree<E>(inputs, 0, inputs.size(), begin, count, sums.data());
  for (void* output : outputs) {
    Stored* to = static_cast<Stored*>(output) + begin;
    for (int64_t i = 0; i < count; ++i) {
      to[i] = E::store(is_mean ? static_cast<Sum>(sums[i] / static_cast<Sum>(inputs.size()))
                               : sums[i]);
    }
    if (MUTANT(reduction_reaches_one_replica)) break;
  }
}

template <typename E>
struct Reduce {
  static void call(const Reduction& what, const std::vector<const void*>& inputs,
                   const std::vector<void*>& outputs, int threads) {
    parallel_for(threads, what.numel, 8 * block_elements, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += block_elements) {
        reduce_block<E>(inputs, outputs, what.first + at, std::min(block_elements, end - at),
                        what.is_mean);
      }
    });
  }
};

template <typename E>
struct SumBytes {
  static void call(int64_t& bytes) { bytes = sizeof(typename E::Sum); }
};

template <typename E>
struct Add {
  static void call(void* to, const void* from, int64_t numel, bool is_first) {
    using Sum = typename E::Sum;
    auto* sums = static_cast<Sum*>(to);
    const auto* terms = static_cast<const typename E::Stored*>(from);
    for (int64_t i = 0; i < numel; ++i) {
      const Sum term = E::load(terms[i]);
      sums[i] = is_first ? term : static_cast<Sum>(sums[i] + term);
    }
  }
};

template <typename E>
struct Store {
  static void call(void* to, const void* from, int64_t numel, bool& fits) {
    auto* stored = static_cast<typename E::Stored*>(to);
    const auto* sums = static_cast<const typename E::Sum*>(from);
    for (int64_t i = 0; i < numel; ++i) {
      stored[i] = E::store(sums[i]);
      if constexpr (E::has_range) fits = fits && E::load(stored[i]) == sums[i];
    }
  }
};

template <template <typename> typename Fn, typename... Args>
void dispatch(ir::DType dtype, Args&&... args) {
  switch (dtype) {
    case ir::DType::boolean: return Fn<Bool>::call(args...);
    case ir::DType::u8: return Fn<Whole<uint8_t>>::call(args...);
    case ir::DType::i8: return Fn<Whole<int8_t>>::call(args...);
    case ir::DType::i16: return Fn<Whole<int16_t>>::call(args...);
    case ir::DType::i32: return Fn<Whole<int32_t>>::call(args...);
    case ir::DType::i64: return Fn<Whole<int64_t>>::call(args...);
    case ir::DType::f16: return Fn<Half>::call(args...);
    case ir::DType::bf16: return Fn<BHalf>::call(args...);
    case ir::DType::f32: return Fn<Plain<float>>::call(args...);
    case ir::DType::f64: return Fn<Plain<double>>::call(args...);
  }
}

}  // namespace

int64_t bytes_of_sum(ir::DType dtype) {
  int64_t bytes = 0;
  dispatch<SumBytes>(dtype, bytes);
  return bytes;
}

void sum_elements(ir::DType dtype, void* sums, const void* from, int64_t numel, bool is_first) {
  dispatch<Add>(dtype, sums, from, numel, is_first);
}

bool store_sums(ir::DType dtype, void* to, const void* sums, int64_t numel) {
  bool fits = true;
  dispatch<Store>(dtype, to, sums, numel, fits);
  return fits;
}

void reduce_elements(const Reduction& what, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int threads) {
  dispatch<Reduce>(what.dtype, what, inputs, outputs, threads);
}

}  // namespace poptorch::run
