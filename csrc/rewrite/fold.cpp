// Computes ops on constants now, with the kernels that would run. Ops without operands (`full`,
// `arange`) are made constants only when they are small; what is computed from them is folded all
// the same. Results of more than 1 MiB are only folded when the operands are as large.
//
//   %0 = constant {data=[1.0, 2.0]} : f32[2]
//   %1 = constant {data=[3.0]} : f32[1]
//   %2 = add %0, %1 : f32[2]       =>  %2 = constant {data=[4.0, 5.0]} : f32[2]
#include <algorithm>

#include "ops/evaluate.h"
#include "ops/kernel.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/pass.h"
#include "support/error.h"

namespace poptorch::rewrite {

namespace {

constexpr int64_t most_bytes = 1 << 20;
constexpr int64_t most_generated = 16;  // elements of a constant that is printed inline

using ops::Bytes;

bool may_fold(const ir::Op& op) {
  const ops::OpDef* row = ops::find_op(op.name);
  if (row == nullptr || row->effects || row->random) return false;
  if (op.name == ir::op::aten || ops::is_foreign(op)) return false;
  return op.name != ir::op::constant && !op.results.empty() && ops::find_kernel(op.name) != nullptr;
}

class Folder {
 public:
  Folder(ir::Module& module, ir::Graph& graph) : module_(module), graph_(graph) {}

  bool run() {
    bool changed = false;
    std::vector<std::unique_ptr<ir::Op>> kept;
    for (auto& op : graph_.ops) {
      if (op->name == ir::op::constant) {
        known_.emplace(op->result(), nullptr);
      } else if (may_fold(*op) && compute(*op) && !is_large_generator(*op)) {
        make_constants(*op, kept);
        dropped_.push_back(std::move(op));
        changed = true;
        continue;
      }
      kept.push_back(std::move(op));
    }
    graph_.ops = std::move(kept);
    return changed;
  }

 private:
  static bool is_large_generator(const ir::Op& op) {
    return op.operands.empty() && op.result()->type.numel() > most_generated;
  }

  // Bytes of the results into `known_`; false when they cannot be known now.
  bool compute(const ir::Op& op) {
    int64_t in_bytes = 0, out_bytes = 0;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr) continue;
      if (!known_.contains(operand) || !operand->type.is_contiguous()) return false;
      in_bytes += operand->type.bytes();
    }
    for (const auto& result : op.results) out_bytes += result->type.bytes();
    if (out_bytes > std::max(most_bytes, in_bytes)) return false;
    std::vector<const void*> inputs;
    for (const ir::Value* operand : op.operands) {
      inputs.push_back(operand == nullptr ? nullptr : bytes_of(operand));
    }
    try {
      std::vector<Bytes> results = ops::evaluate(op, inputs, 1);
      for (size_t i = 0; i < results.size(); ++i) {
        known_.emplace(op.result(i), std::make_shared<const Bytes>(std::move(results[i])));
      }
    } catch (const UserError&) {
      return false;  // a bad index, say: the run reports it, if it gets there
    }
    return true;
  }

  const void* bytes_of(const ir::Value* value) {
    std::shared_ptr<const Bytes>& bytes = known_.at(value);
    if (bytes == nullptr) {
      bytes = std::make_shared<const Bytes>(ir::constant_bytes(module_, *value->op));
    }
    return bytes->data();
  }

  // The values stay, so that their users need no change; only the op that defines them is new.
  void make_constants(ir::Op& op, std::vector<std::unique_ptr<ir::Op>>& kept) {
    for (auto& result : op.results) {
      auto constant = make_like(graph_, op, ir::op::constant, {},
                                module_.constant_attrs(result->type, bytes_of(result.get())), {});
      result->op = constant.get();
      result->index = 0;
      constant->results.push_back(std::move(result));
      kept.push_back(std::move(constant));
    }
  }

  ir::Module& module_;
  ir::Graph& graph_;
  std::unordered_map<const ir::Value*, std::shared_ptr<const Bytes>> known_;  // null: not read yet
  std::vector<std::unique_ptr<ir::Op>> dropped_;
};

}  // namespace

bool fold(ir::Module& module) {
  return in_each_graph(module, [&](ir::Graph& graph) { return Folder(module, graph).run(); });
}

}  // namespace poptorch::rewrite
