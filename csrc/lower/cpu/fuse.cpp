// Gathers connected element-wise ops of equal result sizes into one `fused` op, which computes them
// block by block: what one makes for the next never leaves the cache. Values that others use are
// extra results.
//
//   %1 = mul %0, %scale : f32[8,4]
//   %2 = relu %1 : f32[8,4]              %3 = fused %0, %scale, %rng {body=[["mul", 0, 1],
//   %3 = dropout %2, %rng {...}     =>      ["relu", 3], ["dropout", 4, 2, ...]], out=[5]}
//
// The fused op stands where the last of its ops stood. So a region is closed as soon as an op
// outside of it uses one of its values, and an op joins an open region only if
//   - it agrees in the annotations that keep ops apart (IPU, stage, phase, recomputation), and no
//     op at another place lies between;
//   - operands that would die earlier are not larger than the values that need not be kept instead,
//     if large values are made in between.
// An op may still join a closed region, and so move up to it, when its other operands are made
// before it and nothing large is in between.
#include <algorithm>

#include "ir/bodies.h"
#include "lower/cpu/pass.h"
#include "ops/annotation.h"
#include "ops/families/fused.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"

namespace poptorch::lower::cpu {

namespace {

constexpr size_t most_ops = 40;       // of a region: more would need too many registers
constexpr size_t most_operands = 24;
constexpr int64_t large_bytes = 4096;

// Whether all ops of a region have the annotation alike, and the fused op too.
bool is_shared(const ops::Annotation& annotation) {
  return annotation.rule == ops::Rule::apart || annotation.rule == ops::Rule::origin ||
         annotation.rule == ops::Rule::place;
}

bool is_kept_anyway(const ir::Value* memory) {
  const ir::OpName maker = memory->op->name;
  return maker == ir::op::state || maker == ir::op::constant || maker == ir::op::stream_in ||
         maker == ir::op::input;
}

struct Region {
  std::vector<ir::Op*> ops;
  std::vector<size_t> positions;  // of its ops, without those that move up to it
  bool is_open = true;

  ir::Op& anchor() const { return *ops[positions.size() - 1]; }
};

class Fuser {
 public:
  explicit Fuser(ir::Graph& graph) : graph_(graph) {}

  bool run() {
    find_last_uses();
    for (size_t i = 0; i < graph_.ops.size(); ++i) visit(*graph_.ops[i], i);
    return rebuild();
  }

 private:
  void find_last_uses() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      position_.emplace(graph_.ops[i].get(), i);
      for (const ir::Value* operand : graph_.ops[i]->operands) {
        if (operand == nullptr) continue;
        last_use_[operand] = i;
        last_memory_use_[memory_of(operand)] = i;
      }
    }
    for (const ir::Value* output : graph_.outputs) {
      last_use_[output] = graph_.ops.size();
      last_memory_use_[memory_of(output)] = graph_.ops.size();
    }
  }

  void visit(ir::Op& op, size_t position) {
    const bool is_computed = !op.operands.empty() && !ops::is_alias(op);
    if (is_computed) {
      if (last_ != nullptr && !is_at_one_place(op, *last_)) close_all();
      last_ = &op;
    }
    if (ir::has_bodies(op)) close_all();  // they may bind the states that a region reads
    const bool joins = ops::is_elementwise(op) && op.result()->type.numel() > 0;
    std::vector<size_t> sources;
    for (const ir::Value* operand : op.operands) {
      const auto found = operand == nullptr ? region_of_.end() : region_of_.find(operand->op);
      if (found == region_of_.end() || !regions_[root(found->second)].is_open) continue;
      const size_t region = root(found->second);
      if (std::find(sources.begin(), sources.end(), region) == sources.end()) {
        sources.push_back(region);
      }
    }
    if (joins) return join(op, position, std::move(sources));
    for (const size_t region : sources) regions_[region].is_open = false;
    for (const auto& result : op.results) {
      const bool is_new = !ops::is_alias(op) && !is_kept_anyway(result.get());
      if (is_new && result->type.bytes() > large_bytes) last_large_ = position;
    }
  }

  void close_all() {
    for (; first_open_ < regions_.size(); ++first_open_) regions_[first_open_].is_open = false;
  }

