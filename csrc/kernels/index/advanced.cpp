// index, index_put: one index tensor for each of some dimensions.
#include "kernels/index/rows.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "ops/families/indexing.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/mutant.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ir::Type;
using ops::AdvancedIndex;

// An index tensor: entry b of the batch is at the sum of coordinate * stride.
struct IndexTensor {
  size_t operand;
  bool wide;                 // i64
  Dims strides;              // for each batch dimension
  int64_t dim, size, along;  // the dimension of self, its entries and stride
  int64_t numel;
};

// The indexed tensor as runs of entries that lie side by side after the last indexed dimension: run
// (line, b) is at line.self + offset[b] in self and at line.other + b * batch_step in the indexed
// part.
struct Walk {
  std::vector<IndexTensor> tensors;
  Dims batch_sizes;
  int64_t batch = 1, batch_step = 1, run = 1, others = 1;
  OuterDims outer;  // of self and the indexed part
};

// `batch`: the number of positions; `part_sizes`: the indexed part with the batch as one dimension.
Walk make_walk(const Type& x, const AdvancedIndex& index, int64_t batch) {
  Walk walk;
  walk.batch_sizes = index.batch;
  walk.batch = batch;
  const Dims strides = ir::contiguous_strides(x.sizes);
  const int64_t rank = x.rank();
  for (int64_t d = index.dims.back() + 1; d < rank; ++d) walk.run *= x.sizes[d];
  const bool first = index.batch_at == 0;  // the batch stands before all other dimensions
  int64_t step = walk.run;
  size_t next = index.dims.size();
  walk.batch_step = step;
  bool batch_passed = first;
  for (int64_t d = index.dims.back(); d >= 0; --d) {
    if (next > 0 && index.dims[next - 1] == d) {
      --next;
      continue;
    }
    if (!batch_passed) step *= batch, batch_passed = true;
    walk.outer.dims.insert(walk.outer.dims.begin(), {x.sizes[d], strides[d], step});
    step *= x.sizes[d];
    walk.others *= x.sizes[d];
  }
  if (first) walk.batch_step = step;
  return walk;
}

Walk walk_of(const Call& call, const AdvancedIndex& index) {
  const Type& x = call.in(0);
  Walk walk = make_walk(x, index, ir::product(index.batch));
  const Dims strides = ir::contiguous_strides(x.sizes);
  for (size_t i = 0; i < index.operands.size(); ++i) {
    const Type& type = call.in(index.operands[i]);
    const int64_t d = index.dims[i];
    walk.tensors.push_back({index.operands[i], type.dtype == ir::DType::i64,
                            ir::broadcast_strides(type, index.batch), d, x.sizes[d], strides[d],
                            type.numel()});
  }
  return walk;
}

template <typename Index>
void add_offsets(const Walk& walk, const IndexTensor& tensor, const Index* index, int64_t* offsets,
                 int threads) {
  parallel_for(threads, walk.batch, index_grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int64_t at = 0, rest = b;
      for (size_t d = walk.batch_sizes.size(); d-- > 0;) {
        at += rest % walk.batch_sizes[d] * tensor.strides[d];
        rest /= walk.batch_sizes[d];
      }
      const int64_t i = index[at];
      const int64_t from_end = MUTANT(negative_index_from_start) ? -1 - i : i + tensor.size;
      offsets[b] += (i < 0 ? from_end : i) * tensor.along;
    }
  });
}

// Where each entry of the batch lies in self.
void compute_offsets(const char* op, const Walk& walk, const Args& args, int64_t* offsets) {
  if (walk.batch == 0) return;  // no index is looked at, as in eager
  std::memset(offsets, 0, static_cast<size_t>(walk.batch) * sizeof(int64_t));
  for (const IndexTensor& tensor : walk.tensors) {
    const auto add = [&](const auto* index) {
      check_indices(op, index, tensor.numel, -tensor.size, tensor.size, tensor.dim);
      add_offsets(walk, tensor, index, offsets, args.threads);
    };
    tensor.wide ? add(args.in<int64_t>(tensor.operand)) : add(args.in<int32_t>(tensor.operand));
  }
}

Prepared index(const Call& call) {
  const Walk walk = walk_of(call, ops::advanced_index({call.op}, 1, false));
  const int64_t item = ir::item_bytes(call.in(0).dtype), bytes = walk.run * item;
  const auto run = [=](const Args& args) {
    auto* offsets = reinterpret_cast<int64_t*>(args.scratch);
    if (walk.others * walk.run == 0) return;
    compute_offsets("index", walk, args, offsets);
    const auto* x = args.in<std::byte>(0);
    auto* out = args.out<std::byte>();
    parallel_for(args.threads, walk.others * walk.batch, grain_for(walk.run),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end;) {
                     const auto start = walk.outer.start(i / walk.batch);
                     const int64_t first = i % walk.batch;
                     const int64_t last = std::min(walk.batch, first + end - i);
                     for (int64_t b = first; b < last; ++b) {
                       copy_row(out + (start.other + b * walk.batch_step) * item,
                                x + (start.self + offsets[b]) * item, bytes);
                     }
                     i += last - first;
                   }
                 });
  };
  return {run, static_cast<size_t>(walk.batch) * sizeof(int64_t)};
}

