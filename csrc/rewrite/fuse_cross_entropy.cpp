// Softmax, likelihood and their gradients in two ops that read the scores once each; the logarithms
// of the probabilities, as large as the scores, are never stored.
//
//   %1 = _log_softmax %x {dim=1}
//   %2, %3 = nll_loss %1, %t, _
//   %4 = nll_loss_backward %g, %1, %t, _, %3
//   %5 = _log_softmax_backward_data %4, %1 {dim=1}
// =>
//   %2, %3, %6 = cross_entropy %x, %t, _
//   %5 = cross_entropy_backward %g, %x, %t, _, %3, %6
//
// Of scores [samples, classes] in one dtype; sums of 16-bit rows are f32. Where
// something else reads the logarithms (label smoothing) or their gradient, all stays as it is.
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/op_list.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

// A softmax and its readers.
struct Match {
  ir::Op* softmax = nullptr;
  ir::Op* loss = nullptr;
  ir::Op* loss_gradient = nullptr;  // both or none
  ir::Op* softmax_gradient = nullptr;
  ir::Op* fused = nullptr;  // the loss, once it is made
};

bool is_over_classes(const ir::Op& softmax) {
  const ir::Type &x = softmax.operand(0)->type, &y = softmax.result()->type;
  const int64_t dim = softmax.attrs.get_int(ir::attr::dim);
  return x.rank() == 2 && (dim == 1 || dim == -1) && x.dtype == y.dtype;
}

class Fuser {
 public:
  explicit Fuser(ir::Graph& graph) : graph_(graph), list_(graph), uses_(graph.count_uses()) {}

  bool run() {
    find_matches();
    for (auto& [softmax, match] : matches_) {
      if (!is_whole(match)) continue;
      for (const ir::Op* op :
           {match.softmax, match.loss, match.loss_gradient, match.softmax_gradient}) {
        if (op != nullptr) match_of_.emplace(op, &match);
      }
    }
    if (match_of_.empty()) return false;
    for (auto& op : graph_.ops) {
      const auto found = match_of_.find(op.get());
      if (found == match_of_.end()) {
        list_.take(std::move(op));
        continue;
      }
      replace(*op, *found->second);
      list_.drop(std::move(op));
    }
    list_.finish();
    graph_.replace_all(instead_);
    return true;
  }

 private:
  void find_matches() {
    const auto match_of = [&](const ir::Op& op, size_t operand) -> Match* {
      const auto found = matches_.find(op.operand(operand));
      return found == matches_.end() ? nullptr : &found->second;
    };
    for (const auto& op : graph_.ops) {
      if (op->name == ir::op::_log_softmax && is_over_classes(*op)) {
        matches_[op->result()].softmax = op.get();
      } else if (Match* match = op->name == ir::op::nll_loss ? match_of(*op, 0) : nullptr) {
        match->loss = op.get();
      } else if (Match* match =
                     op->name == ir::op::nll_loss_backward ? match_of(*op, 1) : nullptr) {
        match->loss_gradient = op.get();
      } else if (op->name == ir::op::_log_softmax_backward_data) {
        if (Match* match = match_of(*op, 1)) match->softmax_gradient = op.get();
      }
    }
  }

  bool has_readers(const ir::Value* value, int readers) const {
    const auto found = uses_.find(value);
    return found != uses_.end() && found->second == readers;
  }

  bool is_whole(const Match& match) const {
    const ir::Value* scores = match.softmax->result();
    if (match.loss == nullptr || !is_at_one_place(*match.softmax, *match.loss)) return false;
    if (match.loss_gradient == nullptr) return has_readers(scores, 1);
    if (match.softmax_gradient == nullptr) return false;
    if (!is_at_one_place(*match.loss_gradient, *match.softmax_gradient)) return false;
    const ir::Value* gradient = match.loss_gradient->result();
    return has_readers(scores, 3) && has_readers(gradient, 1) &&
           match.softmax_gradient->operand(0) == gradient &&
           match.loss_gradient->operand(4) == match.loss->result(1);
  }

  // Puts in what stands for the op; the softmax and the gradient of the loss leave nothing.
  void replace(const ir::Op& op, Match& match) {
    ir::Value* scores = match.softmax->operand(0);
    if (&op == match.loss) {
      match.fused = list_.make(ir::op::cross_entropy, {scores, op.operand(1), op.operand(2)},
                               op.attrs, op);
      for (size_t i = 0; i < op.results.size(); ++i) {
        instead_.emplace(op.result(i), match.fused->result(i));
      }
    } else if (&op == match.softmax_gradient) {
      const ir::Op& of_loss = *match.loss_gradient;
      ir::Attrs attrs;
      for (const ir::AttrName name : {ir::attr::reduction, ir::attr::ignore_index}) {
        if (const ir::Attr* attr = of_loss.attrs.find(name)) attrs.set(name, *attr);
      }
      instead_.emplace(
          op.result(),
          list_.add(ir::op::cross_entropy_backward,
                    {of_loss.operand(0), scores, of_loss.operand(2), of_loss.operand(3),
                     match.fused->result(1), match.fused->result(2)},
                    std::move(attrs), op));
    }
  }

  ir::Graph& graph_;
  OpList list_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Value*, Match> matches_;  // by the softmax's result
  std::unordered_map<const ir::Op*, Match*> match_of_;   // of each op that goes
  std::unordered_map<ir::Value*, ir::Value*> instead_;
};

}  // namespace

bool fuse_cross_entropy(ir::Module& module) {
  return in_each_graph(module, [](ir::Graph& graph) { return Fuser(graph).run(); });
}

}  // namespace poptorch::rewrite
