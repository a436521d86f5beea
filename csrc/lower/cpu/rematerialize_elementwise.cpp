// Results of element-wise ops that only wait for the backward pass are computed there again, from
// what waits for it anyway. So they need not be kept until then; the bits are the same.
//
//   %1 = mul %0, %scale : f32[64,768]
//   %2 = add %1, %shift : f32[64,768]
//   %3 = gelu %2 : f32[64,768]
//   ...
//   %5 = gelu_backward %4, %2 {backward=true} : f32[64,768]
//   %6 = mul %5, %0 {backward=true} : f32[64,768]
// =>
//   %7 = mul %0, %scale {backward=true} : f32[64,768]
//   %8 = add %7, %shift {backward=true} : f32[64,768]
//   %5 = gelu_backward %4, %8 {backward=true} : f32[64,768]
//   %6 = mul %5, %0 {backward=true} : f32[64,768]
//
// Only where this pays:
//   - the value waits while most bytes are alive;
//   - its operands are kept: states and constants, or values that the backward pass reads there or
//     later and does not compute again;
//   - it costs little: a few steps of arithmetic, which join the region of their user, or one
//     dearer function of a matrix product, which costs far more;
//   - it is not marked to be kept (`checkpoint`);
//   - all of it, its users too, is on one IPU in one stage: nothing has to be moved for it.
#include <algorithm>
#include <array>

#include "ir/bodies.h"
#include "ir/part.h"
#include "lower/cpu/pass.h"
#include "ops/families/fused.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"

namespace poptorch::lower::cpu {

namespace {

constexpr int64_t small_bytes = 4096;  // not worth an op
constexpr size_t most_steps = 4;       // computed again for one value
// Of a sum in a product: a function costs as much as some ten of them, and a product has two more
// in the backward pass.
constexpr int64_t long_sum = 256;
// A few instructions for each vector.
constexpr std::array cheap_names = {
    ir::op::abs, ir::op::add, ir::op::bitwise_and, ir::op::bitwise_not, ir::op::bitwise_or,
    ir::op::bitwise_xor, ir::op::cast, ir::op::clamp, ir::op::eq, ir::op::ge, ir::op::gt,
    ir::op::hardtanh, ir::op::le, ir::op::leaky_relu, ir::op::logical_and, ir::op::logical_not,
    ir::op::logical_or, ir::op::lt, ir::op::masked_fill, ir::op::maximum, ir::op::minimum,
    ir::op::mul, ir::op::ne, ir::op::neg, ir::op::relu, ir::op::sub, ir::op::where};

bool is_cheap(const ir::Op& op) {
  return std::find(cheap_names.begin(), cheap_names.end(), op.name) != cheap_names.end();
}

// Runs as soon as its operands are known, so that these die.
bool hurries(const ir::Op& op) {
  return op.name == ir::op::accumulate || op.name == ir::op::all_reduce ||
         (ir::part_of(op) == ir::Part::update && op.name != ir::op::assign);
}

bool is_always_there(const ir::Value* memory) {
  return memory->op->name == ir::op::state || memory->op->name == ir::op::constant;
}

// What was moved between IPUs, or was in streaming memory, counts as a value of its own.
const ir::Value* viewed(const ir::Value* value) {
  while (value->op->name == ir::op::view) value = value->op->operands[0];
  return value;
}

bool may_meet(const ir::Op& a, const ir::Op& b) { return is_alike(a, b) && is_beside(a, b); }

// Terms of each sum of a matrix product; 0 for another op.
int64_t terms(const ir::Op& op) {
  const bool adds = op.name == ir::op::addmm || op.name == ir::op::baddbmm;
  if (!adds && op.name != ir::op::matmul) return 0;
  return op.operand(adds ? 1 : 0)->type.sizes.back();
}

class Recomputer {
 public:
  explicit Recomputer(ir::Graph& graph) : graph_(graph) {
    find_uses();
    find_peak();
    for (const auto& op : graph.ops) {
      std::vector<ir::Op*> steps;
      if (is_candidate(*op) && find_steps(*op, late_.at(op->result()).first, most_steps, steps)) {
        steps_.emplace(op->result(), std::move(steps));
      }
    }
  }

  bool run() {
    if (steps_.empty()) return false;
    for (auto& op : graph_.ops) {
      for (ir::Value*& operand : op->operands) {
        const bool is_late = operand != nullptr && is_backward(*op) && op->name != ir::op::view;
        if (is_late && steps_.contains(viewed(operand))) operand = again(operand, *op);
      }
      ops_.push_back(std::move(op));
    }
    graph_.ops = std::move(ops_);
    return true;
  }

 private:
  struct Span {
    size_t first, last;
  };

  void find_uses() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      ir::Op& op = *graph_.ops[i];
      if (op.name == ir::op::view || hurries(op)) continue;
      for (const ir::Value* operand : op.operands) {
        if (operand == nullptr) continue;
        const ir::Value* memory = viewed(operand);
        auto& uses = is_backward(op) ? late_ : early_;
        uses.emplace(memory, Span{i, i}).first->second.last = i;
        if (is_backward(op)) late_users_[memory].push_back(&op);
        if (op.results.empty()) kept_.insert(memory);  // goes to the host or to a state
      }
    }
    for (const ir::Value* output : graph_.outputs) kept_.insert(viewed(output));
  }

