// Kernels of data movement: each is one or more strided copies.
#include "ops/families/shape.h"

#include <algorithm>
#include <array>

#include "ir/element.h"
#include "kernels/move/copy.h"
#include "ops/kernel.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ir::Type;
using ops::InferInput;
using ops::Window;

struct OperandCopy {
  size_t operand;
  CopyPlan plan;
};

Prepared run_copies(std::vector<OperandCopy> copies) {
  return {[copies = std::move(copies)](const Args& args) {
    for (const OperandCopy& copy : copies) {
      copy.plan.run(args.outputs[0], args.inputs[copy.operand], args.threads);
    }
  }};
}

int64_t item_bytes_of(const Call& call) { return ir::item_bytes(call.out().dtype); }

// The operand, seen with these sizes and strides, becomes the whole result.
CopyPlan to_whole(const Call& call, const Dims& sizes, const Dims& source_strides) {
  return {sizes, ir::contiguous_strides(sizes), source_strides, item_bytes_of(call)};
}

Prepared copy_all(const Call& call) {
  const Type& x = call.in(0);
  return run_copies({{0, to_whole(call, x.sizes, x.actual_strides())}});
}

Prepared bitcast(const Call& call) {
  const int64_t bytes = call.out().bytes();
  return run_copies({{0, CopyPlan({bytes}, {1}, {1}, 1)}});
}

Prepared permute(const Call& call) {
  const Type& x = call.in(0);
  const Dims old = x.actual_strides();
  Dims strides;
  for (int64_t dim :
       ops::wrap_dims({call.op}, ops::ints_of(call.attrs(), ir::attr::dims), x.rank())) {
    strides.push_back(old[dim]);
  }
  return run_copies({{0, to_whole(call, call.out().sizes, strides)}});
}

Prepared expand(const Call& call) {
  const Type& x = call.in(0);
  const Dims old = x.actual_strides();
  Dims strides(call.out().sizes.size(), 0);
  const size_t added = strides.size() - old.size();
  for (size_t d = 0; d < old.size(); ++d) {
    if (x.sizes[d] == call.out().sizes[added + d]) strides[added + d] = old[d];
  }
  return run_copies({{0, to_whole(call, call.out().sizes, strides)}});
}

using WindowOf = Window (*)(const InferInput&, const Dims&, const Dims&);

template <WindowOf window_of>
Prepared take_window(const Call& call) {
  const Type& x = call.in(0);
  const Window window = window_of({call.op}, x.sizes, x.actual_strides());
  CopyPlan plan = to_whole(call, window.sizes, window.strides);
  return run_copies({{0, plan.offsets(0, window.offset)}});
}

// Copies the operand over a window of the result.
template <WindowOf window_of>
CopyPlan into_window(const Call& call, size_t operand) {
  const Type& out = call.out();
  const Window window = window_of({call.op}, out.sizes, ir::contiguous_strides(out.sizes));
  const Dims dense = ir::contiguous_strides(out.sizes);
  const bool skips = !MUTANT(slice_scatter_ignores_step) || window.strides.size() != dense.size();
  CopyPlan plan(window.sizes, skips ? window.strides : dense, call.in(operand).actual_strides(),
                item_bytes_of(call));
  return plan.offsets(window.offset, 0);
}

template <WindowOf window_of>
Prepared scatter_window(const Call& call) {
  const CopyPlan whole = to_whole(call, call.in(0).sizes, call.in(0).actual_strides());
  const CopyPlan part = into_window<window_of>(call, 1);
  return {[whole, part](const Args& args) {
    if (args.inputs[0] != args.outputs[0]) {
      whole.run(args.outputs[0], args.inputs[0], args.threads);
    }
    part.run(args.outputs[0], args.inputs[1], args.threads);
  }};
}

template <WindowOf window_of>
Prepared window_backward(const Call& call) {
  const CopyPlan part = into_window<window_of>(call, 0);
  return {[part, bytes = call.out().bytes()](const Args& args) {
    fill_zero(args.outputs[0], bytes, args.threads);
    part.run(args.outputs[0], args.inputs[0], args.threads);
  }};
}

