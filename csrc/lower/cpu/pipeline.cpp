#include "lower/cpu/pipeline.h"

#include "lower/cpu/pass.h"
#include "rewrite/pass.h"

namespace poptorch::lower::cpu {

std::vector<std::string> pipeline() {
  return {
      "compact_argmax",  // takes a relu that batch norm would
      "fuse_batch_norm",
      "channels_last",
      "dce",               // unused permutes back: they count as uses
      "fuse_convolution",  // of channels-last ones
      "simplify",          // permutes of weights there and back
      "plain_weights",     // of those that need no permute
      "dce",
      "batch_tiling",              // of what is packed
      "rematerialize_batch_norm",  // of what is fused
      "views",                     // after all passes that look at the op of a value
      "cse",                       // equal copies that views put in
      "dce",
      "hoist",  // after views, which shows what costs nothing
      "dce",
      "rematerialize_elementwise",  // after the last cse, which would undo it
      "dce",                        // views of what is computed again
      "fuse",                       // after what looks at single ops
      "inplace",  // last: a pass after it could lengthen the life of a value
  };
}

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> table = [] {
    std::vector<Pass> all = rewrite::passes();
#define PASS(name, off_for, doc) all.push_back({{#name, OffFor::off_for, doc}, name});
#include "lower/cpu/passes.def"
#undef PASS
    return all;
  }();
  return table;
}

int64_t lower(ir::Module& module, const PassOptions& options, const Observer& observer) {
  return run_passes(module, all_passes(), pipeline(), options, observer);
}

}  // namespace poptorch::lower::cpu