  // Where most bytes are alive, in the order of the program.
  void find_peak() {
    std::vector<int64_t> change(graph_.ops.size() + 1, 0);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (graph_.ops[i]->name == ir::op::view || hurries(*graph_.ops[i])) continue;
      for (const auto& result : graph_.ops[i]->results) {
        if (is_always_there(result.get())) continue;
        change[i] += result->type.bytes();
        change[last_use(result.get(), i) + 1] -= result->type.bytes();
      }
    }
    int64_t live = 0, most = 0;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      live += change[i];
      if (live > most) {
        most = live;
        peak_ = i;
      }
    }
  }

  size_t last_use(const ir::Value* value, size_t position) const {
    if (kept_.contains(value)) return graph_.ops.size() - 1;
    for (const auto* uses : {&early_, &late_}) {
      const auto found = uses->find(value);
      if (found != uses->end()) position = std::max(position, found->second.last);
    }
    return position;
  }

  bool is_candidate(const ir::Op& op) const {
    if (!may_repeat(op)) return false;
    const ir::Value* value = op.result();
    const auto early = early_.find(value), late = late_.find(value);
    if (early == early_.end() || late == late_.end() || kept_.contains(value)) return false;
    const bool waits = early->second.last < peak_ && peak_ < late->second.first;
    const auto& users = late_users_.at(value);
    return waits && value->type.bytes() > small_bytes &&
           std::all_of(users.begin(), users.end(),
                       [&](const ir::Op* user) { return may_meet(op, *user); });
  }

  static bool may_repeat(const ir::Op& op) {
    return !is_backward(op) && !op.attrs.has(ir::attr::recompute) &&
           !op.attrs.has(ir::attr::checkpoint) && ops::is_elementwise(op) &&
           !ops::op_def(op.name).random;
  }

  // The ops that compute a value from what is alive at `position` anyway, in order; false if there
  // are none, or they cost too much.
  bool find_steps(ir::Op& op, size_t position, size_t depth, std::vector<ir::Op*>& steps) const {
    if (depth == 0 || (!is_cheap(op) && !is_little(op))) return false;
    for (const ir::Value* operand : op.operands) {
      const ir::Value* memory = viewed(operand);
      if (is_there(memory, position, op)) continue;
      ir::Op& source = *memory->op;
      if (std::find(steps.begin(), steps.end(), &source) != steps.end()) continue;
      const bool fits = operand == memory && may_repeat(source) && may_meet(op, source) &&
                        memory->type.sizes == op.result()->type.sizes;
      if (!fits || !find_steps(source, position, depth - 1, steps)) return false;
    }
    steps.push_back(&op);
    return steps.size() <= most_steps;
  }

  bool is_there(const ir::Value* memory, size_t position, const ir::Op& user) const {
    if (is_always_there(memory)) return true;
    if (!may_meet(*memory->op, user)) return false;
    const auto late = late_.find(memory);
    const bool is_kept = late != late_.end() && late->second.last >= position &&
                         !steps_.contains(memory);
    return is_kept || memory->type.bytes() <= small_bytes;
  }

  // Whether a dearer function costs little compared with the product that makes its operand.
  static bool is_little(const ir::Op& op) {
    if (op.result()->type.dtype != ir::DType::f32 || op.operands.size() != 1) return false;
    return terms(*viewed(op.operand(0))->op) >= long_sum;
  }

  // The value, or view of one, computed again before `reader`, which stands next.
  ir::Value* again(ir::Value* value, const ir::Op& reader) {
    const auto known = again_.find(value);
    if (known != again_.end()) return known->second;
    ir::Value* made = nullptr;
    if (value->op->name == ir::op::view) {
      made = repeat(*value->op, {again(value->op->operands[0], reader)}, reader);
    } else {
      std::unordered_map<const ir::Value*, ir::Value*> own;  // not shared: would be live for longer
      for (const ir::Op* step : steps_.at(value)) {
        std::vector<ir::Value*> operands = step->operands;
        for (ir::Value*& operand : operands) {
          const auto found = own.find(operand);
          if (found != own.end()) operand = found->second;
        }
        own[step->result()] = made = repeat(*step, std::move(operands), reader);
      }
    }
    again_.emplace(value, made);
    return made;
  }

  ir::Value* repeat(const ir::Op& op, std::vector<ir::Value*> operands, const ir::Op& reader) {
    ir::Attrs attrs = op.attrs;
    attrs.erase(ir::attr::inplace);
    attrs.set(ir::attr::part, "backward");
    ops_.push_back(make_like(graph_, reader, op.name, std::move(operands), std::move(attrs),
                             {op.result()->type}));
    ops_.back()->source_location = op.source_location;
    return ops_.back()->result();
  }

  ir::Graph& graph_;
  std::unordered_set<const ir::Value*> kept_;  // outputs, what the host or a state gets
  std::unordered_map<const ir::Value*, Span> early_, late_;  // uses of memory, forward, backward
  std::unordered_map<const ir::Value*, std::vector<const ir::Op*>> late_users_;
  size_t peak_ = 0;
  std::unordered_map<const ir::Value*, std::vector<ir::Op*>> steps_;  // of what is computed again
  std::unordered_map<const ir::Value*, ir::Value*> again_;
  std::vector<std::unique_ptr<ir::Op>> ops_;
};

}  // namespace

bool rematerialize_elementwise(ir::Module& module) {
  bool changed = false;
  for (const auto& graph : module.graphs) {
    const bool has_bodies = std::any_of(graph->ops.begin(), graph->ops.end(),
                                        [](const auto& op) { return ir::has_bodies(*op); });
    if (has_bodies) continue;  // they may bind the states that would be read again behind it
    while (Recomputer(*graph).run()) changed = true;  // then most are alive elsewhere
  }
  return changed;
}

}  // namespace poptorch::lower::cpu
