// A product with an image that was flattened reads the image as it lies, channels-last, if the
// weight is fixed: the rows of the weight are put in that order instead, once, in `prepare`.
//
//   %1 = permute %image {dims=[0, 3, 1, 2]} : f32[64,16,7,7]
//   %2 = reshape %1 {size=[64, 784]} : f32[64,784]
//   %3 = permute %w {dims=[1, 0]} : f32[784,10]
//   %4 = addmm %b, %2, %3 : f32[64,10]
// =>
//   %5 = reshape %image {size=[64, 784]} : f32[64,784]
//   %6 = reshape %w {size=[10, 16, 7, 7]} : f32[10,16,7,7]
//   %7 = permute %6 {dims=[2, 3, 1, 0]} : f32[7,7,16,10]
//   %8 = reshape %7 {size=[784, 10]} : f32[784,10]
//   %4 = addmm %b, %5, %8 : f32[64,10]
//
// A weight much larger than the image stays: its copy would take memory all the time.
#include "ops/op_def.h"
#include "rewrite/fixed.h"
#include "rewrite/op_list.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

constexpr int64_t most_growth = 4;  // numbers of the weight for each one of the image

bool is_permute(const ir::Op& op, const ir::Dims& dims) {
  return op.name == "permute" && op.attrs.get_ints("dims") == dims;
}

class Flattener {
 public:
  Flattener(ir::Graph& graph, const FixedValues& fixed)
      : graph_(graph), fixed_(fixed), list_(graph), uses_(graph.count_uses()) {}

  bool run() {
    bool changed = false;
    for (auto& op : graph_.ops) {
      changed |= read_as_it_lies(*op);
      list_.take(std::move(op));
    }
    list_.finish();
    return changed;
  }

 private:
  // The image, channels last, that this value has in rows, channels first; else nullptr.
  ir::Value* flattened(const ir::Value* value) const {
    if (value->op->name != "reshape" || value->type.rank() != 2 || uses_.at(value) != 1) {
      return nullptr;
    }
    const ir::Op& first = *value->op->operand(0)->op;
    if (!is_permute(first, {0, 3, 1, 2})) return nullptr;
    const ir::Dims& sizes = first.operand(0)->type.sizes;
    const bool is_same = sizes[1] * sizes[2] == 1 || sizes[3] == 1;  // in either order
    return is_same || value->type.sizes[0] != sizes[0] ? nullptr : first.operands[0];
  }

  bool read_as_it_lies(ir::Op& op) {
    if (op.name != "addmm" && op.name != "matmul") return false;
    const size_t left = op.name == "addmm" ? 1 : 0;
    ir::Value* weight = op.operands[left + 1];
    ir::Value* image = flattened(op.operands[left]);
    if (image == nullptr || weight->type.rank() != 2 || !fixed_.is_from_state(weight)) return false;
    if (weight->type.numel() > most_growth * image->type.numel()) return false;
    const ir::Dims rows = op.operands[left]->type.sizes;
    op.operands[left] = list_.add("reshape", {image}, attrs_of({{"size", rows}}), op);
    op.operands[left + 1] = reordered(weight, image->type.sizes, op);
    return true;
  }

  // The rows of the weight in the order of an image of these sizes, channels last.
  ir::Value* reordered(ir::Value* weight, const ir::Dims& image, const ir::Op& like) {
    const int64_t height = image[1], width = image[2], channels = image[3];
    const ir::Dims result = weight->type.sizes;
    const bool is_turned = is_permute(*weight->op, {1, 0});
    ir::Dims sizes = {channels, height, width, result[1]}, dims = {1, 2, 0, 3};
    if (is_turned) {
      weight = weight->op->operands[0];
      sizes = {result[1], channels, height, width};
      dims = {2, 3, 1, 0};
    }
    ir::Value* value = list_.add("reshape", {weight}, attrs_of({{"size", sizes}}), like);
    value = list_.add("permute", {value}, attrs_of({{"dims", dims}}), like);
    return list_.add("reshape", {value}, attrs_of({{"size", result}}), like);
  }

  ir::Graph& graph_;
  const FixedValues& fixed_;
  OpList list_;
  std::unordered_map<const ir::Value*, int> uses_;
};

}  // namespace

bool flatten_last(ir::Module& module) {
  const FixedValues fixed(module);
  bool changed = false;
  for (const auto& graph : module.graphs) changed |= Flattener(*graph, fixed).run();
  return changed;
}

}  // namespace poptorch::rewrite
