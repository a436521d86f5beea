#include "assemble/assemble.h"

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "assemble/collectives.h"
#include "assemble/direct_streams.h"
#include "assemble/float_checks.h"
#include "assemble/interface.h"
#include "assemble/lanes.h"
#include "assemble/resident.h"
#include "assemble/sources.h"
#include "ir/bodies.h"
#include "ops/op_def.h"
#include "plan/contents.h"
#include "plan/layout.h"
#include "rewrite/edit.h"
#include "schedule/states.h"
#include "support/error.h"
#include "support/loading/not_linked.h"
#include "support/mutant.h"
#include "support/settings/settings.h"
#include "support/settings/switches.h"

namespace poptorch::assemble {

namespace {

using Kind = Instruction::Kind;

// Contents that die with an op, by the op's position.
std::unordered_map<int, std::vector<plan::Content>> find_deaths(const plan::Contents& contents) {
  std::unordered_map<int, std::vector<plan::Content>> deaths;
  for (const plan::Content& content : contents.all) {
    const bool is_temporary = content.kind == plan::Content::Kind::value ||
                              content.kind == plan::Content::Kind::scratch;
    if (is_temporary && content.taken_by < 0 && content.bytes > 0) {
      deaths[content.span.end].push_back(content);
    }
  }
  return deaths;
}

// The loop over device iterations is the one that stands in `main`, if there is one.
const ir::Op* find_device_loop(const ir::Graph& main) {
  const ir::Op* found = nullptr;
  for (const auto& op : main.ops) {
    if (op->name != ir::op::loop) continue;
    if (found != nullptr) return nullptr;
    found = op.get();
  }
  return found;
}

class Assembler {
 public:
  Assembler(const ir::Module& module, const AssembleOptions& options, plan::PreparedOps prepared)
      : module_(module), options_(options), prepared_(std::move(prepared)) {
    program_.settings = settings();
    program_.arena_bytes = plan::arena_bytes(module);
    shareable_ = plan::shareable_states(module);
    program_.threads = options.threads;
    for (const auto& graph : module.graphs) {
      if (options.check_floats) uses_.merge(graph->count_uses());
    }
    if (options.poison) {
      const plan::Contents contents = plan::find_contents(module);
      deaths_ = find_deaths(contents);
      line_ = contents.line;
    }
  }

  Program run() {
    const ir::Graph* preprocess = module_.find_graph("preprocess");
    if (preprocess != nullptr) {
      interface_.set_preprocessed(schedule::state_uses(module_).at(preprocess));
    }
    const ir::Graph& main = *module_.find_graph("main");
    device_loop_ = find_device_loop(main);
    add_block(main, 1);
    if (preprocess != nullptr) program_.preprocess = add_block(*preprocess, 1);
    program_.scratch = find_scratch(module_);
    program_.persistent = find_persistent(module_);
    program_.runs_user_code = runs_user_code(module_);
    program_.resident = find_resident(module_, directs_, shareable_);
    check_kernels();
    interface_.sort_by_name();
    return std::move(program_);
  }

 private:
  // `steps`: how often the graph runs in one device iteration. Returns the block's number.
  int add_block(const ir::Graph& graph, int64_t steps) {
    const size_t number = program_.blocks.size();
    program_.blocks.emplace_back();
    Block block;
    block.carried = find_carried(graph);
    block.rng_addr = find_rng_step(module_, graph);
    add_directs(graph, steps, block);
    for (const auto& op : graph.ops) {
      add_op(*op, steps, block);
      if (!ir::has_bodies(*op)) add_poison(*op, block);
    }
    program_.blocks[number] = std::move(block);
    return static_cast<int>(number);
  }

  // Outputs are bound before anything runs: what computes them needs the address.
  void add_directs(const ir::Graph& graph, int64_t steps, Block& block) {
    if (!is_on("direct_streams")) return;
    const auto direct = direct_streams(graph);
    for (const auto& op : graph.ops) {
      const bool is_input = op->name == ir::op::stream_in;
      if (!is_input && op->name != ir::op::stream_out) continue;
      ir::Value& value = is_input ? *op->result() : *op->operands[0];
      const ir::Value* base = rewrite::memory_of(&value);
      const auto found = direct.find(base);
      if (found == direct.end() || found->second != op.get()) continue;
      directs_.emplace(base, static_cast<int>(program_.directs.size()));
      const int stream = interface_.stream_of(*op, value, steps);
      program_.directs.push_back({stream, plan::addr_of(*base), {}});
      if (!is_input) add_bind(*op, *base, block);
    }
  }