Prepared cat(const Call& call) {
  const Type& out = call.out();
  const int64_t dim = ops::wrap_dim({call.op}, call.attrs().get_int(ir::attr::dim), out.rank());
  const Dims strides = ir::contiguous_strides(out.sizes);
  std::vector<OperandCopy> copies;
  int64_t at = 0;
  for (size_t i = 0; i < call.in_count(); ++i) {
    const Type& x = call.in(i);
    if (x.numel() == 0) continue;
    CopyPlan plan(x.sizes, strides, x.actual_strides(), item_bytes_of(call));
    copies.push_back({i, plan.offsets(at * strides[dim], 0)});
    at += x.sizes[dim];
  }
  return run_copies(std::move(copies));
}

Prepared constant_pad_nd(const Call& call) {
  const Type& x = call.in(0);
  const Type& out = call.out();
  const Dims pad = ops::ints_of(call.attrs(), ir::attr::pad);
  const Dims from = x.actual_strides(), to = ir::contiguous_strides(out.sizes);
  Dims sizes = x.sizes;
  int64_t target = 0, source = 0;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t d = sizes.size() - 1 - i;
    const int64_t before = pad[2 * i], after = pad[2 * i + 1];
    target += std::max<int64_t>(before, 0) * to[d];
    source += std::max<int64_t>(-before, 0) * from[d];
    sizes[d] += std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    sizes[d] = std::max<int64_t>(sizes[d], 0);
  }
  CopyPlan plan(sizes, to, from, item_bytes_of(call));
  plan.offsets(target, source);
  const ir::Number number(call.attrs().get_float(ir::attr::value));
  std::array<std::byte, 8> value{};
  ir::store_element(out.dtype, value.data(), 0, number);
  return {[plan, value, n = out.numel(), bytes = item_bytes_of(call)](const Args& args) {
    fill_items(args.outputs[0], value.data(), bytes, n, args.threads);
    plan.run(args.outputs[0], args.inputs[0], args.threads);
  }};
}

Prepared flip(const Call& call) {
  const Type& x = call.in(0);
  Dims strides = x.actual_strides();
  int64_t start = 0;
  if (x.numel() > 0 && x.rank() > 0) {
    for (int64_t d :
         ops::wrap_dims({call.op}, ops::ints_of(call.attrs(), ir::attr::dims), x.rank())) {
      start += (x.sizes[d] - 1) * strides[d];
      strides[d] = -strides[d];
    }
  }
  CopyPlan plan = to_whole(call, x.sizes, strides);
  return run_copies({{0, plan.offsets(0, start)}});
}

// The copies read a row-major copy of the operand.
Prepared by_way_of_scratch(const Call& call, std::vector<OperandCopy> copies) {
  const CopyPlan whole = to_whole(call, call.in(0).sizes, call.in(0).actual_strides());
  const auto run = [whole, copies = std::move(copies)](const Args& args) {
    whole.run(args.scratch, args.inputs[0], args.threads);
    for (const OperandCopy& copy : copies) {
      copy.plan.run(args.outputs[0], args.scratch, args.threads);
    }
  };
  return {run, static_cast<size_t>(call.out().bytes())};
}

// How far each dimension is rolled, from 0 to its size.
Dims roll_of_each_dim(const Call& call, const Dims& sizes) {
  const Dims shifts = ops::ints_of(call.attrs(), ir::attr::shifts);
  const Dims dims = ops::ints_of(call.attrs(), ir::attr::dims);
  Dims rolls(sizes.size(), 0);
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t rank = static_cast<int64_t>(sizes.size());
    const int64_t d = dims.empty() ? 0 : ops::wrap_dim({call.op}, dims[i], rank);
    rolls[d] = ((rolls[d] + shifts[i] % sizes[d]) % sizes[d] + sizes[d]) % sizes[d];
  }
  return rolls;
}

