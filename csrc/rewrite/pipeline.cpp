#include "rewrite/pipeline.h"

#include <chrono>

#include "ir/text.h"
#include "ir/verify.h"
#include "rewrite/pass.h"
#include "support/error.h"
#include "support/switches.h"

namespace poptorch::rewrite {

namespace {

constexpr size_t shown_chars = 20000;  // of the text before a pass that failed

void check_after(const ir::Module& module, std::string_view pass, const std::string& before) {
  try {
    ir::verify(module, ir::Level::translated);
  } catch (const InternalError& error) {
    throw InternalError(concat("[rewrite] pass ", pass, " left a broken module\n", error.what(),
                               "\nbefore the pass:\n", before.substr(0, shown_chars),
                               before.size() > shown_chars ? "... (cut)\n" : ""));
  }
}

}  // namespace

std::vector<std::string> pipeline() {
  return {
      "simplify",
      "fold",
      "simplify",  // constants made by fold show more ops that do nothing
      "cse",
      "dce",
      "dead_inputs",
      "dce",    // what computed a carried value that is gone
      "fold_batch_norm",
      "compact_argmax",  // takes a relu that batch norm would
      "fuse_batch_norm",
      "channels_last",
      "dce",               // permutes back that nobody needs: they count as uses
      "fuse_convolution",  // of channels-last ones
      "simplify",          // permutes of weights there and back
      "plain_weights",     // of those that need no permute
      "dce",
      "batch_tiling",           // of what is packed
      "rematerialize_batch_norm",  // of what is fused
      "fuse_cross_entropy",
      "fuse_embedding",
      "views",  // after everything that asks what op made a value
      "cse",    // equal copies that views put in
      "dce",
      "hoist",  // after views, which shows what costs nothing
      "dce",
      "rematerialize_elementwise",  // after the last cse, which would undo it
      "dce",                    // views of what is computed again
      "fuse",  // after what looks at single ops
      "inplace",  // last: a pass after it could lengthen the life of a value
  };
}

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = {
#define PASS(name, doc) {#name, doc, name},
#include "rewrite/passes.def"
#undef PASS
  };
  return passes;
}

const Pass& find_pass(std::string_view name) {
  std::string names;
  for (const Pass& pass : all_passes()) {
    if (pass.name == name) return pass;
    names += concat(names.empty() ? "" : ", ", pass.name);
  }
  throw_user_error(
      concat("[rewrite] there is no pass \"", name, "\". The passes are: ", names, "."));
}

void rewrite(ir::Module& module, const PassOptions& options, const Observer& observer) {
  std::vector<Pass> passes;
  for (const std::string& name : options.passes) {
    const Pass& pass = find_pass(name);
    if (is_on(name)) passes.push_back(pass);
  }
  if (options.verify) ir::verify(module, ir::Level::translated);
  int number = 0;
  for (const Pass& pass : passes) {
    if (options.limit >= 0 && number >= options.limit) return;
    const std::string before = options.verify ? ir::print(module) : std::string();
    const auto start = std::chrono::steady_clock::now();
    const bool changed = pass.run(module);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (options.verify && changed) check_after(module, pass.name, before);
    ++number;
    if (observer) observer({number, pass.name, changed, seconds.count()}, module);
  }
}

}  // namespace poptorch::rewrite