  void add_bind(const ir::Op& op, const ir::Value& value, Block& block) {
    Instruction& instruction = add(Kind::bind, op, block);
    instruction.index = directs_.at(&value);
    instruction.bytes = value.type.bytes();
  }

  void add_op(const ir::Op& op, int64_t steps, Block& block) {
    if (op.name == ir::op::state || op.name == ir::op::assign) {
      interface_.add_state(op, shareable_);
    }
    if (op.name == ir::op::constant) add_constant(op);
    if (is_silent(op)) return;
    if (op.name == ir::op::loop) return add_loop(op, steps, block);
    if (op.name == ir::op::stream_in) {
      if (directs_.contains(op.result())) return add_bind(op, *op.result(), block);
      return add_stream(op, *op.result(), steps, block);
    }
    if (op.name == ir::op::stream_out) return add_stream(op, *op.operands[0], steps, block);
    if (op.name == ir::op::assign) {
      if (plan::addr_of(*op.operand(0)) != plan::assign_addr(op)) add_copy(op, block);
      return;
    }
    if (ops::is_collective(op)) return add_collective(op, block);
    const bool is_copy = op.name == ir::op::contiguous || op.name == ir::op::clone;
    if (is_copy && op.operand(0)->type == op.result()->type) return add_copy(op, block);
    add_kernel(op, block);
  }

  Instruction& add(Kind kind, const ir::Op& op, Block& block) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.first_pointer = static_cast<int>(program_.offsets.size());
    instruction.label = sources_.label(op.source_location);
    instruction.source = sources_.source(op, instruction.label);
    instruction.task = static_cast<int>(op.attrs.get_int(ir::attr::task, -1));
    block.instructions.push_back(instruction);
    return block.instructions.back();
  }

  // Of an operand to the result, or to the state that is assigned.
  void add_copy(const ir::Op& op, Block& block) {
    const int64_t bytes = op.operand(0)->type.bytes();
    if (bytes == 0) return;
    add(Kind::copy, op, block).bytes = bytes;
    add_pointer(op.operands[0]);
    if (op.results.empty()) {
      program_.offsets.push_back(plan::assign_addr(op));
    } else {
      add_pointer(op.results[0].get());
    }
  }

  void add_pointer(ir::Value* value) {
    if (value == nullptr) {
      program_.offsets.push_back(-1);
      return;
    }
    const ir::Value* base = rewrite::memory_of(value);
    const int64_t addr = plan::addr_of(*value);
    if (const auto direct = directs_.find(base); direct != directs_.end()) {
      program_.directs[static_cast<size_t>(direct->second)].uses.push_back(
          {static_cast<int>(program_.offsets.size()),
           MUTANT(direct_views_begin_at_zero) ? 0 : addr - plan::addr_of(*base)});
    }
    program_.offsets.push_back(addr);
  }

  void add_kernel(const ir::Op& op, Block& block) {
    if (ops::find_kernel(op.name) == nullptr) {
      without_kernel_.try_emplace(op.name.str(), op.text());
      return;
    }
    const auto known = prepared_.find(&op);
    ops::Prepared prepared = known != prepared_.end() ? std::move(known->second)
                                                      : ops::prepare({op, options_.threads});
    const int64_t scratch_bytes = op.attrs.get_int(ir::attr::scratch_bytes, 0);
    INTERNAL_CHECK(static_cast<int64_t>(prepared.scratch_bytes) <= scratch_bytes, "[assemble] `",
                   op.text(), "` needs ", prepared.scratch_bytes,
                   " bytes of scratch memory, the plan has ", scratch_bytes);
    Instruction& instruction = add(Kind::run, op, block);
    instruction.index = static_cast<int>(program_.kernels.size());
    const size_t slots = ops::operand_slots(op);
    instruction.operand_count = static_cast<int>(slots);
    instruction.result_count = static_cast<int>(op.results.size());
    for (size_t i = 0; i < slots; ++i) {
      add_pointer(i < op.operands.size() ? op.operands[i] : nullptr);
    }
    for (const auto& result : op.results) add_pointer(result.get());
    if (options_.check_floats) instruction.check = add_check(op);
    program_.offsets.push_back(scratch_bytes > 0 ? op.attrs.get_int(ir::attr::scratch_addr) : -1);
    program_.kernels.push_back(std::move(prepared.run));
  }

