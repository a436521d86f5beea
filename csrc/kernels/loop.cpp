#include "kernels/loop.h"

#include <algorithm>

#include "kernels/reduction/types.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

// An inner dimension shorter than this is not worth a call for each row: rows are gathered.
constexpr int64_t short_row = 48;

template <typename T>
void copy_row(const void* from, int64_t stride, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride];
}

void copy_row(int64_t item_bytes, const void* from, int64_t stride, int64_t n, void* to) {
  with_item_type(item_bytes, [&]<typename T>(T) { copy_row<T>(from, stride, n, to); });
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

Loop::Loop(const ir::Type& out, const std::vector<const ir::Type*>& operands, Float16Form form) {
  INTERNAL_CHECK(operands.size() <= operands_.size() && out.is_contiguous(), "a loop over ",
                 operands.size(), " operands with result ", out.text());
  operands_count_ = operands.size();
  numel_ = out.numel();
  out_bytes_ = ir::item_bytes(out.dtype);
  downcast_ = form == Float16Form::upcast ? downcast_to(out.dtype) : nullptr;
  converts_ = downcast_ != nullptr;
  ir::Dims sizes = out.sizes;
  std::vector<ir::Dims> strides;
  for (const ir::Type* type : operands) strides.push_back(ir::broadcast_strides(*type, out.sizes));
  merge(strides, sizes);
  USER_CHECK(sizes.size() <= max_rank, "[loop] ", out.text(), " has ", sizes.size(),
             " dimensions that cannot be merged, at most ", max_rank,
             " are supported. Reshape the operands.");
  rank_ = sizes.size();
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& operand = operands_[i];
    operand.item_bytes = ir::item_bytes(operands[i]->dtype);
    operand.upcast = form == Float16Form::upcast ? upcast_from(operands[i]->dtype) : nullptr;
    converts_ |= operand.upcast != nullptr;
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
  simd::InnerLoop inner{out, {}, {}, 0, work.params};
  for (size_t i = 0; i < operands_count_; ++i) inner.in[i] = in[i];
  auto* bytes = static_cast<std::byte*>(out);
  const bool gathers = converts_ || (rank_ > 1 && sizes_[rank_ - 1] < short_row);
  parallel_for(threads, numel_, work.grain, [&](int64_t begin, int64_t end) {
    gathers ? run_blocks(work, inner, bytes, begin, end) : run_rows(work, inner, bytes, begin, end);
  });
}

void Loop::run_rows(const Work& work, simd::InnerLoop inner, std::byte* out, int64_t begin,
                    int64_t end) const {
  const std::array<const void*, 3> base = {inner.in[0], inner.in[1], inner.in[2]};
  for (size_t i = 0; i < operands_count_; ++i) {
    inner.step[i] = operands_[i].strides[rank_ - 1];
  }
  Cursor cursor(*this, begin);
  for (int64_t at = begin; at < end; at += inner.n) {
    inner.n = std::min(cursor.row_left(*this), end - at);
    inner.out = out + at * out_bytes_;
    for (size_t i = 0; i < operands_count_; ++i) {
      inner.in[i] = static_cast<const std::byte*>(base[i]) +
                    cursor.offset(*this, i) * operands_[i].item_bytes;
    }
    work.run(inner);
    cursor.advance(*this, inner.n);
  }
}

void Loop::run_blocks(const Work& work, simd::InnerLoop inner, std::byte* out, int64_t begin,
                      int64_t end) const {
  const std::array<const void*, 3> base = {inner.in[0], inner.in[1], inner.in[2]};
  alignas(64) std::byte gathered[3][simd::loop_block * sizeof(uint64_t)];
  alignas(64) float wide[4][simd::loop_block];
  const bool by_rows = sizes_[rank_ - 1] >= short_row;
  for (int64_t at = begin; at < end; at += inner.n) {
    const Cursor cursor(*this, at);
    inner.n = std::min(simd::loop_block, end - at);
    if (by_rows) inner.n = std::min(inner.n, cursor.row_left(*this));
    std::byte* to = out + at * out_bytes_;
    inner.out = downcast_ != nullptr ? static_cast<void*>(wide[3]) : to;
    for (size_t i = 0; i < operands_count_; ++i) {
      const Operand& operand = operands_[i];
      const int64_t step = operand.strides[rank_ - 1];
      const bool in_place =
          (operand.flat || by_rows) && (operand.upcast == nullptr || step == 0 || step == 1);
      inner.step[i] = in_place ? step : 1;
      inner.in[i] = in_place ? static_cast<const std::byte*>(base[i]) +
                                   cursor.offset(*this, i) * operand.item_bytes
                             : gathered[i];
      if (!in_place) gather(i, base[i], cursor, inner.n, gathered[i]);
      if (operand.upcast == nullptr) continue;
      const int64_t count = inner.step[i] == 0 ? 1 : inner.n;
      operand.upcast(static_cast<const uint16_t*>(inner.in[i]), wide[i], count);
      inner.in[i] = wide[i];
    }
    work.run(inner);
    if (downcast_ != nullptr) downcast_(wide[3], reinterpret_cast<uint16_t*>(to), inner.n);
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