  // Puts the op into the one region that its sources become, or begins one.
  void join(ir::Op& op, size_t position, std::vector<size_t> sources) {
    std::sort(sources.begin(), sources.end());
    Region all;
    std::vector<size_t> joined;
    for (const size_t source : sources) {
      Region more = merged(all, regions_[source]);
      const bool fits = is_alike(*regions_[source].ops[0], op) && more.ops.size() < most_ops;
      if (fits && !makes_longer_lives(with(more, op, position), position)) {
        all = std::move(more);
        joined.push_back(source);
      } else {
        regions_[source].is_open = false;
      }
    }
    if (joined.empty() && moves_up(op)) return;
    const size_t number = regions_.size();
    regions_.push_back(with(all, op, position));
    parents_.push_back(number);
    for (const size_t source : joined) {
      parents_[source] = number;
      regions_[source] = {{}, {}, false};
    }
    region_of_[&op] = number;
  }

  // Puts the op into the closed region that makes one of its operands, if it can stand there.
  bool moves_up(ir::Op& op) {
    for (const ir::Value* operand : op.operands) {
      const auto found = region_of_.find(operand->op);
      if (found == region_of_.end()) continue;
      Region& region = regions_[root(found->second)];
      const size_t at = region.positions.back();
      const bool fits = is_alike(region.anchor(), op) && last_large_ < at &&
                        region.ops.size() < most_ops && is_made_before(op, root(found->second));
      if (!fits || operands_of(with(region, op, at)).size() > most_operands) continue;
      region.is_open = false;
      region.ops.push_back(&op);
      region_of_[&op] = root(found->second);
      return true;
    }
    return false;
  }

  // Whether all operands are known where the region stands.
  bool is_made_before(const ir::Op& op, size_t region) {
    const size_t at = regions_[region].positions.back();
    return std::all_of(op.operands.begin(), op.operands.end(), [&](const ir::Value* operand) {
      const auto found = region_of_.find(operand->op);
      if (found == region_of_.end()) return position_.at(operand->op) < at;
      const size_t source = root(found->second);
      return source == region ||
             (!regions_[source].is_open && regions_[source].positions.back() < at);
    });
  }

  size_t root(size_t region) {
    while (parents_[region] != region) region = parents_[region] = parents_[parents_[region]];
    return region;
  }

  static Region merged(const Region& a, const Region& b) {
    Region out;
    size_t i = 0, j = 0;
    while (i < a.ops.size() || j < b.ops.size()) {
      const bool first = j == b.ops.size() ||
                         (i < a.ops.size() && a.positions[i] < b.positions[j]);
      out.ops.push_back(first ? a.ops[i] : b.ops[j]);
      out.positions.push_back(first ? a.positions[i++] : b.positions[j++]);
    }
    return out;
  }

  static Region with(Region region, ir::Op& op, size_t position) {
    region.ops.push_back(&op);
    region.positions.push_back(position);
    return region;
  }

  static bool is_alike(const ir::Op& a, const ir::Op& b) {
    if (a.result()->type.sizes != b.result()->type.sizes) return false;
    return std::all_of(ops::annotations().begin(), ops::annotations().end(),
                       [&](const ops::Annotation& annotation) {
                         return !is_shared(annotation) || ops::agree(a, b, annotation);
                       });
  }

  // Whether the fused op has a label: all of its ops have it alike.
  static bool is_common(const Region& region, const ops::Annotation& annotation) {
    return annotation.rule == ops::Rule::label &&
           std::all_of(region.ops.begin(), region.ops.end(), [&](const ir::Op* op) {
             return ops::agree(*op, region.anchor(), annotation);
           });
  }

  // Values from outside, each once.
  static std::vector<ir::Value*> operands_of(const Region& region) {
    std::vector<ir::Value*> operands;
    for (const ir::Op* op : region.ops) {
      for (ir::Value* operand : op->operands) {
        const bool is_inside =
            std::find(region.ops.begin(), region.ops.end(), operand->op) != region.ops.end();
        const bool is_known =
            std::find(operands.begin(), operands.end(), operand) != operands.end();
        if (!is_inside && !is_known) operands.push_back(operand);
      }
    }
    return operands;
  }

  // Whether more bytes would be alive before the last op than without the region.
  bool makes_longer_lives(const Region& region, size_t position) const {
    const std::vector<ir::Value*> operands = operands_of(region);
    if (operands.size() > most_operands) return true;
    if (last_large_ < region.positions[0]) return false;
    int64_t longer = 0, shorter = 0;
    std::vector<const ir::Value*> memories;
    for (const ir::Value* operand : operands) {
      const ir::Value* memory = memory_of(operand);
      const bool is_known = std::find(memories.begin(), memories.end(), memory) != memories.end();
      if (is_known || is_kept_anyway(memory) || last_memory_use_.at(memory) >= position) continue;
      memories.push_back(memory);
      longer += memory->type.bytes();
    }
    for (const ir::Op* op : region.ops) {
      const auto used = last_use_.find(op->result());
      const bool waits = op != region.ops.back() && used != last_use_.end() &&
                         used->second >= position;
      if (waits) shorter += op->result()->type.bytes();
    }
    return longer > shorter;
  }

