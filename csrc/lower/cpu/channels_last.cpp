// Images lie channels-last, the fastest for convolutions: a convolution reads and writes permuted
// images, and what follows (element-wise ops, batch norm, pooling, means, concatenation) computes
// on permuted images too. Permutes remain where images come from and go to; unused ones
// are removed by `dce`.
//
//   %1 = convolution %x, %w, %b {...} : f32[8,3,9,9]
//   %2 = relu %1 : f32[8,3,9,9]
// =>
//   %3 = permute %x {dims=[0, 2, 3, 1]}        %4 = permute %w {dims=[0, 2, 3, 1]}
//   %5 = convolution %3, %4, %b {layout="channels_last", ...} : f32[8,9,9,3]
//   %6 = relu %5 : f32[8,9,9,3]
//   %2 = permute %6 {dims=[0, 3, 1, 2]} : f32[8,3,9,9]
//
// Gradients too: weights and their gradients are permuted, which for 1x1 kernels costs nothing.
//
// The device stores a trained weight, and all that its update reads and writes, in the order in
// which the convolution reads it [switch weights_last]; the host's copies are permuted when sent.
//
//   %w = state {path="w"} : f32[4,3,3,3]
//   %6, _, _ = convolution_backward ...                       // its gradient
//   %7 = sgd_update %w, %6, _, %step, %hyper : f32[4,3,3,3]
//   assign %7 {path="w"}
// =>
//   %w = state {layout="channels_last", path="w"} : f32[4,3,3,3]
//   %8 = sgd_update %w, %5, _, %step, %hyper : f32[4,3,3,3]   // %6 is %5 permuted
//   assign %8 {path="w"}
#include <algorithm>
#include <set>

#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/op_list.h"
#include "support/mutant.h"
#include "support/settings/switches.h"

