#include "place/place.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "support/error.h"

namespace poptorch::place {

namespace {

constexpr std::array<std::string_view, 4> source_names = {"constant", "input", "state",
                                                          "stream_in"};
constexpr std::array<std::string_view, 4> update_names = {"accumulate", "all_reduce", "assign",
                                                          "rng_advance"};

template <size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Placer {
 public:
  explicit Placer(ir::Module& module) : module_(module) {}

  // Bodies first, so that the IPU of a state is known where the graph around them updates it.
  void place(ir::Graph& graph) {
    for (const auto& op : graph.ops) {
      if (op->name == "loop") place(*module_.find_graph(op->attrs.get_graph("body")));
    }
    int64_t current = 0;
    for (const auto& op : graph.ops) {
      if (!contains(source_names, op->name)) place(*op, current);
    }
    for (const auto& op : graph.ops) {
      if (contains(source_names, op->name)) write(*op, source_ipu(*op));
    }
  }

 private:
  void place(ir::Op& op, int64_t& current) {
    const Phase phase = phase_of(op);
    const auto annotated = op.attrs.maybe_int("block_ipu");
    int64_t ipu = annotated.value_or(-1);
    if (ipu < 0 && phase != Phase::forward) ipu = operand_ipu(op);
    if (ipu < 0) ipu = current;
    if (phase == Phase::forward) current = ipu;
    write(op, ipu);
    for (const ir::Value* operand : op.operands) {
      if (operand != nullptr && contains(source_names, operand->op->name)) claim(*operand->op, ipu);
    }
  }

  // The forward value among the operands decides, else the first one that is placed; -1: none is.
  int64_t operand_ipu(const ir::Op& op) const {
    int64_t first = -1;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr) continue;
      const int64_t ipu = known_ipu(*operand->op);
      if (operand->op->name == "loop") continue;  // its results come from all over the body
      if (ipu >= 0 && !contains(source_names, operand->op->name) &&
          phase_of(*operand->op) == Phase::forward) {
        return ipu;
      }
      if (first < 0) first = ipu;
    }
    return first;
  }

  int64_t known_ipu(const ir::Op& op) const {
    if (op.name == "state") {
      const auto found = state_ipus_.find(op.attrs.get_string("path"));
      if (found != state_ipus_.end()) return found->second;
    }
    return op.attrs.get_int("ipu", -1);
  }

  int64_t source_ipu(const ir::Op& op) const { return std::max<int64_t>(known_ipu(op), 0); }

  // The first user of a source has it on its IPU.
  void claim(ir::Op& source, int64_t ipu) {
    if (source.name == "state") state_ipus_.try_emplace(source.attrs.get_string("path"), ipu);
    if (!source.attrs.has("ipu")) source.attrs.set("ipu", ipu);
  }

  static void write(ir::Op& op, int64_t ipu) {
    op.attrs.erase("block");
    op.attrs.erase("block_ipu");
    op.attrs.set("ipu", ipu);
    op.attrs.set("stage", ipu);
  }

  ir::Module& module_;
  std::unordered_map<std::string, int64_t> state_ipus_;
};

}  // namespace

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::update: break;
  }
  return "update";
}

Phase phase_of(const ir::Op& op) {
  if (const ir::Attr* phase = op.attrs.find("phase")) {
    for (const Phase known : {Phase::forward, Phase::backward, Phase::update}) {
      if (*phase == ir::Attr(name_of(known))) return known;
    }
  }
  if (op.attrs.get_bool("backward", false)) return Phase::backward;
  const bool is_update = op.name.ends_with("_update") || contains(update_names, op.name);
  return is_update ? Phase::update : Phase::forward;
}

void place(ir::Module& module) {
  ir::Graph* main = module.find_graph("main");
  INTERNAL_CHECK(main != nullptr, "the module has no graph `main`");
  Placer(module).place(*main);
}

}  // namespace poptorch::place
