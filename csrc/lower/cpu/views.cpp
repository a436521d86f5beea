// Turns reshape, permute, expand, slice and diagonal, and chains of them, into `view`s: names for
// the memory of another value, with strides and an offset, at no cost. A view always refers to a
// value that is none itself. Where an op's kernel does not take the strides, and for what a loop
// carries, a `contiguous` copy is put in (one for all that need it); also of a weight that does not
// change and that a kernel would copy in each run: `hoist` moves such copies out of the runs.
// A move between IPUs takes the strides of what it moves. A reshape that no strides can express is
// a view of such a copy.
//
//   %1 = permute %0 {dims=[1, 0]} : f32[8,4]       %1 = view %0 : f32[8,4](1,8)
//   %2 = slice %1 {end=2} : f32[2,4]               %2 = view %0 : f32[2,4](1,8)
//   %3 = softmax %2 {dim=0} : f32[2,4]         =>  %4 = contiguous %2 : f32[2,4]
//                                                  %3 = softmax %4 {dim=0} : f32[2,4]
#include <optional>

#include "lower/cpu/pass.h"
#include "ops/families/shape.h"
#include "rewrite/edit.h"
#include "rewrite/fixed.h"
#include "support/mutant.h"

namespace poptorch::lower::cpu {

namespace {

using ir::Dims;
using ops::Window;

// A row-major group of dimensions of the new sizes must lie inside one evenly strided group of the
// old ones. Walks both from the back; empty when the elements cannot be reached by strides.
std::optional<Dims> reshape_strides(const Dims& old_sizes, const Dims& old_strides,
                                    const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  auto next = static_cast<int64_t>(sizes.size()) - 1;
  int64_t group = 1;    // elements of the old group so far
  int64_t covered = 1;  // of the new dimensions that lie in it
  int64_t step = old_strides.empty() ? 1 : old_strides.back();
  for (auto d = static_cast<int64_t>(old_sizes.size()) - 1; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    group *= old_sizes[at];
    // The group goes on when the dimension outside continues with the same step.
    const bool goes_on = d > 0 && (old_sizes[at - 1] == 1 || old_strides[at - 1] == group * step ||
                                   (MUTANT(reshape_joins_size_one) && old_sizes[at] == 1));
    if (goes_on) continue;
    while (next >= 0 && (covered < group || sizes[static_cast<size_t>(next)] == 1)) {
      strides[static_cast<size_t>(next)] = covered * step;
      covered *= sizes[static_cast<size_t>(next)];
      --next;
    }
    if (covered != group) return std::nullopt;
    if (d > 0) {
      group = covered = 1;
      step = old_strides[at - 1];
    }
  }
  // Only dimensions of size 1 can be left.
  return strides;
}

Window permute_window(const ir::Op& op, const ir::Type& x, const Dims& strides) {
  Window out{0, op.result()->type.sizes, {}};
  for (int64_t dim : op.attrs.get_ints(ir::attr::dims)) {
    out.strides.push_back(strides[static_cast<size_t>(dim < 0 ? dim + x.rank() : dim)]);
  }
  return out;
}

Window expand_window(const ir::Op& op, const ir::Type& x, const Dims& strides) {
  Window out{0, op.result()->type.sizes, Dims(op.result()->type.sizes.size(), 0)};
  const size_t added = out.sizes.size() - x.sizes.size();
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    if (x.sizes[i] == out.sizes[added + i]) out.strides[added + i] = strides[i];
  }
  return out;
}

// Which elements of the operand's memory the result is; empty when strides cannot say.
std::optional<Window> window_of(const ir::Op& op) {
  if (op.operands.empty() || op.operands[0] == nullptr) return std::nullopt;
  const ir::Type& x = op.operand(0)->type;
  const Dims strides = x.actual_strides();
  if (op.name == ir::op::permute) return permute_window(op, x, strides);
  if (op.name == ir::op::expand) return expand_window(op, x, strides);
  if (op.name == ir::op::reshape) {
    const Dims& sizes = op.result()->type.sizes;
    if (op.result()->type.numel() == 0) return Window{0, sizes, ir::contiguous_strides(sizes)};
    const std::optional<Dims> found = reshape_strides(x.sizes, strides, sizes);
    return found ? std::optional(Window{0, sizes, *found}) : std::nullopt;
  }
  if (op.name != ir::op::slice && op.name != ir::op::diagonal) return std::nullopt;
  ir::Op complete;  // the window rules read attributes that may not be written
  complete.name = op.name;
  complete.operands = op.operands;
  complete.attrs = ops::complete_attrs(ops::op_def(op.name), op.attrs);
  const ops::InferInput in{complete};
  return op.name == ir::op::slice ? ops::slice_window(in, x.sizes, strides)
                            : ops::diagonal_window(in, x.sizes, strides);
}

// Read in the order of its elements, each comes from another cache line: a loop over it takes ten
// times as long as a copy by small squares and a loop over that.
bool is_scattered(const ir::Type& type) {
  constexpr int64_t few = 1 << 14, line_bytes = 64;
  if (type.is_contiguous() || type.numel() < few) return false;
  for (int64_t d = type.rank() - 1; d >= 0; --d) {
    const auto dim = static_cast<size_t>(d);
    if (type.sizes[dim] == 1) continue;
    return std::abs(type.strides[dim]) * ir::item_bytes(type.dtype) >= line_bytes;
  }
  return false;
}

class ViewMaker {
 public:
  ViewMaker(ir::Graph& graph, const rewrite::FixedValues& fixed) : graph_(graph), fixed_(fixed) {}

