#include "kernels/move/copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/reduction/types.h"
#include "support/ceil_div.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr int64_t grain_bytes = 64 << 10;  // some 5 us of copying

// Transposes go by squares of this many items, whose rows are a cache line or longer.
template <typename T>
constexpr int64_t tile = sizeof(T) == 2 ? 32 : 16;
constexpr int64_t least_lines = 128;  // of a part of a transpose

struct Wide {
  uint64_t low, high;
};

template <typename T>
T load(const std::byte* from) {
  T item;
  std::memcpy(&item, from, sizeof(T));
  return item;
}

template <typename T>
void store(std::byte* to, T item) {
  std::memcpy(to, &item, sizeof(T));
}

template <typename T>
void copy_items(std::byte* target, int64_t target_step, const std::byte* source,
                int64_t source_step, int64_t n) {
  if (target_step == sizeof(T)) {
    if (source_step == 0) {
      const T item = load<T>(source);
      for (int64_t i = 0; i < n; ++i) store(target + i * sizeof(T), item);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      store(target + i * sizeof(T), load<T>(source + i * source_step));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    store(target + i * target_step, load<T>(source + i * source_step));
}

template <typename T>
constexpr bool has_squares = sizeof(T) == 2 || sizeof(T) == 4;

// Items of a vector of 16 bytes.
template <typename T>
constexpr int side = 16 / sizeof(T);

// The first items of two vectors in turn, with `from` of half a vector the last ones.
template <int from, typename T, typename Row, int... i>
Row interleaved(Row a, Row b, std::integer_sequence<int, i...>) {
  return __builtin_shuffle(a, b, Row{static_cast<T>(from + i / 2 + i % 2 * sizeof...(i))...});
}

// As many items as a vector has, in as many rows, which become columns. In each step rows that are
// half of the square apart are interleaved: after log2(side) of them all is transposed.
template <typename T>
void transpose_square(std::byte* target, int64_t target_step, const std::byte* source,
                      int64_t source_step) {
  typedef T Row __attribute__((vector_size(16)));
  constexpr int half = side<T> / 2;
  constexpr auto all = std::make_integer_sequence<int, side<T>>{};
  Row rows[side<T>], next[side<T>];
  for (int i = 0; i < side<T>; ++i) rows[i] = load<Row>(source + i * source_step);
  for (int step = 1; step < side<T>; step *= 2) {
    for (int i = 0; i < half; ++i) {
      next[2 * i] = interleaved<0, T>(rows[i], rows[i + half], all);
      next[2 * i + 1] = interleaved<half, T>(rows[i], rows[i + half], all);
    }
    std::copy_n(next, side<T>, rows);
  }
  for (int i = 0; i < side<T>; ++i) store(target + i * target_step, rows[i]);
}

// target[line][item] = source[item][line] of a few lines and items.
template <typename T>
void transpose_tile(std::byte* target, int64_t target_step, const std::byte* source,
                    int64_t source_step, int64_t lines, int64_t items) {
  constexpr int64_t size = sizeof(T);
  int64_t whole_lines = 0, whole_items = 0;
  if constexpr (has_squares<T>) {
    whole_lines = lines / side<T> * side<T>;
    whole_items = items / side<T> * side<T>;
    for (int64_t l = 0; l < whole_lines; l += side<T>) {
      for (int64_t i = 0; i < whole_items; i += side<T>) {
        transpose_square<T>(target + l * target_step + i * size, target_step,
                            source + i * source_step + l * size, source_step);
      }
    }
  }
  for (int64_t l = 0; l < lines; ++l) {
    for (int64_t i = l < whole_lines ? whole_items : 0; i < items; ++i) {
      store(target + l * target_step + i * size, load<T>(source + i * source_step + l * size));
    }
  }
}

// Both sides of the tile behind this one, of the next items, come from memory in the meantime: the
// distances between rows are too long for hardware to foresee.
template <typename T>
void fetch_next_tile(const std::byte* target, int64_t target_step, const std::byte* source,
                     int64_t source_step) {
  for (int64_t i = 0; i < tile<T>; ++i) {
    __builtin_prefetch(source + (tile<T> + i) * source_step);
    __builtin_prefetch(target + i * target_step + tile<T> * static_cast<int64_t>(sizeof(T)), 1);
  }
}

// target[line][item] = source[item][line], items of both lying side by side in memory.
template <typename T>
void transpose(std::byte* target, int64_t target_step, const std::byte* source, int64_t source_step,
               int64_t lines, int64_t items) {
  constexpr int64_t size = sizeof(T);
  for (int64_t item = 0; item < items; item += tile<T>) {
    for (int64_t line = 0; line < lines; line += tile<T>) {
      std::byte* to = target + line * target_step + item * size;
      const std::byte* from = source + item * source_step + line * size;
      const int64_t of_lines = std::min(tile<T>, lines - line);
      const int64_t of_items = std::min(tile<T>, items - item);
      if (has_squares<T> && of_lines == tile<T> && of_items == tile<T>) {
        fetch_next_tile<T>(to, target_step, from, source_step);
      }
      transpose_tile<T>(to, target_step, from, source_step, of_lines, of_items);
    }
  }
}

template <typename T>
void fill_run(std::byte* target, const void* value, int64_t n) {
  copy_items<T>(target, sizeof(T), static_cast<const std::byte*>(value), 0, n);
}

}  // namespace

CopyPlan::CopyPlan(const ir::Dims& sizes, const ir::Dims& target_strides,
                   const ir::Dims& source_strides, int64_t item_bytes)
    : element_bytes_(item_bytes), item_bytes_(item_bytes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;  // no units: nothing to copy
    if (sizes[i] == 1) continue;
    outer_.push_back({sizes[i], target_strides[i] * item_bytes, source_strides[i] * item_bytes});
  }
  std::stable_sort(outer_.begin(), outer_.end(), [](const Dim& a, const Dim& b) {
    return std::abs(a.target) > std::abs(b.target);
  });
  merge();
  if (outer_.empty()) outer_.push_back({1, item_bytes, item_bytes});
  widen_items();
  choose_loop();
}

