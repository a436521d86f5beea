#include "place/ipus.h"

#include <algorithm>

#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::place {

namespace {

// Where the user's program first names this IPU.
std::string first_place(const ir::Module& module, int64_t ipu) {
  for (const ir::Op* op : module.all_ops()) {
    const bool is_here = op->attrs.get_int(ir::attr::ipu, 0) == ipu && !ops::is_move(*op);
    if (is_here && !op->source_location.empty()) return ops::source_text(op->source_location);
  }
  return "";
}

}  // namespace

int64_t ipus_used(const ir::Module& module) {
  int64_t highest = 0;
  for (const ir::Op* op : module.all_ops()) {
    highest = std::max(highest, op->attrs.get_int(ir::attr::ipu, 0));
  }
  return highest + 1;
}

void check_ipus(const ir::Module& module, const IpuLimits& limits) {
  const int64_t each = ipus_used(module), all = each * limits.replicas;
  const std::string words = concat("the model uses ", each, " on each of ", limits.replicas,
                                   " replicas, ", all, " in all");
  USER_CHECK(limits.most == 0 || all <= limits.most, "[place] Too many IPUs requested (", all,
             "). Maximum for one process is ", limits.most, ": ", words,
             ". Use fewer replicas, or more processes.",
             all > limits.most ? first_place(module, each - 1) : "");
  const bool is_power_of_two = (all & (all - 1)) == 0;
  USER_CHECK(!limits.is_power_of_two || is_power_of_two, "[place] the number of IPUs must be a "
             "power of two: ", words, ". Call options.autoRoundNumIPUs() to round it up.",
             is_power_of_two ? "" : first_place(module, each - 1));
}

}  // namespace poptorch::place
