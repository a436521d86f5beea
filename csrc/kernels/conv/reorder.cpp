#include "kernels/conv/reorder.h"

#include <algorithm>

#include "ir/copy.h"
#include "kernels/conv/algorithms.h"
#include "kernels/move/copy.h"
#include "ops/layout.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

using Direction = ConvProblem::Direction;

ir::Type in_order(const ir::Type& type) {
  ir::Type last = ops::channels_last(type);
  last.strides.clear();
  return ops::channels_first(last);
}

// What a problem is computed of.
std::vector<ir::Type ConvProblem::*> operands_of(const ConvProblem& p) {
  if (p.is(Direction::forward)) return {&ConvProblem::x, &ConvProblem::w};
  if (p.is(Direction::data_gradient)) return {&ConvProblem::y, &ConvProblem::w};
  return {&ConvProblem::y, &ConvProblem::x};
}

struct OperandCopy {
  size_t operand;
  CopyPlan plan;
  size_t offset;  // in scratch
};

// A call on copies of some of its operands, which are made in scratch.
struct CallOnCopies {
  ir::Op op;
  std::vector<std::unique_ptr<ir::Value>> values;
  std::vector<OperandCopy> copies;
  size_t scratch_bytes = 0;

  explicit CallOnCopies(const ConvProblem& p) : op(ir::copy_apart(p.call->op)) {
    copy(0);
    copy(p.is(Direction::data_gradient) ? 2 : 1);
  }

 private:
  void copy(size_t operand) {
    const ir::Type& from = op.operands[operand]->type;
    if (ops::lies_channels_last(from)) return;
    ir::Value& value = *values.emplace_back(std::make_unique<ir::Value>(*op.operands[operand]));
    value.type = in_order(from);
    const int64_t item = ir::item_bytes(from.dtype);
    const CopyPlan plan(from.sizes, value.type.actual_strides(), from.actual_strides(), item);
    copies.push_back({operand, plan, scratch_bytes});
    scratch_bytes += align_up(static_cast<size_t>(from.numel() * item));
    op.operands[operand] = &value;
  }
};

}  // namespace

bool has_other_order(const ConvProblem& p) {
  const auto operands = operands_of(p);
  return std::any_of(operands.begin(), operands.end(),
                     [&](auto which) { return !ops::lies_channels_last(p.*which); });
}

ConvProblem reordered(const ConvProblem& p) {
  ConvProblem copied = p;
  for (const auto which : operands_of(p)) copied.*which = in_order(p.*which);
  copied.call = nullptr;
  return copied;
}

Prepared reordered_convolution(const ConvProblem& p) {
  CallOnCopies on_copies(p);
  const Call call{on_copies.op, p.call->threads};
  const Prepared prepared = prepare_conv(
      p.is(Direction::forward) ? ConvProblem::forward(call)
                               : ConvProblem::gradient(call, p.direction, p.is_upcast));
  const size_t n_in = call.in_count();
  // The array of pointers lies in scratch, too: a run must not allocate.
  const size_t pointers = on_copies.scratch_bytes;
  const size_t inner = pointers + align_up(n_in * sizeof(void*));
  const auto run = [=, copies = std::move(on_copies.copies),
                    compute = prepared.run](const Args& args) {
    void** inputs = reinterpret_cast<void**>(args.scratch + pointers);
    std::copy_n(args.inputs, n_in, inputs);
    for (const OperandCopy& one : copies) {
      inputs[one.operand] = args.scratch + one.offset;
      one.plan.run(inputs[one.operand], args.inputs[one.operand], args.threads);
    }
    compute({inputs, args.outputs, args.scratch + inner, args.threads});
  };
  return {run, inner + prepared.scratch_bytes, "reorder " + prepared.algorithm};
}

}  // namespace poptorch::kernels