template <typename T, bool accumulate>
void put_run(T* to, const T* from, bool one_value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = from[one_value ? 0 : i];
    to[i] = accumulate ? static_cast<T>(to[i] + value) : value;
  }
}

// Threads get different runs of self, or different parts of the runs: entries of the batch keep
// their order.
template <typename T, bool accumulate>
void put(const Walk& walk, int64_t batch, const int64_t* offsets, T* out, const T* values,
         bool one_value, int threads) {
  constexpr int64_t cut = 256;
  const int64_t cuts = ceil_div(walk.run, cut), width = std::min(walk.run, cut);
  parallel_for(threads, walk.others * cuts, grain_for(batch * width), [&](int64_t unit) {
    const auto start = walk.outer.start(unit / cuts);
    const int64_t first = unit % cuts * width, n = std::min(width, walk.run - first);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t at = one_value ? 0 : start.other + b * walk.batch_step + first;
      put_run<T, accumulate>(out + start.self + offsets[b] + first, values + at,
                             one_value, n);
    }
  });
}

// Calls fn.operator()<T, accumulate>(): an unsigned T where values are only moved.
Prepared by_put_type(const Call& call, const auto& fn) {
  if (call.attrs().get_bool(ir::attr::accumulate)) {
    return with_type(call.in(0).dtype,
                     [&]<typename T>(T) { return fn.template operator()<T, true>(); });
  }
  return with_item_type(ir::item_bytes(call.in(0).dtype),
                        [&]<typename T>(T) { return fn.template operator()<T, false>(); });
}

Prepared put_at_positions(const Call& call, const AdvancedIndex& index) {
  const Walk walk = walk_of(call, index);
  const Type& values = call.in(1);
  const bool one_value = values.numel() == 1, spread = !one_value && values.sizes != index.sizes;
  const CopyPlan whole(index.sizes, ir::contiguous_strides(index.sizes),
                       ir::broadcast_strides(values, index.sizes), ir::item_bytes(values.dtype));
  const int64_t offset_bytes = align_up(walk.batch * 8), bytes = call.in(0).bytes();
  const int64_t spread_bytes = spread ? ir::product(index.sizes) * ir::item_bytes(values.dtype) : 0;
  return by_put_type(call, [&]<typename T, bool accumulate>() -> Prepared {
    const auto run = [=](const Args& args) {
      auto* offsets = reinterpret_cast<int64_t*>(args.scratch);
      copy_unless_same(args, bytes);
      if (walk.others * walk.run == 0) return;
      compute_offsets("index_put", walk, args, offsets);
      if (spread) whole.run(args.scratch + offset_bytes, args.inputs[1], args.threads);
      const T* from =
          spread ? reinterpret_cast<const T*>(args.scratch + offset_bytes) : args.in<T>(1);
      put<T, accumulate>(walk, walk.batch, offsets, args.out<T>(), from, one_value, args.threads);
    };
    return {run, static_cast<size_t>(offset_bytes + spread_bytes)};
  });
}

// How many entries the mask selects is known at run time only, so that values are one number or
// exactly as many.
Prepared put_at_mask(const Call& call, const AdvancedIndex& index) {
  const Type& mask = call.in(index.operands[0]);
  const Walk walk = make_walk(call.in(0), index, mask.numel());
  const int64_t bytes = call.in(0).bytes(), values = call.in(1).numel(), n = mask.numel();
  return by_put_type(call, [&]<typename T, bool accumulate>() -> Prepared {
    const auto run = [=, operand = index.operands[0]](const Args& args) {
      auto* offsets = reinterpret_cast<int64_t*>(args.scratch);
      copy_unless_same(args, bytes);
      const bool* chosen = args.in<bool>(operand);
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (chosen[i]) offsets[count++] = i * walk.run;
      }
      USER_CHECK(values == 1 || (values == count * walk.run && walk.others == 1),
                 "[index_put] the mask selects ", count, " places of ", walk.run * walk.others,
                 " entries, there are ", values, " values. Give one value, or use torch.where.");
      put<T, accumulate>(walk, count, offsets, args.out<T>(), args.in<T>(1), values == 1,
                         args.threads);
    };
    return {run, static_cast<size_t>(n) * sizeof(int64_t)};
  });
}

Prepared index_put(const Call& call) {
  const AdvancedIndex index = ops::advanced_index({call.op}, 2, true);
  return index.is_mask ? put_at_mask(call, index) : put_at_positions(call, index);
}

KERNEL("index", index, true)
KERNEL("index_put", index_put)

}  // namespace

}  // namespace poptorch::kernels
