#include "rewrite/driver.h"

#include <chrono>

#include "ir/text.h"
#include "ir/verify.h"
#include "support/error.h"
#include "support/settings/switches.h"

namespace poptorch::rewrite {

namespace {

constexpr size_t shown_chars = 20000;  // of the text before a pass that failed

void check_after(const ir::Module& module, ir::Level level, std::string_view pass,
                 const std::string& before) {
  try {
    ir::verify(module, level);
  } catch (const InternalError& error) {
    throw InternalError(concat("[passes] pass ", pass, " left a broken module\n", error.what(),
                               "\nbefore the pass:\n", before.substr(0, shown_chars),
                               before.size() > shown_chars ? "... (cut)\n" : ""));
  }
}

// A user error that lists the names when there is no such pass.
const Pass& find_pass(const std::vector<Pass>& known, std::string_view name) {
  std::string names;
  for (const Pass& pass : known) {
    if (pass.name == name) return pass;
    names += concat(names.empty() ? "" : ", ", pass.name);
  }
  throw_user_error(
      concat("[passes] there is no pass \"", name, "\". The passes are: ", names, "."));
}

}  // namespace

int64_t run_passes(ir::Module& module, const std::vector<Pass>& known,
                   const std::vector<std::string>& names, const PassOptions& options,
                   const Observer& observer) {
  std::vector<Pass> passes;
  for (const std::string& name : names) {
    const Pass& pass = find_pass(known, name);
    if (is_on(name)) passes.push_back(pass);
  }
  const ir::Level level = ir::is_placed(module) ? ir::Level::lowered : ir::Level::any;
  if (options.verify) ir::verify(module, level);
  int64_t number = options.done;
  for (const Pass& pass : passes) {
    if (options.limit >= 0 && number >= options.limit) break;
    const std::string before = options.verify ? ir::print(module) : std::string();
    const auto start = std::chrono::steady_clock::now();
    const bool changed = pass.run(module);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (options.verify && changed) check_after(module, level, pass.name, before);
    ++number;
    if (observer) observer({number, pass.name, changed, seconds.count()}, module);
  }
  return number;
}

}  // namespace poptorch::rewrite
