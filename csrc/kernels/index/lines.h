// Walks along the entries of an index tensor: gather and the scatters.
#pragma once

#include "kernels/index/rows.h"
#include "ops/families/reduction.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

// The entries of an index tensor as lines along its last dimension, and where each line starts in
// `self` (position 0 of the indexed dimension) and in `src`.
struct Lines {
  int64_t count = 1, length = 1;
  int64_t size = 1, along = 1;  // entries and stride of the indexed dimension of self
  int64_t step = 0;             // stride of self along a line; 0 when that is the indexed dimension
  int64_t groups = 1;           // consecutive lines fall into groups that share no entry of self
  int64_t dim = 0;
  ir::DType index_type;
  OuterDims outer;  // of self and src

  Lines(const ops::Call& call, const ir::Type& self, const ir::Type& index, const ir::Type& src)
      : dim(ops::single_dim({call.op}, self)), index_type(index.dtype) {
    const ir::Dims sizes = at_least_one(index.sizes), self_sizes = at_least_one(self.sizes);
    const ir::Dims self_strides = ir::contiguous_strides(self_sizes);
    const ir::Dims src_strides = ir::contiguous_strides(at_least_one(src.sizes));
    const int64_t last = static_cast<int64_t>(sizes.size()) - 1;
    length = sizes[last];
    size = self_sizes[dim];
    along = self_strides[dim];
    step = dim == last ? 0 : 1;
    for (int64_t d = 0; d < last; ++d) {
      count *= sizes[d];
      if (d < dim) groups *= sizes[d];
      outer.dims.push_back({sizes[d], d == dim ? 0 : self_strides[d], src_strides[d]});
    }
  }

  // Entries of a line that are worked on together. Lines that lie across the indexed dimension are
  // cut so that what the entries can reach in self stays in the cache.
  int64_t cut() const {
    constexpr int64_t cached = 1 << 16, narrowest = 16, widest = 512;
    if (step == 0) return std::max<int64_t>(length, 1);
    const int64_t fitting = cached / std::max<int64_t>(size, 1) / narrowest * narrowest;
    return std::clamp(fitting, narrowest, widest);
  }

 private:
  static ir::Dims at_least_one(const ir::Dims& sizes) {
    return sizes.empty() ? ir::Dims{1} : sizes;
  }
};

// Calls write(to, from) for each entry, with its places in self and src; entries of one place in
// self come one after the other, in their order. The indices are operand 1; one out of range throws
// in the end.
void scatter_lines(std::string_view op, const Lines& lines, const ops::Args& args,
                   const auto& write) {
  const Indices index(args.inputs[1], lines.index_type);
  IndexGuard guard;
  const int64_t width = lines.cut(), cuts = ceil_div(lines.length, width);
  const int64_t in_group = lines.groups == 0 ? 0 : lines.count / lines.groups;
  const auto run_line = [&](int64_t line, int64_t first, int64_t last) {
    int64_t buffer[Indices::block];
    const auto start = lines.outer.start(line);
    for (int64_t j = first; j < last; j += Indices::block) {
      const int64_t n = std::min(Indices::block, last - j), entry = line * lines.length + j;
      const int64_t* at = index.read(entry, n, buffer);
      if (!guard.allows_all(at, n, lines.size, entry)) return;
      for (int64_t i = 0; i < n; ++i) {
        write(start.self + at[i] * lines.along + (j + i) * lines.step, start.other + j + i);
      }
    }
  };
  parallel_for(args.threads, lines.groups * cuts, grain_for(in_group * width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t group = unit / cuts, first = unit % cuts * width;
                   const int64_t last = std::min(lines.length, first + width);
                   for (int64_t line = group * in_group; line < (group + 1) * in_group; ++line) {
                     run_line(line, first, last);
                   }
                 }
               });
  guard.check(op, index, 0, lines.size, lines.dim);
}

}  // namespace poptorch::kernels