namespace poptorch::lower::cpu {

namespace {

const ir::Dims to_last = {0, 2, 3, 1}, to_first = {0, 3, 1, 2};
constexpr const char* last_name = "channels_last";

bool is_image(const ir::Value* value) { return value != nullptr && value->type.rank() == 4; }

bool is_first(const ir::Op& op) {
  return !(ops::attr_of(op, ir::attr::layout) == ir::Attr(last_name));
}

bool is_off_chip(const ir::Value& state) {
  return state.op->name == ir::op::state && state.op->attrs.get_bool(ir::attr::off_chip, false);
}

// Dimension `dim` of an image, in the other order.
int64_t moved_dim(int64_t dim) {
  if (dim < 0) dim += 4;
  return std::find(to_last.begin(), to_last.end(), dim) - to_last.begin();
}

// Whether some results of a convolution see nothing but padding. Given channels last, oneDNN reads
// past the image there (torch 2.13, AVX-512), and may end the process.
bool is_wide_padding(const ir::Op& op) {
  const ir::Dims& weight = op.operand(op.name == ir::op::convolution_backward ? 2 : 1)->type.sizes;
  const auto number = [&](ir::AttrName name, size_t dim) {
    const ir::Dims given = op.attrs.get_ints(name);
    return given[std::min(dim, given.size() - 1)];
  };
  for (size_t dim = 0; dim < weight.size() - 2; ++dim) {
    const int64_t reach = number(ir::attr::dilation, dim) * (weight[dim + 2] - 1) + 1;
    if (number(ir::attr::padding, dim) >= reach) return true;
  }
  return false;
}

// A convolution of the kind that this pass moves.
bool is_plain(const ir::Op& op) {
  return is_image(op.operand(0)) && is_first(op) && op.operand(0)->type.dtype != ir::DType::f64 &&
         ops::attr_of(op, ir::attr::transposed) == ir::Attr(false) && !is_wide_padding(op);
}

// Not dropout, though it goes element by element: its mask is drawn by the number of the element,
// so that other positions would be dropped.
const std::unordered_set<ir::OpName>& elementwise() {
  static const auto names = [] {
    std::unordered_set<ir::OpName> found;
    for (const ops::OpDef& row : ops::elementwise_ops()) found.insert(row.name);
    return found;
  }();
  return names;
}

// What treats a weight, its gradient and the optimizer's states element by element.
bool is_update(ir::OpName name) {
  return name == ir::op::sgd_update || name == ir::op::adam_update || elementwise().contains(name);
}

// Poolings and normalizations, which have a row for this form.
bool has_rows(ir::OpName name) {
  constexpr std::array names = {ir::op::max_pool2d,       ir::op::max_pool2d_backward,
                                ir::op::batch_norm,       ir::op::batch_norm_inference,
                                ir::op::batch_norm_apply, ir::op::batch_norm_backward};
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The paths of trained weights whose permuted form differs in memory, and of the states that meet
// them in updates.
class TrainedWeights {
 public:
  explicit TrainedWeights(const ir::Module& module) {
    if (!is_on("weights_last")) return;
    for (const ir::Op* op : module.all_ops()) {
      if (op->name == ir::op::assign) assigned_.insert(op->attrs.get_string(ir::attr::path));
      for (const ir::Value* operand : op->operands) {
        const bool stays = operand != nullptr && is_off_chip(*operand) && !ops::is_move(*op);
        if (stays) pinned_.insert(operand->op->attrs.get_string(ir::attr::path));
      }
    }
    for (const ir::Op* op : module.all_ops()) {
      const bool is_backward = op->name == ir::op::convolution_backward;
      if ((is_backward || op->name == ir::op::convolution) && is_plain(*op)) {
        take(op->operand(is_backward ? 2 : 1));
      }
    }
    bool grows = !paths_.empty();
    while (grows) {
      const size_t before = paths_.size();
      for (const ir::Op* op : module.all_ops()) spread(*op);
      grows = paths_.size() > before;
    }
  }

  bool contains(const ir::Op& op) const {
    return paths_.contains(op.attrs.get_string(ir::attr::path));
  }

 private:
  void take(const ir::Value* value) {
    if (value != nullptr) value = unmoved(value);
    if (value == nullptr || value->op->name != ir::op::state || !is_image(value)) return;
    const ir::Dims& sizes = value->type.sizes;
    const bool is_same = sizes[1] == 1 || sizes[2] * sizes[3] == 1;
    if (is_same || !is_first(*value->op)) return;
    const std::string& path = value->op->attrs.get_string(ir::attr::path);
    if (assigned_.contains(path) && !pinned_.contains(path)) paths_.insert(path);
  }

  void spread(const ir::Op& op) {
    if (op.name == ir::op::state && contains(op)) values_.insert(op.result());
    if (!is_update(op.name) && !ops::is_move(op)) return;
    const ir::Value* like = nullptr;
    for (const ir::Value* operand : op.operands) {
      if (operand != nullptr && values_.contains(operand)) like = operand;
    }
    if (like == nullptr) return;
    const auto fits = [&](const ir::Value* value) {
      return value != nullptr && value->type.sizes == like->type.sizes;
    };
    for (const ir::Value* operand : op.operands) {
      if (fits(operand)) take(operand);
    }
    for (const auto& result : op.results) {
      if (fits(result.get())) values_.insert(result.get());
    }
  }

  std::set<std::string> assigned_, paths_;
  std::set<std::string> pinned_;  // in streaming memory, and read there
  std::unordered_set<const ir::Value*> values_;  // the weights, and what updates make of them
};

class Pusher {
 public:
  Pusher(ir::Graph& graph, const TrainedWeights& weights)
      : graph_(graph), weights_(weights), list_(graph) {}

  bool run() {
    for (auto& op : graph_.ops) {
      for (ir::Value*& operand : op->operands) follow(operand);
      if (!push(*op)) {
        list_.take(std::move(op));
      } else {
        list_.drop(std::move(op));
      }
    }
    for (ir::Value*& output : graph_.outputs) follow(output);
    list_.finish();
    return list_.has_dropped();
  }

 private:
  void follow(ir::Value*& value) const {
    const auto found = instead_.find(value);
    if (found != instead_.end()) value = found->second;
  }

  bool push(const ir::Op& op) {
    if (ops::is_move(op)) return push_move(op);
    if (op.name == ir::op::convolution) return push_convolution(op, {0}, 1);
    if (op.name == ir::op::convolution_backward) return push_convolution(op, {0, 1}, 2);
    if (op.name == ir::op::state) return weights_.contains(op) && is_first(op) && push_state(op);
    if (op.name == ir::op::all_reduce) return push_all_reduce(op);
    if (op.name == ir::op::permute) return see_permute(op);
    if (op.operands.empty() || !is_image(op.operand(0))) return false;
    if (op.name == ir::op::assign) return weights_.contains(op) && push_assign(op);
    if (has_rows(op.name)) return push_rows(op);
    if (op.name == ir::op::mean) return push_mean(op);
    if (op.name == ir::op::cat) return push_cat(op);
    if (elementwise().contains(op.name)) return push_elementwise(op);
    return is_update(op.name) && push_update(op);
  }

  // An image that comes channels-last, as one that another program keeps for this one.
  bool see_permute(const ir::Op& op) {
    if (op.attrs.get_ints(ir::attr::dims) == to_first) lasts_.emplace(op.result(), op.operands[0]);
    return false;
  }

  bool push_state(const ir::Op& op) {
    const ir::Type& type = op.result()->type;
    ir::Dims sizes;
    for (const int64_t dim : to_last) sizes.push_back(type.sizes[static_cast<size_t>(dim)]);
    auto made =
        make_like(graph_, op, ir::op::state, {}, with_layout(op), {{type.dtype, sizes, {}}});
    ir::Value* last = made->result();
    list_.take(std::move(made));
    if (is_off_chip(*last)) {
      stored_.insert(last);
      instead_.emplace(op.result(), last);
      return true;
    }
    ir::Value* first =
        list_.add(ir::op::permute, {last}, attrs_of({{ir::attr::dims, to_first}}), op);
    lasts_.emplace(first, last);
    moved_.insert(first);
    instead_.emplace(op.result(), first);
    return true;
  }

  // What is moved in one order is moved in the other too; `dce` removes what is not read.
  bool push_move(const ir::Op& op) {
    ir::Value* value = op.operands[0];
    if (stored_.contains(value)) {  // a weight in streaming memory is there in one order alone
      ir::Value* loaded = moved_like(op, value);
      ir::Value* first =
          list_.add(ir::op::permute, {loaded}, attrs_of({{ir::attr::dims, to_first}}), op);
      lasts_.emplace(first, loaded);
      moved_.insert(first);
      instead_.emplace(op.result(), first);
      return true;
    }
    if (moved_.contains(value)) moved_.insert(op.result());
    const auto found = lasts_.find(value);
    if (found != lasts_.end()) lasts_[op.result()] = moved_like(op, found->second);
    return false;
  }

  ir::Value* moved_like(const ir::Op& move, ir::Value* value) {
    auto made = make_like(graph_, move, move.name, {value}, move.attrs, {value->type});
    ir::Value* result = made->result();
    list_.take(std::move(made));
    return result;
  }

  bool push_assign(const ir::Op& op) {
    list_.make(ir::op::assign, {last(op.operands[0], op)}, op.attrs, op);
    return true;
  }

  // The update of a weight that lies in the other layout.
  bool push_update(const ir::Op& op) {
    const bool is_moved = std::any_of(op.operands.begin(), op.operands.end(),
                                      [&](const auto* value) { return moved_.contains(value); });
    if (!is_moved) return false;
    replace(op, lasts(op), op.attrs);
    for (const auto& result : op.results) moved_.insert(instead_.at(result.get()));
    return true;
  }

  // `images` and `weight`: numbers of operands.
  bool push_convolution(const ir::Op& op, const std::vector<size_t>& images, size_t weight) {
    if (!is_plain(op)) return false;
    std::vector<ir::Value*> operands = op.operands;
    for (size_t i : images) operands[i] = last(operands[i], op);
    ir::Value*& w = operands[weight];
    w = moved_.contains(w)
            ? last(w, op)
            : list_.add(ir::op::permute, {w}, attrs_of({{ir::attr::dims, to_last}}), op);
    return replace(op, operands, with_layout(op));
  }

  // Rows that have the attribute `layout`: every image is in it.
  bool push_rows(const ir::Op& op) {
    const auto is_last = [&](const ir::Value* operand) { return lasts_.contains(operand); };
    const bool any = std::any_of(op.operands.begin(), op.operands.end(), is_last);
    if (!is_first(op) || !any) return false;
    return replace(op, lasts(op), with_layout(op));
  }

  bool push_mean(const ir::Op& op) {
    if (!lasts_.contains(op.operand(0)) || !op.attrs.has(ir::attr::dim)) return false;
    ir::Attrs attrs = op.attrs;
    const ir::Attr* dim = op.attrs.find(ir::attr::dim);
    if (!std::holds_alternative<ir::AttrList>(dim->value)) return false;
    ir::Dims dims = op.attrs.get_ints(ir::attr::dim);
    for (int64_t& d : dims) d = moved_dim(d);
    const bool over_pixels = dims.size() == 2 && std::min(dims[0], dims[1]) == 1 &&
                             std::max(dims[0], dims[1]) == 2;
    if (!over_pixels && !MUTANT(mean_over_any_dims)) return false;
    attrs.set(ir::attr::dim, dims);
    ir::Value* out = list_.add(ir::op::mean, {last(op.operand(0), op)}, attrs, op);
    const ir::Dims sizes = op.result()->type.sizes;
    if (out->type.sizes != sizes) {  // one pixel: in any order
      out = list_.add(ir::op::reshape, {out}, attrs_of({{ir::attr::size, sizes}}), op);
    }
    instead_.emplace(op.result(), out);
    return true;
  }

  bool push_cat(const ir::Op& op) {
    for (const ir::Value* operand : op.operands) {
      if (!is_image(operand) || !lasts_.contains(operand)) return false;
    }
    ir::Attrs attrs = op.attrs;
    attrs.set(ir::attr::dim, moved_dim(attrs.get_int(ir::attr::dim, 0)));
    return replace(op, lasts(op), attrs);
  }

  bool push_elementwise(const ir::Op& op) {
    if (!is_image(op.result()) || op.results.size() != 1) return false;
    bool any = false;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr) continue;
      any = any || lasts_.contains(operand);
      if (!is_image(operand) && operand->type.numel() != 1) return false;
    }
    return any && replace(op, lasts(op), op.attrs);
  }

