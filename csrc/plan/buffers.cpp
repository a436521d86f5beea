#include "plan/buffers.h"

#include <algorithm>
#include <set>

#include "ir/bodies.h"
#include "ops/op_def.h"
#include "plan/copies.h"
#include "schedule/states.h"
#include "support/error.h"
#include "support/mutant.h"
#include "support/settings/switches.h"

namespace poptorch::plan {

namespace {

// One walk along the timeline. Where values that must share memory cannot, it notes a copy (or a
// state that must not be updated in place); the caller puts these in and walks again.
class Walk {
 public:
  Walk(ir::Module& module, const std::set<std::string>& kept_apart)
      : module_(module),
        kept_apart_(kept_apart),
        line_(make_timeline(module)),
        is_in_place_(is_on("in_place")) {}

  void run() {
    for (ir::Graph* graph : module_.entries()) {
      find_state_reads(*graph);
      visit(*graph, {});
    }
  }

  std::vector<NeededCopy> copies;
  std::set<std::string> conflicts;  // states whose update in place is clobbered by their assign

  Buffers take() {
    Buffers out;
    std::vector<int> number(buffers_.size(), -1);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const auto root = static_cast<size_t>(find(static_cast<int>(i)));
      if (number[root] < 0) {
        number[root] = static_cast<int>(out.buffers.size());
        out.buffers.push_back(buffers_[root]);
      }
      number[i] = number[root];
    }
    for (auto& [value, place] : places_) {
      out.places[value] = {number[static_cast<size_t>(place.buffer)], place.offset};
    }
    for (const auto& [path, buffer] : states_) {
      out.states[path] = number[static_cast<size_t>(buffer)];
    }
    out.inplace = std::move(inplace_);
    return out;
  }

 private:
  // -- buffers: a union-find over indices ------------------------------------------------------

  int find(int buffer) const {
    while (parent_[static_cast<size_t>(buffer)] != buffer) {
      buffer = parent_[static_cast<size_t>(buffer)];
    }
    return buffer;
  }
  Buffer& at(int buffer) { return buffers_[static_cast<size_t>(find(buffer))]; }

  int add(Buffer::Kind kind, int64_t bytes, Span span, const ir::Op* op) {
    buffers_.push_back({kind, bytes, span, op});
    parent_.push_back(static_cast<int>(parent_.size()));
    return parent_.back();
  }

  // `from` becomes part of `into`.
  void merge(int from, int into) {
    from = find(from);
    into = find(into);
    if (from == into) return;
    parent_[static_cast<size_t>(from)] = into;
    extend(into, at_root(from).span);
    if (at_root(from).span.begin < at_root(into).span.begin) at_root(into).op = at_root(from).op;
  }
  Buffer& at_root(int buffer) { return buffers_[static_cast<size_t>(buffer)]; }

  void extend(int buffer, const Span& span) {
    Span& own = at(buffer).span;
    own = {std::min(own.begin, span.begin), std::max(own.end, span.end)};
  }

  void join(const ir::Value* value, int buffer, int64_t offset = 0) {
    places_[value] = {buffer, offset};
    extend(buffer, line_.values.at(value));
  }

  Place place_of(const ir::Value* value) const {
    const Place& place = places_.at(value);
    return {find(place.buffer), place.offset};
  }

  bool is_whole(const ir::Value* value) {
    const Place place = place_of(value);
    return place.offset == 0 && value->type.is_contiguous() &&
           value->type.bytes() == at(place.buffer).bytes;
  }

  // -- states ----------------------------------------------------------------------------------

  int state_buffer(const std::string& path, const ir::Type& type, const ir::Op* op) {
    const auto found = states_.find(path);
    if (found != states_.end()) return found->second;
    const int buffer = add(Buffer::Kind::state, type.bytes(), {line_.end, 0}, op);
    states_.emplace(path, buffer);
    state_paths_[buffer] = path;
    return buffer;
  }

