// embedding_bag and its gradient.
#include <string>

#include "kernels/index/rows.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

enum class Mode { sum, mean, max };

Mode mode_of(const Call& call) {
  const std::string& mode = call.attrs().get_string(ir::attr::mode);
  return mode == "sum" ? Mode::sum : mode == "mean" ? Mode::mean : Mode::max;
}

// How a list of n positions is cut into bags. `first`: the position of the weight among operands.
struct Bags {
  int64_t count, n, fixed;  // fixed: positions of a bag, without offsets
  int64_t entries, width, padding;
  bool has_offsets, has_last;
  ir::DType offset_type;
  Mode mode;

  Bags(const Call& call, size_t first, int64_t bags)
      : count(bags),
        n(call.in(first + 1).numel()),
        fixed(bags == 0 ? 0 : n / bags),
        entries(call.in(first).sizes[0]),
        width(call.in(first).sizes[1]),
        padding(call.attrs().get_int(ir::attr::padding_idx)),
        has_offsets(call.has_in(first + 2)),
        has_last(call.attrs().get_bool(ir::attr::include_last_offset)),
        offset_type(has_offsets ? call.in(first + 2).dtype : ir::DType::i32),
        mode(mode_of(call)) {}

  int64_t begin(const void* offsets, int64_t bag) const {
    if (!has_offsets) return bag * fixed;
    if (bag == count && !has_last) return n;
    return Indices(offsets, offset_type)[bag];
  }
};

void check_offsets(std::string_view op, const Bags& bags, const void* offsets) {
  if (!bags.has_offsets) return;
  int64_t before = 0;
  for (int64_t bag = 0; bag <= bags.count; ++bag) {
    const int64_t at = bags.begin(offsets, bag);
    USER_CHECK(at >= before && at <= bags.n && (bag > 0 || bags.count == 0 || at == 0), "[", op,
               "] offset ", at, " (entry ", bag, ") comes after ", before, ", there are ", bags.n,
               " indices. Start with 0, never go back, and stay within the indices.");
    before = at;
  }
}

template <typename T, typename Index>
struct Bag {
  const Bags& bags;
  const T* weight;
  const Index* indices;
  const void* offsets;
  const T* samples;  // may be nullptr

  // fn(position, row of the weight) for what counts in a bag.
  void for_each(int64_t bag, const auto& fn) const {
    for (int64_t i = bags.begin(offsets, bag); i < bags.begin(offsets, bag + 1); ++i) {
      if (indices[i] != bags.padding) fn(i, static_cast<int64_t>(indices[i]));
    }
  }
  int64_t size(int64_t bag) const {
    int64_t count = 0;
    for_each(bag, [&](int64_t, int64_t) { ++count; });
    return count;
  }
  // By what a row of the bag is multiplied.
  T scale(int64_t i, int64_t counted) const {
    if (bags.mode == Mode::mean) return T{1} / static_cast<T>(counted);
    return samples == nullptr ? T{1} : samples[i];
  }

  void forward(int64_t bag, T* out) const {
    std::fill_n(out, bags.width, T{0});
    bool is_first = true;
    for_each(bag, [&](int64_t i, int64_t row) {
      const T* from = weight + row * bags.width;
      if (bags.mode == Mode::max) {
        // As in eager, a NaN is the largest only in the first row.
        for (int64_t c = 0; c < bags.width; ++c) {
          if (is_first || from[c] > out[c]) out[c] = from[c];
        }
      } else {
        const T factor = samples == nullptr ? T{1} : samples[i];
        for (int64_t c = 0; c < bags.width; ++c) out[c] += factor * from[c];
      }
      is_first = false;
    });
    if (bags.mode != Mode::mean || is_first) return;
    const T factor = scale(0, size(bag));
    for (int64_t c = 0; c < bags.width; ++c) out[c] *= factor;
  }