CopyPlan& CopyPlan::offsets(int64_t target, int64_t source) {
  target_offset_ = target * element_bytes_;
  source_offset_ = source * element_bytes_;
  return *this;
}

// Neighbours that are one run in both tensors become one dimension.
void CopyPlan::merge() {
  std::vector<Dim> merged;
  for (const Dim& dim : outer_) {
    if (!merged.empty() && merged.back().target == dim.target * dim.size &&
        merged.back().source == dim.source * dim.size) {
      merged.back() = {merged.back().size * dim.size, dim.target, dim.source};
    } else {
      merged.push_back(dim);
    }
  }
  outer_ = std::move(merged);
}

// A short run that is contiguous in both tensors becomes one item of 2 to 16 bytes.
void CopyPlan::widen_items() {
  const Dim& last = outer_.back();
  if (last.target != item_bytes_ || last.source != item_bytes_ || outer_.size() < 2) return;
  const int64_t bytes = last.size * item_bytes_;
  if (bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) return;
  item_bytes_ = bytes;
  outer_.pop_back();
}

void CopyPlan::choose_loop() {
  item_ = outer_.back();
  outer_.pop_back();
  size_t line = outer_.size();  // none
  if (item_.target == item_bytes_ && item_.source == item_bytes_) {
    loop_ = Loop::rows;
    if (!outer_.empty()) line = outer_.size() - 1;
  } else {
    for (size_t i = outer_.size(); i-- > 0;) {
      if (outer_[i].source == item_bytes_ && item_.target == item_bytes_) {
        line = i;
        loop_ = Loop::transpose;
        break;
      }
    }
    if (line == outer_.size() && !outer_.empty()) line = outer_.size() - 1;
  }
  if (line < outer_.size()) {
    line_ = outer_[line];
    outer_.erase(outer_.begin() + static_cast<int64_t>(line));
  }
  const int64_t line_bytes = item_.size * item_bytes_;
  const int64_t lines = std::max<int64_t>(1, grain_bytes / line_bytes);
  cut(loop_ == Loop::transpose ? std::max(lines, least_lines) : lines,
      std::max<int64_t>(1, grain_bytes / item_bytes_));
}

