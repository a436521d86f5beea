// The memory report: what is in memory when a step needs most of it.
#include <algorithm>
#include <compare>
#include <set>
#include <string>
#include <vector>

#include "ir/bodies.h"
#include "ir/part.h"
#include "plan/contents.h"
#include "plan/layout.h"
#include "plan/plan.h"

namespace poptorch::plan {

namespace {

constexpr const char* streams = "streams";
constexpr const char* categories[] = {"parameters",  "buffers",   "optimizer_state", "constants",
                                      "activations", "gradients", "scratch",         streams};

std::string state_category(const ir::Op& op) {
  const ir::Attr* role = op.attrs.find(ir::attr::role);
  if (role != nullptr && *role == ir::Attr("parameter")) return "parameters";
  if (role != nullptr && *role == ir::Attr("optimizer")) return "optimizer_state";
  if (role != nullptr && *role == ir::Attr("preprocessed")) return "constants";
  return "buffers";
}

// Whether or not it is sent to the host: a loop may carry on what was, and change it.
std::string origin_category(const std::vector<Content>& all, const Content& content) {
  if (content.kind == Content::Kind::scratch) return "scratch";
  if (content.kind == Content::Kind::constant) return "constants";
  if (content.kind == Content::Kind::state) return state_category(*content.op);
  if (content.carried_from >= 0) {
    return origin_category(all, all[static_cast<size_t>(content.carried_from)]);
  }
  if (content.op->name == ir::op::stream_in) return streams;
  switch (ir::part_of(*content.op)) {
    case ir::Part::forward: return "activations";
    case ir::Part::backward: return "gradients";
    case ir::Part::update: break;
  }
  return "scratch";
}

std::string category(const std::vector<Content>& all, const Content& content) {
  const bool is_sent = content.kind == Content::Kind::value && content.is_result;
  return is_sent ? streams : origin_category(all, content);
}

// Without the op that takes its memory in place: there the bytes are those of the result.
Span own_span(const Content& content) {
  return {content.span.begin, content.span.end - (content.taken_by >= 0 ? 1 : 0)};
}

struct Temporary {
  std::string category;
  Span span;
  int64_t bytes = 0;
};

struct Live {
  int64_t step = 0;  // activations, gradients and scratch
  int64_t streams = 0;

  auto operator<=>(const Live&) const = default;
};

// The position at which most of the step is alive; of several, one with most streams.
int peak_position(const std::vector<Temporary>& temporary, int end) {
  std::vector<Live> change(static_cast<size_t>(end) + 2);
  for (const Temporary& one : temporary) {
    const auto bytes = one.category == streams ? &Live::streams : &Live::step;
    change[static_cast<size_t>(one.span.begin)].*bytes += one.bytes;
    change[static_cast<size_t>(one.span.end) + 1].*bytes -= one.bytes;
  }
  Live live, most;
  int peak = 0;
  for (int position = 0; position <= end; ++position) {
    live.step += change[static_cast<size_t>(position)].step;
    live.streams += change[static_cast<size_t>(position)].streams;
    if (live > most) {
      most = live;
      peak = position;
    }
  }
  return peak;
}

// The scratch memory of an algorithm: the most that one op has.
void add_algorithm(const Content& scratch, std::map<std::string, int64_t>& report) {
  const ir::Attr* name = scratch.op->attrs.find(ir::attr::algorithm);
  if (name == nullptr) return;
  int64_t& bytes = report["scratch [" + scratch.op->attrs.get_string(ir::attr::algorithm) + "]"];
  bytes = std::max(bytes, scratch.bytes);
}

// Bytes that one run of a graph moves to and from streaming memory.
int64_t transferred_bytes(const ir::Module& module, const ir::Graph& graph) {
  int64_t bytes = 0;
  for (const auto& op : graph.ops) {
    if (op->name == ir::op::remote_load || op->name == ir::op::remote_store) {
      bytes += op->attrs.get_int(ir::attr::bytes);
    }
    for (const ir::Graph* body : ir::bodies_of(module, *op)) {
      bytes += op->attrs.get_int(ir::attr::count, 1) * transferred_bytes(module, *body);
    }
  }
  return bytes;
}

}  // namespace

std::map<std::string, int64_t> memory_report(const ir::Module& module) {
  const Contents contents = find_contents(module);
  std::map<std::string, int64_t> report;
  for (const char* name : categories) report[name] = 0;
  std::set<int64_t> persistent;  // addresses
  for (const Content& content : contents.all) {
    if (content.bytes == 0) continue;  // what lies behind it has the same address
    const bool is_persistent =
        content.kind == Content::Kind::state || content.kind == Content::Kind::constant;
    if (is_persistent && persistent.insert(content.addr).second) {
      report[category(contents.all, content)] += content.bytes;
    }
  }
  std::vector<Temporary> temporary;
  for (const Content& content : contents.all) {
    if (content.kind == Content::Kind::scratch) add_algorithm(content, report);
    if (persistent.contains(content.addr)) continue;
    temporary.push_back({category(contents.all, content), own_span(content), content.bytes});
  }
  const int peak = peak_position(temporary, contents.line.end);
  for (const Temporary& one : temporary) {
    if (one.span.overlaps({peak, peak})) report[one.category] += one.bytes;
  }
  report["arena"] = arena_bytes(module);
  const ir::Graph* main = module.find_graph("main");
  report["transfers"] = main == nullptr ? 0 : transferred_bytes(module, *main);
  return report;
}

}  // namespace poptorch::plan
