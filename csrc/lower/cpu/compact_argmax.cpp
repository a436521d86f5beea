// What max pooling keeps for its gradient: the place of the largest entry within the window, one
// byte each, and neither image; without a gradient, nothing. A relu before it moves behind it,
// where there is less to do, and the relu's gradient with it: the largest of relu(x) is relu of
// the largest.
//
//   %1 = relu %0 : f32[2,3,8,8]
//   %2, %3 = max_pool2d %1 {kernel_size=[2, 2]} : f32[2,3,4,4], i32[2,3,4,4]
//   %4 = max_pool2d_backward %g, %1, %3 {kernel_size=[2, 2]} : f32[2,3,8,8]
//   %5 = threshold_backward %4, %1 {threshold=0.0} : f32[2,3,8,8]
// =>
//   %6, %7 = max_pool2d %0 {in_window=true, kernel_size=[2, 2]} : f32[2,3,4,4], u8[2,3,4,4]
//   %2 = relu %6 : f32[2,3,4,4]
//   %8 = threshold_backward %g, %2 {threshold=0.0} : f32[2,3,4,4]
//   %5 = max_pool2d_backward %8, _, %7 {image_size=[8, 8], in_window=true, ...} : f32[2,3,8,8]
//
// In inference a relu stays where it is: a convolution computes it at no cost.
#include <algorithm>

#include "lower/cpu/pass.h"
#include "ops/families/pooling.h"
#include "ops/families/shape.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/op_list.h"

namespace poptorch::lower::cpu {

namespace {

using Users = std::unordered_map<const ir::Value*, std::vector<ir::Op*>>;

class PoolRewriter {
 public:
  explicit PoolRewriter(ir::Graph& graph) : graph_(graph), list_(graph) {
    for (const auto& op : graph.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand != nullptr) users_[operand].push_back(op.get());
      }
    }
    for (const ir::Value* output : graph.outputs) users_[output].push_back(nullptr);
  }

  bool run() {
    for (const auto& op : graph_.ops) {
      if (op->name == ir::op::max_pool2d) look_at(*op);
    }
    if (lean_.empty()) return false;
    for (auto& op : graph_.ops) {
      for (ir::Value*& operand : op->operands) follow(operand);
      if (replace(*op)) {
        list_.drop(std::move(op));
      } else {
        list_.take(std::move(op));
      }
    }
    for (ir::Value*& output : graph_.outputs) follow(output);
    list_.finish();
    return true;
  }

 private:
  void follow(ir::Value*& value) const {
    const auto found = instead_.find(value);
    if (found != instead_.end()) value = found->second;
  }

  // A pooling whose positions only its gradients read.
  void look_at(ir::Op& pool) {
    const std::vector<ir::Op*>& readers = users_[pool.result(1)];
    const bool only_gradients = std::all_of(readers.begin(), readers.end(), [](const ir::Op* op) {
      return op != nullptr && op->name == ir::op::max_pool2d_backward;
    });
    const bool is_lean = ops::attr_of(pool, ir::attr::in_window) == ir::Attr(true) ||
                         ops::attr_of(pool, ir::attr::keep) == ir::Attr(false);
    const ops::Pooling window = ops::pooling({pool}, pool.operand(0)->type);
    const bool fits = window.h.kernel * window.w.kernel <= ops::most_in_window;
    if (!only_gradients || is_lean || !(fits || readers.empty())) return;
    lean_.insert(&pool);
    lean_.insert(readers.begin(), readers.end());
    const bool is_dense = window.h.dilation == 1 && window.w.dilation == 1;
    if (is_dense && !readers.empty() && may_sink(pool, readers)) {
      ir::Op* relu = pool.operand(0)->op;
      sunk_.insert(relu);
      relus_.emplace(&pool, relu);
      for (ir::Op* gradient : readers) {
        for (ir::Op* mask : users_[gradient->result()]) masks_.emplace(mask, gradient);
      }
    }
  }