// Units depend on the sizes alone.
void CopyPlan::cut(int64_t lines_per_unit, int64_t items_per_unit) {
  lines_per_unit_ = std::min(lines_per_unit, line_.size);
  items_per_unit_ = std::min(items_per_unit, item_.size);
  units_ = ceil_div(line_.size, lines_per_unit_) *
           (ceil_div(item_.size, items_per_unit_));
  for (const Dim& dim : outer_) units_ *= dim.size;
  grain_ = std::max<int64_t>(1, grain_bytes / (lines_per_unit_ * items_per_unit_ * item_bytes_));
}

void CopyPlan::run(void* target, const void* source, int threads) const {
  auto* to = static_cast<std::byte*>(target) + target_offset_;
  const auto* from = static_cast<const std::byte*>(source) + source_offset_;
  parallel_for(threads, units_, grain_,
               [&](int64_t begin, int64_t end) { run_units(begin, end, to, from); });
}

void CopyPlan::run_units(int64_t begin, int64_t end, std::byte* target,
                         const std::byte* source) const {
  const int64_t item_cuts = ceil_div(item_.size, items_per_unit_);
  const int64_t line_cuts = ceil_div(line_.size, lines_per_unit_);
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t rest = unit;
    const int64_t item = rest % item_cuts * items_per_unit_;
    rest /= item_cuts;
    const int64_t line = rest % line_cuts * lines_per_unit_;
    rest /= line_cuts;
    std::byte* to = target + item * item_.target + line * line_.target;
    const std::byte* from = source + item * item_.source + line * line_.source;
    for (size_t i = outer_.size(); i-- > 0;) {
      const int64_t at = rest % outer_[i].size;
      rest /= outer_[i].size;
      to += at * outer_[i].target;
      from += at * outer_[i].source;
    }
    const int64_t lines = std::min(lines_per_unit_, line_.size - line);
    const int64_t items = std::min(items_per_unit_, item_.size - item);
    if (loop_ == Loop::rows) {
      run_unit_of_rows(to, from, lines, items);
      continue;
    }
    switch (item_bytes_) {
      case 1: run_unit<uint8_t>(to, from, lines, items); break;
      case 2: run_unit<uint16_t>(to, from, lines, items); break;
      case 4: run_unit<uint32_t>(to, from, lines, items); break;
      case 8: run_unit<uint64_t>(to, from, lines, items); break;
      default: run_unit<Wide>(to, from, lines, items); break;
    }
  }
}

void CopyPlan::run_unit_of_rows(std::byte* target, const std::byte* source, int64_t lines,
                                int64_t items) const {
  const size_t bytes = static_cast<size_t>(items * item_bytes_);
  for (int64_t line = 0; line < lines; ++line) {
    std::memcpy(target + line * line_.target, source + line * line_.source, bytes);
  }
}

template <typename T>
void CopyPlan::run_unit(std::byte* target, const std::byte* source, int64_t lines,
                        int64_t items) const {
  if (loop_ == Loop::transpose) {
    transpose<T>(target, line_.target, source, item_.source, lines, items);
    return;
  }
  for (int64_t line = 0; line < lines; ++line) {
    copy_items<T>(target + line * line_.target, item_.target, source + line * line_.source,
                  item_.source, items);
  }
}

void copy_bytes(void* target, const void* source, int64_t bytes, int threads) {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  parallel_for(threads, bytes, grain_bytes, [=](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void fill_items(void* target, const void* value, int64_t item_bytes, int64_t n, int threads) {
  auto* to = static_cast<std::byte*>(target);
  parallel_for(threads, n, std::max<int64_t>(1, grain_bytes / item_bytes),
               [&](int64_t begin, int64_t end) {
                 std::byte* at = to + begin * item_bytes;
                 with_item_type(item_bytes,
                                [&]<typename T>(T) { fill_run<T>(at, value, end - begin); });
               });
}

void fill_zero(void* target, int64_t bytes, int threads) {
  auto* to = static_cast<std::byte*>(target);
  parallel_for(threads, bytes, grain_bytes, [to](int64_t begin, int64_t end) {
    std::memset(to + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace poptorch::kernels