  bool rebuild() {
    std::unordered_map<const ir::Op*, size_t> last;  // op that is last in a region -> the region
    std::unordered_set<const ir::Op*> inside;
    for (size_t i = 0; i < regions_.size(); ++i) {
      if (regions_[i].ops.size() < 2) continue;
      last.emplace(&regions_[i].anchor(), i);
      inside.insert(regions_[i].ops.begin(), regions_[i].ops.end());
    }
    if (last.empty()) return false;
    const auto uses = uses_outside(inside);
    std::vector<std::unique_ptr<ir::Op>> ops;
    std::vector<std::unique_ptr<ir::Op>> gone;
    std::unordered_map<ir::Value*, ir::Value*> instead;
    for (auto& op : graph_.ops) {
      const auto found = last.find(op.get());
      if (found != last.end()) ops.push_back(make(regions_[found->second], uses, instead));
      (inside.contains(op.get()) ? gone : ops).push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
    graph_.replace_all(instead);
    return true;
  }

  // Values of regions that ops of other regions, ops outside and outputs use.
  std::unordered_set<const ir::Value*> uses_outside(
      const std::unordered_set<const ir::Op*>& inside) {
    std::unordered_set<const ir::Value*> used(graph_.outputs.begin(), graph_.outputs.end());
    const auto region = [&](const ir::Op* op) {
      return inside.contains(op) ? root(region_of_.at(op)) : regions_.size();
    };
    for (const auto& op : graph_.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand == nullptr || !inside.contains(operand->op)) continue;
        if (region(op.get()) != region(operand->op)) used.insert(operand);
      }
    }
    return used;
  }

  std::unique_ptr<ir::Op> make(const Region& region,
                               const std::unordered_set<const ir::Value*>& used,
                               std::unordered_map<ir::Value*, ir::Value*>& instead) {
    const std::vector<ir::Value*> operands = operands_of(region);
    std::unordered_map<const ir::Value*, int64_t> number;
    for (const ir::Value* operand : operands) number.emplace(operand, number.size());
    ir::AttrList body;
    ir::Dims out;
    std::vector<ir::Type> types;
    std::vector<std::string> names;
    std::vector<ir::Value*> replaced;
    for (const ir::Op* op : region.ops) {
      std::vector<int64_t> numbers;
      for (const ir::Value* operand : op->operands) numbers.push_back(number.at(operand));
      body.emplace_back(ops::body_entry(*op, numbers));
      number.emplace(op->result(), number.size());
      const bool is_last = op == region.ops.back();
      if (!used.contains(op->result()) && !(is_last && out.empty())) continue;
      out.push_back(number.at(op->result()));
      types.push_back(op->result()->type);
      replaced.push_back(op->result());
    }
    ir::Attrs attrs;
    attrs.set(ir::attr::body, std::move(body));
    attrs.set(ir::attr::out, out);
    const ir::Op& anchor = region.anchor();
    for (const ops::Annotation& annotation : ops::annotations()) {
      const ir::Attr* attr = anchor.attrs.find(annotation.name);
      const bool is_kept = is_shared(annotation) || is_common(region, annotation);
      if (attr != nullptr && is_kept) attrs.set(annotation.name, *attr);
    }
    auto fused = make_like(graph_, anchor, ir::op::fused, operands, std::move(attrs), types);
    for (size_t i = 0; i < replaced.size(); ++i) instead.emplace(replaced[i], fused->result(i));
    return fused;
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Op*, size_t> position_;
  std::unordered_map<const ir::Value*, size_t> last_use_;
  std::unordered_map<const ir::Value*, size_t> last_memory_use_;  // views included
  std::unordered_map<const ir::Op*, size_t> region_of_;
  std::vector<Region> regions_;
  std::vector<size_t> parents_;  // of a region that was merged into another
  const ir::Op* last_ = nullptr;  // that computes
  size_t last_large_ = 0;  // position of the last op outside of regions with a large result
  size_t first_open_ = 0;
};

}  // namespace

bool fuse(ir::Module& module) {
  return rewrite::in_each_graph(module, [](ir::Graph& graph) { return Fuser(graph).run(); });
}

}  // namespace poptorch::lower::cpu