  // Each of its tensors is in the order that it is made in.
  bool push_all_reduce(const ir::Op& op) {
    std::vector<ir::Value*> operands = op.operands;
    std::vector<bool> is_moved;
    for (ir::Value*& operand : operands) {
      is_moved.push_back(is_image(operand) && lasts_.contains(operand));
      if (is_moved.back()) operand = last(operand, op);
    }
    const bool any = std::find(is_moved.begin(), is_moved.end(), true) != is_moved.end();
    return any && replace(op, std::move(operands), op.attrs, is_moved);
  }

  // Puts the permuted op in; images among its results are permuted back for other readers. Without
  // `is_moved`, which has an entry for each result, all of them are permuted.
  bool replace(const ir::Op& op, std::vector<ir::Value*> operands, ir::Attrs attrs,
               const std::vector<bool>& is_moved = {}) {
    const ir::Op& made = *list_.make(op.name, std::move(operands), std::move(attrs), op);
    for (size_t i = 0; i < op.results.size(); ++i) {
      ir::Value* result = made.result(i);
      if (is_image(result) && (is_moved.empty() || is_moved[i])) {
        ir::Value* first =
            list_.add(ir::op::permute, {result}, attrs_of({{ir::attr::dims, to_first}}), op);
        lasts_.emplace(first, result);
        result = first;
      }
      instead_.emplace(op.result(i), result);
    }
    return true;
  }