  // Whether a relu makes the image for this pooling alone, and its gradient is masked alone.
  // (Without dilation every window has an entry of the image: none is -inf because it is empty.)
  bool may_sink(const ir::Op& pool, const std::vector<ir::Op*>& gradients) const {
    const ir::Value* image = pool.operand(0);
    if (image->op->name != ir::op::relu || !is_at_one_place(*image->op, pool)) return false;
    const auto is_gradient = [&](const ir::Op* op) {
      return std::find(gradients.begin(), gradients.end(), op) != gradients.end();
    };
    const auto is_mask = [&](const ir::Op* op) {
      return op != nullptr && op->name == ir::op::threshold_backward && op->operand(1) == image &&
             ops::attr_of(*op, ir::attr::threshold) == ir::Attr(0.0) &&
             is_gradient(op->operand(0)->op) && is_at_one_place(*op, *op->operand(0)->op);
    };
    for (const ir::Op* user : users_.at(image)) {
      if (user != &pool && !is_gradient(user) && !is_mask(user)) return false;
    }
    return std::all_of(gradients.begin(), gradients.end(), [&](const ir::Op* gradient) {
      const auto users = users_.find(gradient->result());
      return users != users_.end() &&
             std::all_of(users->second.begin(), users->second.end(), is_mask);
    });
  }

  // The relu, the pooling, its gradient, and the mask of that, as each of them comes.
  bool replace(ir::Op& op) {
    if (sunk_.contains(&op)) {
      instead_.emplace(op.result(), op.operand(0));
      return true;
    }
    if (masks_.contains(&op)) {
      const ir::Op& gradient = *masks_.at(&op);
      ir::Attrs attrs = op.attrs;
      ir::Value* masked = list_.add(ir::op::threshold_backward,
                                    {gradient.operands[0], relu_of_.at(gradient.operands[2])},
                                    std::move(attrs), op);
      instead_.emplace(op.result(), add_gradient(gradient, masked));
      return true;
    }
    if (!lean_.contains(&op)) return false;
    if (op.name == ir::op::max_pool2d) {
      replace_pool(op);
    } else if (!relu_of_.contains(op.operands[2])) {
      instead_.emplace(op.result(), add_gradient(op, op.operands[0]));
    }
    return true;
  }

  void replace_pool(ir::Op& op) {
    ir::Attrs attrs = op.attrs;
    if (users_[op.result(1)].empty()) {
      attrs.set(ir::attr::keep, false);
    } else {
      attrs.set(ir::attr::in_window, true);
    }
    const ir::Op& made = *list_.make(ir::op::max_pool2d, op.operands, std::move(attrs), op);
    ir::Value* out = made.result(0);
    if (const auto relu = relus_.find(&op); relu != relus_.end()) {
      out = list_.add(ir::op::relu, {out}, {}, *relu->second);
      relu_of_.emplace(made.result(1), out);
    }
    instead_.emplace(op.result(0), out);
    instead_.emplace(op.result(1), made.result(1));
  }

  ir::Value* add_gradient(const ir::Op& op, ir::Value* grad) {
    ir::Attrs attrs = op.attrs;
    attrs.set(ir::attr::in_window, true);
    const ir::Dims& sizes = op.result()->type.sizes;
    attrs.set(ir::attr::image_size, ir::Dims(sizes.end() - 2, sizes.end()));
    return list_.add(ir::op::max_pool2d_backward, {grad, nullptr, op.operands[2]},
                     std::move(attrs), op);
  }

  ir::Graph& graph_;
  OpList list_;
  Users users_;  // nullptr: an output of the graph
  std::unordered_set<const ir::Op*> lean_;  // poolings and their gradients
  std::unordered_set<const ir::Op*> sunk_;  // relus that move behind their pooling
  std::unordered_map<const ir::Op*, const ir::Op*> relus_;    // the same, by pooling
  std::unordered_map<const ir::Op*, ir::Op*> masks_;  // of such a relu: the pooling's gradient
  std::unordered_map<const ir::Value*, ir::Value*> relu_of_;  // by a pooling's positions
  std::unordered_map<ir::Value*, ir::Value*> instead_;
};

}  // namespace

bool compact_argmax(ir::Module& module) {
  return rewrite::in_each_graph(module, [](ir::Graph& graph) { return PoolRewriter(graph).run(); });
}

}  // namespace poptorch::lower::cpu
