#include "kernels/loop.h"

#include <algorithm>

#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

// An inner dimension shorter than this is not worth a call for each row: rows are gathered.
constexpr int64_t short_row = 48;

// Strides of `type` in the dimensions of `sizes`: 0 where it is broadcast.
ir::Dims broadcast_strides(const ir::Type& type, const ir::Dims& sizes) {
  const ir::Dims own = type.actual_strides();
  ir::Dims strides(sizes.size(), 0);
  const size_t lead = sizes.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) {
    strides[lead + i] = type.sizes[i] == 1 ? 0 : own[i];
  }
  return strides;
}

template <typename T>
void copy_row(const void* from, int64_t stride, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride];
}

void copy_row(int64_t item_bytes, const void* from, int64_t stride, int64_t n, void* to) {
  switch (item_bytes) {
    case 1: return copy_row<uint8_t>(from, stride, n, to);
    case 2: return copy_row<uint16_t>(from, stride, n, to);
    case 4: return copy_row<uint32_t>(from, stride, n, to);
    default: return copy_row<uint64_t>(from, stride, n, to);
  }
}

}  // namespace

// A place in the element space: the index of each dimension, the innermost last.
struct Loop::Cursor {
  std::array<int64_t, max_rank> index{};

  Cursor(const Loop& loop, int64_t at) {
    for (size_t d = loop.rank_; d-- > 0;) {
      index[d] = at % loop.sizes_[d];
      at /= loop.sizes_[d];
    }
  }

  int64_t row_left(const Loop& loop) const {
    return loop.sizes_[loop.rank_ - 1] - index[loop.rank_ - 1];
  }

  // Elements from the operand's first to the one here.
  int64_t offset(const Loop& loop, size_t operand) const {
    int64_t elements = 0;
    for (size_t d = 0; d < loop.rank_; ++d) {
      elements += index[d] * loop.operands_[operand].strides[d];
    }
    return elements;
  }

