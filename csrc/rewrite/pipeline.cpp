#include "rewrite/pipeline.h"

#include "rewrite/pass.h"

namespace poptorch::rewrite {

std::vector<std::string> pipeline() {
  return {
      "simplify",
      "fold",
      "simplify",  // constants made by fold show more ops that do nothing
      "cse",
      "dce",
      "dead_inputs",
      "dce",              // what computed a carried value that is gone
      "fold_batch_norm",  // after dce: a second use would keep it from folding
      "fuse_cross_entropy",
      "fuse_embedding",
      "dce",  // layers that were folded are not to be placed
  };
}

const std::vector<Pass>& passes() {
  static const std::vector<Pass> table = {
#define PASS(name, off_for, doc) {{#name, OffFor::off_for, doc}, name},
#include "rewrite/passes.def"
#undef PASS
  };
  return table;
}

int64_t rewrite(ir::Module& module, const PassOptions& options, const Observer& observer) {
  return run_passes(module, passes(), pipeline(), options, observer);
}

}  // namespace poptorch::rewrite
