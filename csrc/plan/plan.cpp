#include "plan/plan.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/kernel.h"
#include "plan/allocate.h"
#include "plan/buffers.h"
#include "plan/layout.h"
#include "plan/timeline.h"
#include "support/error.h"
#include "support/memory/align.h"
#include "support/memory/work_memory.h"

namespace poptorch::plan {

namespace {

// Other ops are the engine's, or do not run.
bool has_kernel(const ir::Op& op) {
  return op.name != ir::op::loop && op.name != ir::op::view &&
         ops::find_kernel(op.name) != nullptr;
}

// Every op that has a kernel, prepared; in `scratch` those that need memory of their own, in order.
PreparedOps prepare_ops(const ir::Module& module, int threads, std::vector<ir::Op*>& scratch,
                        bool& is_changed) {
  const WorkMemory memory;  // all dry runs share it
  PreparedOps prepared;
  for (ir::Op* op : module.all_ops()) {
    if (!has_kernel(*op)) continue;
    const auto added = prepared.emplace(op, ops::prepare({*op, threads})).first;
    if (added->second.scratch_bytes > 0) scratch.push_back(op);
    const ir::Attr* before = op->attrs.find(ir::attr::algorithm);
    const std::string& algorithm = added->second.algorithm;
    if (before == nullptr ? algorithm.empty() : *before == ir::Attr(algorithm)) continue;
    is_changed = true;
    op->attrs.erase(ir::attr::algorithm);
    if (!algorithm.empty()) op->attrs.set(ir::attr::algorithm, algorithm);
  }
  return prepared;
}

// Addresses of what keeps its memory all the time, one after the other.
class Persistent {
 public:
  explicit Persistent(const Buffers& buffers)
      : buffers_(buffers), addrs_(buffers.buffers.size(), -1) {}

  // States that are in `last`, or that are not, by path.
  void put_states(const std::set<std::string>& last, bool is_last) {
    for (const auto& [path, buffer] : buffers_.states) {
      if (last.contains(path) == is_last) put(static_cast<size_t>(buffer));
    }
  }

  void put_constants() {
    for (size_t i = 0; i < addrs_.size(); ++i) {
      if (buffers_.buffers[i].kind == Buffer::Kind::constant) put(i);
    }
  }

  void skip(int64_t bytes) { end_ += bytes; }
  int64_t end() const { return end_; }
  bool has(size_t buffer) const { return buffers_.buffers[buffer].kind != Buffer::Kind::temporary; }
  std::vector<int64_t>& addrs() { return addrs_; }

 private:
  void put(size_t buffer) {
    addrs_[buffer] = end_;
    end_ += planned_bytes(buffers_.buffers[buffer].bytes);
  }

  const Buffers& buffers_;
  std::vector<int64_t> addrs_;
  int64_t end_ = 0;
};

void write_addrs(ir::Module& module, const Buffers& buffers, const std::vector<int64_t>& addrs) {
  for (ir::Op* op : module.all_ops()) {
    op->attrs.erase(ir::attr::inplace);
    ir::Dims results;
    for (const auto& result : op->results) {
      const Place& place = buffers.places.at(result.get());
      results.push_back(addrs[static_cast<size_t>(place.buffer)] + place.offset);
    }
    if (results.size() == 1) {
      op->attrs.set(ir::attr::addr, results[0]);
    } else if (!results.empty()) {
      op->attrs.set(ir::attr::addr, results);
    }
    if (op->name == ir::op::assign) {
      const int state = buffers.states.at(op->attrs.get_string(ir::attr::path));
      op->attrs.set(ir::attr::addr, addrs[static_cast<size_t>(state)]);
    }
    const auto inplace = buffers.inplace.find(op);
    if (inplace != buffers.inplace.end()) {
      op->attrs.set(ir::attr::inplace, ir::Dims(inplace->second.begin(), inplace->second.end()));
    }
  }
}

}  // namespace

PreparedOps plan(ir::Module& module, const PlanOptions& options) {
  const Buffers buffers = make_buffers(module);
  const Timeline line = make_timeline(module);
  std::vector<ir::Op*> scratch;
  bool is_changed = false;
  PreparedOps prepared = prepare_ops(module, options.threads, scratch, is_changed);
  const auto scratch_bytes = [&](const ir::Op* op) {
    return static_cast<int64_t>(prepared.at(op).scratch_bytes);
  };

  const std::set<std::string> last = shareable_states(module);
  Persistent persistent(buffers);
  persistent.put_states(last, false);
  persistent.put_constants();
  const int64_t persistent_bytes = persistent.end();
  std::vector<int64_t>& addrs = persistent.addrs();
  std::vector<Request> requests;
  std::vector<size_t> requesters;
  for (size_t i = 0; i < addrs.size(); ++i) {
    if (persistent.has(i)) continue;
    requests.push_back({buffers.buffers[i].bytes, buffers.buffers[i].span});
    requesters.push_back(i);
  }
  for (const ir::Op* op : scratch) requests.push_back({scratch_bytes(op), line.ops.at(op)});

  const Offsets offsets = allocate(requests);
  for (size_t i = 0; i < requesters.size(); ++i) {
    addrs[requesters[i]] = persistent_bytes + offsets.offsets[i];
  }
  persistent.skip(offsets.total);
  persistent.put_states(last, true);
  write_addrs(module, buffers, addrs);
  for (size_t i = 0; i < scratch.size(); ++i) {
    const int64_t offset = offsets.offsets[requesters.size() + i];
    scratch[i]->attrs.set(ir::attr::scratch_addr, persistent_bytes + offset);
    scratch[i]->attrs.set(ir::attr::scratch_bytes, scratch_bytes(scratch[i]));
  }
  return prepared;
}

PreparedOps prepare(ir::Module& module, const PlanOptions& options, bool& is_changed) {
  std::vector<ir::Op*> scratch;
  PreparedOps prepared = prepare_ops(module, options.threads, scratch, is_changed);
  std::optional<int64_t> behind;  // the arena as it was planned
  for (ir::Op* op : scratch) {
    const auto wanted = static_cast<int64_t>(prepared.at(op).scratch_bytes);
    if (wanted <= op->attrs.get_int(ir::attr::scratch_bytes, 0)) continue;
    if (!behind) behind = arena_bytes(module);
    op->attrs.set(ir::attr::scratch_addr, *behind);
    op->attrs.set(ir::attr::scratch_bytes, wanted);
    is_changed = true;
  }
  return prepared;
}

}  // namespace poptorch::plan