  // Goes on by at most what is left of the row.
  void advance(const Loop& loop, int64_t elements) {
    size_t d = loop.rank_ - 1;
    index[d] += elements;
    for (; d > 0 && index[d] == loop.sizes_[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
};

int64_t grain_of(int picoseconds) {
  return std::clamp<int64_t>(5'000'000 / std::max(picoseconds, 1) / 1024 * 1024, 1024, 32768);
}

Loop::Loop(const ir::Type& out, const std::vector<const ir::Type*>& operands, Halves halves) {
  INTERNAL_CHECK(operands.size() <= operands_.size() && out.is_contiguous(), "a loop over ",
                 operands.size(), " operands with result ", out.text());
  operands_count_ = operands.size();
  numel_ = out.numel();
  out_bytes_ = ir::item_bytes(out.dtype);
  narrow_ = halves == Halves::widened ? narrow_to(out.dtype) : nullptr;
  converts_ = narrow_ != nullptr;
  ir::Dims sizes = out.sizes;
  std::vector<ir::Dims> strides;
  for (const ir::Type* type : operands) strides.push_back(broadcast_strides(*type, out.sizes));
  merge(strides, sizes);
  USER_CHECK(sizes.size() <= max_rank, "[loop] ", out.text(), " has ", sizes.size(),
             " dimensions that cannot be merged, at most ", max_rank,
             " are supported. Reshape the operands.");
  rank_ = sizes.size();
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& operand = operands_[i];
    operand.item_bytes = ir::item_bytes(operands[i]->dtype);
    operand.widen = halves == Halves::widened ? widen_from(operands[i]->dtype) : nullptr;
    converts_ |= operand.widen != nullptr;
    std::copy(strides[i].begin(), strides[i].end(), operand.strides.begin());
    const bool single = std::all_of(strides[i].begin(), strides[i].end(),
                                    [](int64_t stride) { return stride == 0; });
    operand.flat = single || rank_ == 1 || strides[i] == ir::contiguous_strides(sizes);
  }
}

// Drops dimensions of size 1 and joins neighbors that every operand steps through evenly.
void Loop::merge(std::vector<ir::Dims>& strides, ir::Dims& sizes) const {
  ir::Dims merged;
  std::vector<ir::Dims> kept(strides.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool joins = !merged.empty();
    for (size_t i = 0; joins && i < strides.size(); ++i) {
      joins = kept[i].back() == strides[i][d] * sizes[d];
    }
    if (joins) {
      merged.back() *= sizes[d];
      for (size_t i = 0; i < strides.size(); ++i) kept[i].back() = strides[i][d];
    } else {
      merged.push_back(sizes[d]);
      for (size_t i = 0; i < strides.size(); ++i) kept[i].push_back(strides[i][d]);
    }
  }
  if (merged.empty()) {
    merged.push_back(1);
    for (ir::Dims& dims : kept) dims.push_back(1);
  }
  sizes = std::move(merged);
  strides = std::move(kept);
}

void Loop::run(const Work& work, const std::array<const void*, 3>& in, void* out,
               int threads) const {
  if (numel_ == 0) return;
  simd::Strip strip{out, {}, {}, 0, work.params};
  for (size_t i = 0; i < operands_count_; ++i) strip.in[i] = in[i];
  auto* bytes = static_cast<std::byte*>(out);
  const bool gathers = converts_ || (rank_ > 1 && sizes_[rank_ - 1] < short_row);
  parallel_for(threads, numel_, work.grain, [&](int64_t begin, int64_t end) {
    gathers ? blocks(work, strip, bytes, begin, end) : strips(work, strip, bytes, begin, end);
  });
}

void Loop::strips(const Work& work, simd::Strip strip, std::byte* out, int64_t begin,
                  int64_t end) const {
  const std::array<const void*, 3> base = {strip.in[0], strip.in[1], strip.in[2]};
  for (size_t i = 0; i < operands_count_; ++i) {
    strip.step[i] = operands_[i].strides[rank_ - 1];
  }
  Cursor cursor(*this, begin);
  for (int64_t at = begin; at < end; at += strip.n) {
    strip.n = std::min(cursor.row_left(*this), end - at);
    strip.out = out + at * out_bytes_;
    for (size_t i = 0; i < operands_count_; ++i) {
      strip.in[i] = static_cast<const std::byte*>(base[i]) +
                    cursor.offset(*this, i) * operands_[i].item_bytes;
    }
    work.run(strip);
    cursor.advance(*this, strip.n);
  }
}

void Loop::blocks(const Work& work, simd::Strip strip, std::byte* out, int64_t begin,
                  int64_t end) const {
  const std::array<const void*, 3> base = {strip.in[0], strip.in[1], strip.in[2]};
  alignas(64) std::byte gathered[3][simd::strip_block * sizeof(uint64_t)];
  alignas(64) float wide[4][simd::strip_block];
  const bool by_rows = sizes_[rank_ - 1] >= short_row;
  for (int64_t at = begin; at < end; at += strip.n) {
    const Cursor cursor(*this, at);
    strip.n = std::min(simd::strip_block, end - at);
    if (by_rows) strip.n = std::min(strip.n, cursor.row_left(*this));
    std::byte* to = out + at * out_bytes_;
    strip.out = narrow_ != nullptr ? static_cast<void*>(wide[3]) : to;
    for (size_t i = 0; i < operands_count_; ++i) {
      const Operand& operand = operands_[i];
      const int64_t step = operand.strides[rank_ - 1];
      const bool in_place =
          (operand.flat || by_rows) && (operand.widen == nullptr || step == 0 || step == 1);
      strip.step[i] = in_place ? step : 1;
      strip.in[i] = in_place ? static_cast<const std::byte*>(base[i]) +
                                   cursor.offset(*this, i) * operand.item_bytes
                             : gathered[i];
      if (!in_place) gather(i, base[i], cursor, strip.n, gathered[i]);
      if (operand.widen == nullptr) continue;
      const int64_t count = strip.step[i] == 0 ? 1 : strip.n;
      operand.widen(static_cast<const uint16_t*>(strip.in[i]), wide[i], count);
      strip.in[i] = wide[i];
    }
    work.run(strip);
    if (narrow_ != nullptr) narrow_(wide[3], reinterpret_cast<uint16_t*>(to), strip.n);
  }
}

Loop::Elements Loop::read(size_t operand, const void* from, int64_t at, int64_t n,
                           void* to) const {
  const Cursor cursor(*this, at);
  const int64_t step = operands_[operand].strides[rank_ - 1];
  if ((step == 0 || step == 1) && n <= cursor.row_left(*this)) {
    const int64_t bytes = cursor.offset(*this, operand) * operands_[operand].item_bytes;
    return {static_cast<const std::byte*>(from) + bytes, step};
  }
  gather(operand, from, cursor, n, to);
  return {to, 1};
}

void Loop::gather(size_t operand, const void* from, Cursor cursor, int64_t count, void* to) const {
  const int64_t item = operands_[operand].item_bytes;
  const int64_t stride = operands_[operand].strides[rank_ - 1];
  auto* out = static_cast<std::byte*>(to);
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(cursor.row_left(*this), count - done);
    const auto* row = static_cast<const std::byte*>(from) + cursor.offset(*this, operand) * item;
    copy_row(item, row, stride, n, out + done * item);
    cursor.advance(*this, n);
    done += n;
  }
}

}  // namespace poptorch::kernels