  int add_check(const ir::Op& op) {
    program_.checks.push_back(float_check_of(op, ops::report_name(op), uses_));
    return static_cast<int>(program_.checks.size()) - 1;
  }

  void add_collective(const ir::Op& op, Block& block) {
    const Collective what = collective_of(op);
    const bool is_local = what.kind == Collective::Kind::shard;
    Instruction& instruction = add(is_local ? Kind::shard : Kind::collective, op, block);
    instruction.index = static_cast<int>(program_.collectives.size());
    for (ir::Value* operand : op.operands) add_pointer(operand);
    for (const auto& result : op.results) add_pointer(result.get());
    if (options_.check_floats) instruction.check = add_check(op);
    program_.collectives.push_back(what);
    block.is_joint = block.is_joint || !is_local;
  }

  void add_loop(const ir::Op& op, int64_t steps, Block& block) {
    const ir::Graph& body = ir::body_of(module_, op);
    const int64_t count = op.attrs.get_int(ir::attr::count);
    INTERNAL_CHECK(count >= 1, "[assemble] `", op.text(), "` runs ", count, " times");
    const bool is_device_loop = &op == device_loop_;
    const int number = add_block(body, is_device_loop ? 1 : steps * count);
    Instruction& instruction = add(Kind::loop, op, block);
    instruction.index = number;
    instruction.count = count;
    instruction.is_conditional = op.attrs.get_bool(ir::attr::conditional, false);
    if (instruction.is_conditional) add_pointer(op.operands[0]);
    block.is_joint = block.is_joint || program_.blocks[static_cast<size_t>(number)].is_joint;
    if (is_device_loop) {
      program_.device_loop = number;
      program_.device_iterations = count;
    } else if (op.attrs.get_graph(ir::attr::body) == "micro") {
      program_.micro_loop = number;
    }
  }

  void add_stream(const ir::Op& op, ir::Value& value, int64_t steps, Block& block) {
    Instruction& instruction =
        add(op.name == ir::op::stream_in ? Kind::stream_in : Kind::stream_out, op, block);
    instruction.index = interface_.stream_of(op, value, steps);
    instruction.bytes = value.type.bytes();
    add_pointer(&value);
  }

  void add_constant(const ir::Op& op) {
    const int64_t addr = plan::addr_of(*op.result());
    // An empty one has nothing to write, and a text of other origin may have it where another is.
    if (op.result()->type.bytes() == 0 || !constants_.insert(addr).second) return;
    program_.constants.push_back({addr, ir::constant_bytes(module_, op)});
  }

  void add_poison(const ir::Op& op, Block& block) {
    if (!options_.poison) return;
    const auto dead = deaths_.find(line_.ops.at(&op).begin);
    if (dead == deaths_.end()) return;
    for (const plan::Content& content : dead->second) {
      add(Kind::poison, op, block).bytes = content.bytes;
      program_.offsets.push_back(content.addr);
    }
  }

  void check_kernels() const {
    if (without_kernel_.empty()) return;
    check_is_linked("kernel ", without_kernel_.begin()->first);
    std::string list;
    for (const auto& [name, text] : without_kernel_) list += concat("\n  ", text);
    throw_user_error(concat("[assemble] ", without_kernel_.size(),
                            " ops of the program have no kernel. Register one in csrc/kernels for "
                            "each, or translate them as `aten`:",
                            list));
  }

  const ir::Module& module_;
  const AssembleOptions& options_;
  plan::PreparedOps prepared_;
  Program program_;
  Sources sources_{program_};
  Interface interface_{program_};
  Uses uses_;  // where floats are checked
  Directs directs_;
  const ir::Op* device_loop_ = nullptr;  // nullptr: `main` is the one iteration
  std::set<std::string> shareable_;
  std::unordered_set<int64_t> constants_;  // addresses of those that are in the program
  std::map<std::string, std::string> without_kernel_;  // op -> one example
  std::unordered_map<int, std::vector<plan::Content>> deaths_;
  plan::Timeline line_;
};

}  // namespace

Program assemble(const ir::Module& module, const AssembleOptions& options,
                 plan::PreparedOps prepared) {
  return Assembler(module, options, std::move(prepared)).run();
}

}  // namespace poptorch::assemble