  // Adds to columns [from, to) of the gradient of the weight.
  void add_columns(int64_t bag, const T* grad, int64_t from, int64_t to, T* out) const {
    if (bags.mode == Mode::max) return add_largest(bag, grad, from, to, out);
    const int64_t counted = bags.mode == Mode::mean ? size(bag) : 0;
    for_each(bag, [&](int64_t i, int64_t row) {
      const T factor = scale(i, counted);
      for (int64_t c = from; c < to; ++c) out[row * bags.width + c] += factor * grad[c];
    });
  }

  void add_largest(int64_t bag, const T* grad, int64_t from, int64_t to, T* out) const {
    constexpr int64_t block = 64;
    for (int64_t first = from; first < to; first += block) {
      const int64_t columns = std::min(block, to - first);
      T largest[block] = {};
      Index best[block] = {};
      bool is_empty = true;
      for_each(bag, [&](int64_t, int64_t row) {
        const T* x = weight + row * bags.width + first;
        for (int64_t c = 0; c < columns; ++c) {
          const bool take = is_empty | (x[c] > largest[c]);
          largest[c] = take ? x[c] : largest[c];
          best[c] = take ? static_cast<Index>(row) : best[c];
        }
        is_empty = false;
      });
      for (int64_t c = 0; c < columns && !is_empty; ++c) {
        out[best[c] * bags.width + first + c] += grad[first + c];
      }
    }
  }

  // The gradient of the weights of a bag's samples.
  void sample_gradients(int64_t bag, const T* grad, T* out) const {
    for_each(bag, [&](int64_t i, int64_t row) {
      double sum = 0;
      for (int64_t c = 0; c < bags.width; ++c) sum += grad[c] * weight[row * bags.width + c];
      out[i] = static_cast<T>(sum);
    });
  }
};

Prepared embedding_bag(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const Bags bags(call, 0, call.out().sizes[0]);
    return {[bags](const Args& args) {
      const Index* indices = args.in<Index>(1);
      check_indices("embedding_bag", indices, bags.n, 0, bags.entries, 0);
      check_offsets("embedding_bag", bags, args.inputs[2]);
      const Bag<T, Index> bag{bags, args.in<T>(0), indices, args.inputs[2], args.in<T>(3)};
      const int64_t each = bags.width * (1 + bags.n / std::max<int64_t>(1, bags.count));
      parallel_for(args.threads, bags.count, grain_for(each), [&](int64_t b) {
        bag.forward(b, args.out<T>() + b * bags.width);
      });
    }};
  };
  return with_float_and_index_type(call, call.in(0).dtype, call.in(1).dtype, prepare);
}

// Threads take columns: each sum is made by one of them, in the order of the indices.
Prepared embedding_bag_backward(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const Bags bags(call, 1, call.in(0).sizes[0]);
    return {[bags](const Args& args) {
      const Index* indices = args.in<Index>(2);
      check_indices("embedding_bag_backward", indices, bags.n, 0, bags.entries, 0);
      check_offsets("embedding_bag_backward", bags, args.inputs[3]);
      const Bag<T, Index> bag{bags, args.in<T>(1), indices, args.inputs[3], args.in<T>(4)};
      const T* grad = args.in<T>(0);
      T *out = args.out<T>(0), *samples = args.out<T>(1);
      fill_zero(out, bags.entries * bags.width * static_cast<int64_t>(sizeof(T)), args.threads);
      const int64_t grain = std::max<int64_t>(16, grain_for(bags.n));
      parallel_for(args.threads, bags.width, grain, [&](int64_t from, int64_t to) {
        for (int64_t b = 0; b < bags.count; ++b) {
          bag.add_columns(b, grad + b * bags.width, from, to, out);
        }
      });
      if (bag.samples == nullptr) return;
      std::fill_n(samples, bags.n, T{0});
      for (int64_t b = 0; b < bags.count; ++b) {
        bag.sample_gradients(b, grad + b * bags.width, samples);
      }
    }};
  };
  return with_float_and_index_type(call, call.in(1).dtype, call.in(2).dtype, prepare);
}

KERNEL("embedding_bag", embedding_bag)
KERNEL("embedding_bag_backward", embedding_bag_backward)

}  // namespace

}  // namespace poptorch::kernels