  // The last position in this graph at which a state's old value is read, by `state` ops here and
  // by ops with bodies (which may write it, too).
  void find_state_reads(const ir::Graph& graph) {
    auto& reads = state_reads_[&graph];
    const auto read = [&](const std::string& path, int position) {
      int& last = reads.try_emplace(path, -1).first->second;
      last = std::max(last, position);
    };
    std::unordered_map<const ir::Value*, int> ends;
    for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
      for (const auto& result : (*op)->results) {
        int& end = ends.try_emplace(result.get(), 0).first->second;
        end = std::max(end, line_.values.at(result.get()).end);
      }
      if (ops::is_alias(**op)) {
        int& end = ends.try_emplace((*op)->operand(0), 0).first->second;
        end = std::max(end, ends.at((*op)->result()));
      }
      if ((*op)->name == ir::op::state) {
        read((*op)->attrs.get_string(ir::attr::path), ends.at((*op)->result()));
      }
      for (const ir::Graph* body : ir::bodies_of(module_, **op)) {
        find_state_reads(*body);
        for (const auto& [path, position] : state_reads_.at(body)) {
          read(path, line_.ops.at(op->get()).end);
        }
      }
    }
    for (const auto& op : graph.ops) {
      if (op->name == ir::op::assign) assigned_.insert(op->attrs.get_string(ir::attr::path));
      if (op->name == ir::op::assign) reads.try_emplace(op->attrs.get_string(ir::attr::path), -1);
    }
  }

  int last_read(const ir::Graph& graph, const std::string& path) const {
    const auto& reads = state_reads_.at(&graph);
    const auto found = reads.find(path);
    return found == reads.end() ? -1 : found->second;
  }