// Each rolled dimension falls into two runs, so k of them into 2^k blocks.
Prepared roll(const Call& call) {
  const Type& x = call.in(0);
  if (x.numel() <= 1) return copy_all(call);
  const bool flat = ops::ints_of(call.attrs(), ir::attr::dims).empty();
  const Dims sizes = flat ? Dims{x.numel()} : x.sizes;
  const Dims from = flat ? Dims{1} : x.actual_strides(), to = ir::contiguous_strides(sizes);
  const Dims rolls = roll_of_each_dim(call, sizes);
  struct Block {
    Dims sizes;
    int64_t target = 0, source = 0;
  };
  std::vector<Block> blocks = {{sizes}};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (rolls[d] == 0) continue;
    for (size_t i = 0, n = blocks.size(); i < n; ++i) {
      Block tail = blocks[i];
      tail.sizes[d] = rolls[d];
      tail.source += (sizes[d] - rolls[d]) * (MUTANT(roll_reads_row_major) ? to : from)[d];
      blocks[i].sizes[d] = sizes[d] - rolls[d];
      blocks[i].target += rolls[d] * to[d];
      blocks.push_back(tail);
    }
  }
  std::vector<OperandCopy> copies;
  for (const Block& block : blocks) {
    CopyPlan plan(block.sizes, to, from, item_bytes_of(call));
    copies.push_back({0, plan.offsets(block.target, block.source)});
  }
  if (flat && !x.is_contiguous()) return by_way_of_scratch(call, std::move(copies));
  return run_copies(std::move(copies));
}

Prepared repeat(const Call& call) {
  const Type& x = call.in(0);
  const Dims old = x.actual_strides();
  const Dims repeats = ops::ints_of(call.attrs(), ir::attr::repeats);
  const size_t added = repeats.size() - old.size();
  Dims sizes, strides;
  for (size_t d = 0; d < repeats.size(); ++d) {
    sizes.push_back(repeats[d]);
    strides.push_back(0);
    if (d < added) continue;
    sizes.push_back(x.sizes[d - added]);
    strides.push_back(old[d - added]);
  }
  return run_copies({{0, to_whole(call, sizes, strides)}});
}

// `lower`: keep what is on and below the diagonal.
Prepared triangle(const Call& call, bool lower) {
  const Type& x = call.in(0);
  const CopyPlan whole = to_whole(call, x.sizes, x.actual_strides());
  const int64_t rows = x.sizes[x.rank() - 2], columns = x.sizes[x.rank() - 1];
  const int64_t diagonal =
      std::clamp<int64_t>(call.attrs().get_int(ir::attr::diagonal), -rows - 1, columns);
  const int64_t all_rows = columns == 0 ? 0 : x.numel() / columns;
  const int64_t item = item_bytes_of(call);
  return {[=](const Args& args) {
    whole.run(args.outputs[0], args.inputs[0], args.threads);
    auto* out = static_cast<std::byte*>(args.outputs[0]);
    const int64_t grain = std::max<int64_t>(1, (64 << 10) / (columns * item + 1));
    parallel_for(args.threads, all_rows, grain, [=](int64_t row) {
      const int64_t above =
          std::clamp<int64_t>(row % rows + diagonal + (lower ? 1 : 0), 0, columns);
      std::byte* at = out + (row * columns + (lower ? above : 0)) * item;
      std::memset(at, 0, static_cast<size_t>((lower ? columns - above : above) * item));
    });
  }};
}

Prepared tril(const Call& call) { return triangle(call, true); }
Prepared triu(const Call& call) { return triangle(call, false); }

KERNEL("contiguous", copy_all, true)
KERNEL("reshape", copy_all, true)
KERNEL("bitcast", bitcast, true)
KERNEL("permute", permute, true)
KERNEL("expand", expand, true)
KERNEL("slice", take_window<ops::slice_window>, true)
KERNEL("diagonal", take_window<ops::diagonal_window>, true)
KERNEL("cat", cat, true)
KERNEL("constant_pad_nd", constant_pad_nd, true)
KERNEL("flip", flip, true)
KERNEL("roll", roll, true)
KERNEL("repeat", repeat, true)
KERNEL("tril", tril, true)
KERNEL("triu", triu, true)
KERNEL("slice_scatter", scatter_window<ops::slice_window>, true)
KERNEL("diagonal_scatter", scatter_window<ops::diagonal_window>, true)
KERNEL("slice_backward", window_backward<ops::slice_window>, true)
KERNEL("diagonal_backward", window_backward<ops::diagonal_window>, true)

}  // namespace

}  // namespace poptorch::kernels
