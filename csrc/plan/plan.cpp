#include "plan/plan.h"

#include <vector>

#include "ops/kernel.h"
#include "plan/allocate.h"
#include "plan/buffers.h"
#include "plan/timeline.h"
#include "support/error.h"

namespace poptorch::plan {

namespace {

// Other ops are the engine's, or do not run.
bool has_kernel(const ir::Op& op) {
  return op.name != "loop" && op.name != "view" && ops::find_kernel(op.name) != nullptr;
}

// Every op that has a kernel, prepared; in `scratch` those that need memory of their own, in order.
PreparedOps prepare_ops(const ir::Module& module, int threads, std::vector<ir::Op*>& scratch) {
  PreparedOps prepared;
  for (const auto& graph : module.graphs) {
    for (const auto& op : graph->ops) {
      if (!has_kernel(*op)) continue;
      const auto added = prepared.emplace(op.get(), ops::prepare({*op, threads})).first;
      if (added->second.scratch_bytes > 0) scratch.push_back(op.get());
    }
  }
  return prepared;
}

// States by path, then constants, one after the other; -1 for temporary buffers.
std::vector<int64_t> place_persistent(const Buffers& buffers, int64_t& end) {
  std::vector<int64_t> addrs(buffers.buffers.size(), -1);
  end = 0;
  const auto put = [&](size_t i) {
    addrs[i] = end;
    end += align_up(buffers.buffers[i].bytes);
  };
  for (const auto& [path, buffer] : buffers.states) put(static_cast<size_t>(buffer));
  for (size_t i = 0; i < addrs.size(); ++i) {
    if (buffers.buffers[i].kind == Buffer::Kind::constant) put(i);
  }
  return addrs;
}

void write_addrs(ir::Module& module, const Buffers& buffers, const std::vector<int64_t>& addrs) {
  for (const auto& graph : module.graphs) {
    for (const auto& op : graph->ops) {
      op->attrs.erase("inplace");
      ir::Dims results;
      for (const auto& result : op->results) {
        const Place& place = buffers.places.at(result.get());
        results.push_back(addrs[static_cast<size_t>(place.buffer)] + place.offset);
      }
      if (results.size() == 1) {
        op->attrs.set("addr", results[0]);
      } else if (!results.empty()) {
        op->attrs.set("addr", results);
      }
      if (op->name == "assign") {
        const int state = buffers.states.at(op->attrs.get_string("path"));
        op->attrs.set("addr", addrs[static_cast<size_t>(state)]);
      }
      const auto inplace = buffers.inplace.find(op.get());
      if (inplace != buffers.inplace.end()) {
        op->attrs.set("inplace", ir::Dims(inplace->second.begin(), inplace->second.end()));
      }
    }
  }
}

}  // namespace

PreparedOps plan(ir::Module& module, const PlanOptions& options) {
  const Buffers buffers = make_buffers(module);
  const Timeline line = make_timeline(module);
  std::vector<ir::Op*> scratch;
  PreparedOps prepared = prepare_ops(module, options.threads, scratch);
  const auto scratch_bytes = [&](const ir::Op* op) {
    return static_cast<int64_t>(prepared.at(op).scratch_bytes);
  };

  int64_t persistent_bytes = 0;
  std::vector<int64_t> addrs = place_persistent(buffers, persistent_bytes);
  std::vector<Request> requests;
  std::vector<size_t> requesters;
  for (size_t i = 0; i < addrs.size(); ++i) {
    if (addrs[i] >= 0) continue;
    requests.push_back({buffers.buffers[i].bytes, buffers.buffers[i].span});
    requesters.push_back(i);
  }
  for (const ir::Op* op : scratch) requests.push_back({scratch_bytes(op), line.ops.at(op)});

  const Offsets offsets = allocate(requests);
  for (size_t i = 0; i < requesters.size(); ++i) {
    addrs[requesters[i]] = persistent_bytes + offsets.offsets[i];
  }
  write_addrs(module, buffers, addrs);
  for (size_t i = 0; i < scratch.size(); ++i) {
    const int64_t offset = offsets.offsets[requesters.size() + i];
    scratch[i]->attrs.set("scratch_addr", persistent_bytes + offset);
    scratch[i]->attrs.set("scratch_bytes", scratch_bytes(scratch[i]));
  }
  return prepared;
}

}  // namespace poptorch::plan