  // Values from which the new value of a state is made, each in place of the one before.
  void find_targets(const ir::Graph& graph) {
    for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
      if ((*op)->name == ir::op::assign) {
        targets_[(*op)->operand(0)] = (*op)->attrs.get_string(ir::attr::path);
      }
      for (const auto& result : (*op)->results) {
        const auto target = targets_.find(result.get());
        if (target == targets_.end()) continue;
        if (ops::is_move(**op)) targets_.try_emplace((*op)->operand(0), target->second);
        for (const int from : ops::inplace_candidates(**op, static_cast<size_t>(result->index))) {
          const ir::Value* operand = (*op)->operand(static_cast<size_t>(from));
          if (operand != nullptr) targets_.try_emplace(operand, target->second);
        }
      }
    }
  }

  // -- the walk --------------------------------------------------------------------------------

  // `inputs[i]`: the place of the body's input with index i.
  void visit(ir::Graph& graph, const std::vector<Place>& inputs) {
    find_targets(graph);
    for (const auto& op : graph.ops) {
      if (op->name == ir::op::input) {
        const Place& place = inputs.at(static_cast<size_t>(op->attrs.get_int(ir::attr::index)));
        join(op->result(), place.buffer, place.offset);
      } else if (op->name == ir::op::state) {
        const std::string& path = op->attrs.get_string(ir::attr::path);
        join(op->result(), state_buffer(path, op->result()->type, op.get()));
      } else if (op->name == ir::op::constant) {
        join(op->result(), constant_buffer(*op));
      } else if (ops::is_alias(*op)) {
        const ir::Value* base = op->operand(0);
        const Place place = place_of(base);
        const int64_t offset =
            op->attrs.get_int(ir::attr::offset, 0) * ir::item_bytes(base->type.dtype);
        join(op->result(), place.buffer, place.offset + offset);
      } else if (op->name == ir::op::assign) {
        visit_assign(graph, *op);
      } else if (op->name == ir::op::loop) {
        visit_loop(graph, *op);
      } else {
        visit_plain(graph, *op);
      }
    }
  }

  int constant_buffer(const ir::Op& op) {
    const ir::Attr* data = op.attrs.find(ir::attr::hash);
    if (data == nullptr || data->is_none()) data = op.attrs.find(ir::attr::data);
    const std::string key = op.result()->type.text() + (data == nullptr ? "" : data->text());
    const auto [found, is_new] = constants_.try_emplace(key, -1);
    if (is_new) {
      found->second = add(Buffer::Kind::constant, op.result()->type.bytes(), {line_.end, 0}, &op);
    }
    return found->second;
  }

  void visit_plain(const ir::Graph& graph, const ir::Op& op) {
    for (const auto& result : op.results) {
      const int operand = inplace_operand(graph, op, *result);
      if (operand < 0) {
        const Span span = line_.values.at(result.get());
        join(result.get(), add(Buffer::Kind::temporary, result->type.bytes(), span, &op));
        continue;
      }
      std::vector<int>& inplace = inplace_[&op];
      inplace.resize(op.results.size(), -1);
      inplace[static_cast<size_t>(result->index)] = operand;
      join(result.get(), place_of(op.operand(static_cast<size_t>(operand))).buffer);
    }
  }

  // The operand whose memory a result takes, first of all the state that it will be; -1: none.
  int inplace_operand(const ir::Graph& graph, const ir::Op& op, const ir::Value& result) {
    if (!is_in_place_) return -1;
    int found = -1;
    for (const int candidate :
         ops::inplace_candidates(op, static_cast<size_t>(result.index))) {
      if (!may_take(graph, op, result, candidate)) continue;
      const int buffer = place_of(op.operand(static_cast<size_t>(candidate))).buffer;
      if (at(buffer).kind == Buffer::Kind::state) return candidate;
      if (found < 0) found = candidate;
    }
    return found;
  }

  bool may_take(const ir::Graph& graph, const ir::Op& op, const ir::Value& result, int candidate) {
    const ir::Value* operand = op.operand(static_cast<size_t>(candidate));
    if (operand == nullptr || operand->type != result.type || !is_whole(operand)) return false;
    const int position = line_.ops.at(&op).begin;
    const int buffer = place_of(operand).buffer;
    if (at(buffer).kind == Buffer::Kind::constant || result.type.bytes() == 0) return false;
    const int slack = MUTANT(in_place_while_read) ? 1 : 0;
    if (at(buffer).span.end > position + slack) return false;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (static_cast<int>(i) == candidate || op.operands[i] == nullptr) continue;
      if (place_of(op.operands[i]).buffer == buffer) return false;
    }
    for (const auto& other : op.results) {
      const auto place = places_.find(other.get());
      if (place != places_.end() && find(place->second.buffer) == buffer) return false;
    }
    if (at(buffer).kind != Buffer::Kind::state) return true;
    const std::string& path = state_paths_.at(buffer);
    const auto target = targets_.find(&result);
    return target != targets_.end() && target->second == path && !kept_apart_.contains(path) &&
           last_read(graph, path) <= position;
  }

  // A new value may be made in the memory of `storage` when everything there is dead by then.
  bool try_merge(int buffer, int storage, int last_read) {
    buffer = find(buffer);
    const Buffer& made = at(buffer);
    const bool is_free = made.kind == Buffer::Kind::temporary && !carried_.contains(buffer) &&
                         last_read < made.span.begin && at(storage).span.end < made.span.begin &&
                         made.bytes == at(storage).bytes;
    if (is_free) merge(buffer, storage);
    return is_free;
  }

  void visit_assign(const ir::Graph& graph, const ir::Op& op) {
    const std::string& path = op.attrs.get_string(ir::attr::path);
    const ir::Value* value = op.operand(0);
    const int storage = state_buffer(path, value->type, &op);
    const Place place = place_of(value);
    if (place.buffer == find(storage) && place.offset == 0) return;
    if (is_whole(value) && !kept_apart_.contains(path) &&
        try_merge(place.buffer, storage, last_read(graph, path))) {
      return;
    }
    // It copies: nothing in the state's memory may be read later.
    if (at(storage).span.end > line_.ops.at(&op).begin) conflicts.insert(path);
  }

  void visit_loop(ir::Graph& graph, ir::Op& op) {
    ir::Graph& body = ir::body_of(module_, op);
    const Span span = line_.graphs.at(&body);
    std::vector<Place> storage;
    std::set<int> taken;
    const size_t copies_before = copies.size();
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ir::Value* operand = op.operand(i);
      if (is_carried_unchanged(body, i)) {
        if (!may_stay(op, i)) copies.push_back({&graph, &op, i});
      } else if (!may_take_over(op, i, taken)) {
        copies.push_back({&graph, &op, i});
      }
      taken.insert(place_of(operand).buffer);
      storage.push_back(place_of(operand));
    }
    const std::set<int> carried_outside = carried_;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (is_carried_unchanged(body, i)) extend(storage[i].buffer, {span.begin, span.end});
      carried_.insert(find(storage[i].buffer));
    }
    // Until operands that share memory have copies, the body would seem to need some, too.
    const bool is_apart = copies.size() == copies_before;
    visit(body, storage);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (is_apart) close_carry(body, i, storage[i]);
      extend(storage[i].buffer, {span.begin, span.end});
    }
    carried_ = carried_outside;
    for (size_t i = 0; i < op.results.size(); ++i) {
      join(op.result(i), storage[i].buffer, storage[i].offset);
    }
  }

  static bool is_carried_unchanged(const ir::Graph& body, size_t index) {
    const ir::Op* op = body.outputs.at(index)->op;
    return op->name == ir::op::input &&
           op->attrs.get_int(ir::attr::index) == static_cast<int64_t>(index);
  }

  // A value that the body only reads stays where it is, unless a state is written meanwhile.
  bool may_stay(const ir::Op& op, size_t index) {
    const ir::Value* operand = op.operand(index);
    const int buffer = place_of(operand).buffer;
    if (!operand->type.is_contiguous()) return false;
    if (at(buffer).kind != Buffer::Kind::state) return true;
    if (!assigned_.contains(state_paths_.at(buffer))) return true;
    const Span result = line_.values.at(op.result(index));
    return result.begin == result.end && !kept_apart_.contains(state_paths_.at(buffer));
  }

  // The loop writes over its operand's memory: no other op may take it.
  bool may_take_over(const ir::Op& op, size_t index, const std::set<int>& taken) {
    const ir::Value* operand = op.operand(index);
    const int buffer = place_of(operand).buffer;
    if (at(buffer).kind != Buffer::Kind::temporary || !is_whole(operand)) return false;
    if (at(buffer).span.end > line_.ops.at(&op).begin) return false;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (i != index && place_of(op.operand(i)).buffer == buffer) return false;
    }
    return !taken.contains(buffer);
  }

  // The body's output must end up where its input was.
  void close_carry(ir::Graph& body, size_t index, const Place& storage) {
    const ir::Value* output = body.outputs.at(index);
    const Place place = place_of(output);
    if (place.buffer == find(storage.buffer) && place.offset == storage.offset) return;
    const int begin = line_.graphs.at(&body).begin;
    if (is_whole(output) && at(place.buffer).span.begin > begin &&
        try_merge(place.buffer, storage.buffer, -1)) {
      return;
    }
    copies.push_back({&body, nullptr, index});
  }

  ir::Module& module_;
  const std::set<std::string>& kept_apart_;
  Timeline line_;
  bool is_in_place_;
  std::vector<Buffer> buffers_;
  std::vector<int> parent_;
  std::unordered_map<const ir::Value*, Place> places_;
  std::map<std::string, int> states_;
  std::unordered_map<int, std::string> state_paths_;
  std::map<std::string, int> constants_;
  std::unordered_map<const ir::Graph*, std::map<std::string, int>> state_reads_;
  std::set<std::string> assigned_;  // states that some graph assigns
  std::unordered_map<const ir::Value*, std::string> targets_;
  std::unordered_map<const ir::Op*, std::vector<int>> inplace_;
  std::set<int> carried_;  // memory of the loops around the present graph
};

}  // namespace

Buffers make_buffers(ir::Module& module) {
  copy_shadowed_states(module);
  std::set<std::string> kept_apart;
  constexpr int most_rounds = 8;  // three are enough for a loop that swaps what it carries
  for (int round = 0; round < most_rounds; ++round) {
    Walk walk(module, kept_apart);
    walk.run();
    if (walk.copies.empty() && walk.conflicts.empty()) return walk.take();
    kept_apart.insert(walk.conflicts.begin(), walk.conflicts.end());
    insert_copies(module, walk.copies);
  }
  INTERNAL_CHECK(false, "no memory for the module after ", most_rounds, " rounds of copies");
}

}  // namespace poptorch::plan