  bool run() {
    for (auto& op : graph_.ops) {
      if (ops::is_move(*op)) {
        follow(*op);
      } else if (!make_view(*op)) {
        take_copies(*op);
      }
      kept_.push_back(std::move(op));
    }
    for (ir::Value*& output : graph_.outputs) {
      if (!output->type.is_contiguous()) output = copy_of(output);
    }
    graph_.ops = std::move(kept_);
    return changed_;
  }

 private:
  bool make_view(ir::Op& op) {
    std::optional<Window> window = window_of(op);
    if (!window && op.name == ir::op::reshape) {
      op.operands[0] = copy_of(op.operands[0]);
      window = window_of(op);
    }
    if (!window) return false;
    ir::Value* from = op.operands[0];
    int64_t offset = window->offset;
    if (from->op->name == ir::op::view) {
      if (!MUTANT(view_of_view_drops_offset)) {
        offset += from->op->attrs.get_int(ir::attr::offset, 0);
      }
      from = from->op->operands[0];
    }
    op.name = ir::op::view;
    op.operands = {from};
    ir::Type& type = op.result()->type;
    type.set_strides(window->strides);
    op.attrs = annotations_of(op);
    if (offset != 0 && type.numel() > 0) op.attrs.set(ir::attr::offset, offset);
    changed_ = true;
    return true;
  }

  // A move of a view is one of the view's strides too.
  void follow(ir::Op& move) {
    ir::Type& type = move.result()->type;
    if (type == move.operand(0)->type) return;
    type = move.operand(0)->type;
    changed_ = true;
  }

  void take_copies(ir::Op& op) {
    const ops::OpDef* row = ops::find_op(op.name);
    if (row == nullptr || op.name == ir::op::view) return;
    for (ir::Value*& operand : op.operands) {
      if (operand == nullptr) continue;
      const bool is_slow =
          (row->elementwise && is_scattered(operand->type)) || is_copied_alike(op, operand);
      if (!is_slow && ops::takes_strides(row->strided, operand->type)) continue;
      operand = copy_of(operand);
    }
  }

  // A weight that oneDNN brings into its order in each run.
  bool is_copied_alike(const ir::Op& op, const ir::Value* operand) const {
    const bool is_weight =
        (op.name == ir::op::convolution && operand == op.operand(1)) ||
        (op.name == ir::op::convolution_backward && operand == op.operand(2));
    return is_weight && !operand->type.is_contiguous() && fixed_.is_from_state(operand);
  }

  // Made where it is first needed, which is before all its other uses.
  ir::Value* copy_of(ir::Value* value) {
    if (copies_[value] == nullptr) {
      const ir::Type type{value->type.dtype, value->type.sizes, {}};
      const ir::Op& op = *value->op;
      const bool is_stored = op.name == ir::op::remote_store;  // cannot be copied where it is
      ir::Value* source = is_stored ? copy_of(op.operands[0]) : value;
      kept_.push_back(make_like(graph_, op, is_stored ? op.name : ir::op::contiguous, {source},
                                is_stored ? op.attrs : annotations_of(op), {type}));
      copies_[value] = kept_.back()->result();
      changed_ = true;
      return kept_.back()->result();
    }
    return copies_[value];
  }

  ir::Graph& graph_;
  const rewrite::FixedValues& fixed_;
  std::vector<std::unique_ptr<ir::Op>> kept_;
  std::unordered_map<const ir::Value*, ir::Value*> copies_;
  bool changed_ = false;
};

}  // namespace

bool views(ir::Module& module) {
  const rewrite::FixedValues fixed(module);
  return rewrite::in_each_graph(
      module, [&](ir::Graph& graph) { return ViewMaker(graph, fixed).run(); });
}

}  // namespace poptorch::lower::cpu