  // Every image among the operands, channels-last.
  std::vector<ir::Value*> lasts(const ir::Op& op) {
    std::vector<ir::Value*> operands;
    for (ir::Value* operand : op.operands) {
      operands.push_back(is_image(operand) ? last(operand, op) : operand);
    }
    return operands;
  }

  ir::Value* last(ir::Value* image, const ir::Op& like) {
    if (lasts_[image] == nullptr && image->op->name == ir::op::remote_store) {
      lasts_[image] = moved_like(*image->op, last(image->op->operands[0], like));
    }
    ir::Value*& value = lasts_[image];
    if (value == nullptr) {
      value = list_.add(ir::op::permute, {image}, attrs_of({{ir::attr::dims, to_last}}), like);
      const bool is_small = image->type.sizes[2] * image->type.sizes[3] == 1;
      if (!is_small) value = list_.add(ir::op::contiguous, {value}, {}, like);
    }
    return value;
  }

  static ir::Attrs with_layout(const ir::Op& op) {
    ir::Attrs attrs = op.attrs;
    attrs.set(ir::attr::layout, last_name);
    return attrs;
  }

  ir::Graph& graph_;
  const TrainedWeights& weights_;
  OpList list_;
  std::unordered_map<const ir::Value*, ir::Value*> lasts_;  // image -> the same, channels last
  std::unordered_map<ir::Value*, ir::Value*> instead_;
  std::unordered_set<const ir::Value*> moved_;  // trained weights and what updates make of them
  std::unordered_set<const ir::Value*> stored_;  // such weights in streaming memory
};

}  // namespace

bool channels_last(ir::Module& module) {
  const TrainedWeights weights(module);
  return rewrite::in_each_graph(module,
                                [&](ir::Graph& graph) { return Pusher(graph, weights).run(); });
}

}  // namespace poptorch::lower::cpu
