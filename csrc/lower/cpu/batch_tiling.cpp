// Lets a large batch of images go through convolutions and poolings part by part: the images
// between them stay in the caches of the cores then, and take the memory of one part. Only where
// the result is small compared with the values in between, since the parts are copied together.
//
//   %1 = packed_convolution %0, %w, ... : f32[64,28,28,64]
//   %2, %3 = max_pool2d %1 {keep=false, layout="channels_last", ...} : f32[64,14,14,64], i32[0]
// =>
//   %4 = slice %0 {end=32} : f32[32,28,28,32]
//   %5 = packed_convolution %4, %w, ... : f32[32,28,28,64]
//   %6, %7 = max_pool2d %5 {keep=false, layout="channels_last", ...} : f32[32,14,14,64], i32[0]
//   %8 = slice %0 {end=64, start=32} : f32[32,28,28,32]
//   ...
//   %2 = cat %6, %11 : f32[64,14,14,64]
#include <algorithm>

#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/op_list.h"
#include "support/ceil_div.h"

namespace poptorch::lower::cpu {

namespace {

// Bytes of an image between two ops that stay in a cache, for all entries of a part.
constexpr int64_t most_bytes = 4 << 20;
// Fewer entries of a part would not keep the cores busy.
constexpr int64_t least_entries = 8;
// More would be so many ops to compile.
constexpr int64_t most_parts = 32;

// Ops; each is the only reader of the one before.
using Chain = std::vector<ir::Op*>;

bool is_permute(const ir::Op& op) { return op.name == ir::op::permute; }

// How many entries of the batch make a part; 0 where parts are not worth their copies.
int64_t entries_of_part(const Chain& chain) {
  auto last = chain.end() - 1;
  while (last != chain.begin() && is_permute(**last)) --last;
  int64_t largest = 0, between = 0;
  for (auto op = chain.begin(); op != last; ++op) {
    const int64_t bytes = is_permute(**op) ? 0 : (*op)->result()->type.bytes();
    largest = std::max(largest, bytes);
    between += bytes;
  }
  const ir::Type& out = (*last)->result()->type;
  const int64_t batch = out.sizes[0];
  if (largest <= most_bytes || between < 2 * out.bytes()) return 0;
  const int64_t least = std::max(least_entries, ceil_div(batch, most_parts));
  for (int64_t entries = batch / 2; entries >= least; --entries) {
    if (batch % entries == 0 && largest / batch * entries <= most_bytes) return entries;
  }
  return 0;
}

class PartMaker {
 public:
  explicit PartMaker(ir::Graph& graph)
      : graph_(graph), list_(graph), uses_(graph.count_uses()) {}

  bool run() {
    find_chains();
    if (chains_.empty()) return false;
    return list_.rebuild(
        [this](const ir::Op& op) {
          const auto chain = chains_.find(&op);
          return chain == chains_.end() ? nullptr : emit(chain->second);
        },
        [this](const ir::Op& op) { return inner_.contains(&op); });
  }

 private:
  // Whether an op computes each entry of the batch, dimension 0, by itself.
  bool is_link(const ir::Op& op) const {
    const ir::Value* image = op.operand(0);
    if (image == nullptr || image->type.rank() != 4 || is_backward(op)) return false;
    if (is_permute(op)) return op.attrs.get_ints(ir::attr::dims)[0] == 0;
    if (op.name == ir::op::max_pool2d) return ops::attr_of(op, ir::attr::keep) == ir::Attr(false);
    if (op.name != ir::op::packed_convolution) return false;
    const ir::Op& weight = *op.operand(1)->op;
    return weight.name != ir::op::pack_convolution || uses_.at(op.operand(1)) == 1;
  }

  // The one op that reads the result, if it goes on with the chain.
  ir::Op* next_of(const ir::Op& op) const {
    const auto found = readers_.find(op.result());
    if (found == readers_.end() || uses_.at(op.result()) != 1) return nullptr;
    ir::Op* next = found->second;
    const bool goes_on = next->operand(0) == op.result() && is_link(*next);
    return goes_on && belong_together(op, *next) ? next : nullptr;
  }

  void find_chains() {
    for (const auto& op : graph_.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand != nullptr) readers_[operand] = op.get();
      }
    }
    std::unordered_set<const ir::Op*> seen;
    for (const auto& op : graph_.ops) {
      if (seen.contains(op.get()) || !is_link(*op)) continue;
      Chain chain;
      for (ir::Op* link = op.get(); link != nullptr; link = next_of(*link)) chain.push_back(link);
      seen.insert(chain.begin(), chain.end());
      if (entries_of_part(chain) == 0) continue;
      inner_.insert(chain.begin(), chain.end());
      ir::Op* last = chain.back();
      chains_.emplace(last, std::move(chain));
    }
  }

  ir::Value* emit(const Chain& chain) {
    const int64_t batch = chain[0]->operand(0)->type.sizes[0], entries = entries_of_part(chain);
    std::vector<ir::Value*> parts;
    for (int64_t first = 0; first < batch; first += entries) {
      const auto part_of = [&](ir::Value* value, const ir::Op& op) {
        if (value == nullptr) return value;
        return list_.add(ir::op::slice, {value},
                         attrs_of({{ir::attr::start, first}, {ir::attr::end, first + entries}}),
                         op);
      };
      ir::Value* image = part_of(chain[0]->operands[0], *chain[0]);
      for (ir::Op* op : chain) {
        std::vector<ir::Value*> operands = op->operands;
        operands[0] = image;
        if (op->name == ir::op::packed_convolution && operands.size() > 3) {
          operands[3] = part_of(operands[3], *op);
        }
        image = list_.add(op->name, std::move(operands), op->attrs, *op);
      }
      parts.push_back(image);
    }
    for (const ir::Op* op : chain) pack_for(*op, entries);
    return list_.add(ir::op::cat, parts, {}, *chain.back());
  }

  // The form of packed weights may depend on the batch.
  static void pack_for(const ir::Op& op, int64_t entries) {
    if (op.name != ir::op::packed_convolution) return;
    if (op.operand(1)->op->name != ir::op::pack_convolution) return;
    ir::Op& packing = *op.operand(1)->op;
    ir::Dims size = packing.attrs.get_ints(ir::attr::input_size);
    size[0] = entries;
    packing.attrs.set(ir::attr::input_size, size);
  }

  ir::Graph& graph_;
  OpList list_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Value*, ir::Op*> readers_;  // the last one
  std::unordered_map<const ir::Op*, Chain> chains_;        // by their last op
  std::unordered_set<const ir::Op*> inner_;                // ops of chains
};

}  // namespace

bool batch_tiling(ir::Module& module) {
  return rewrite::in_each_graph(module, [](ir::Graph& graph) { return PartMaker(graph).run(); });
}

}  // namespace poptorch::lower::cpu
