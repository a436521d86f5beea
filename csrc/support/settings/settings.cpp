#include "support/settings/settings.h"

#include <algorithm>

#include "support/algorithms/algorithm.h"
#include "support/error.h"
#include "support/files.h"
#include "support/process.h"

namespace poptorch {

namespace {

thread_local const Settings* current = nullptr;

bool parse_gemm(std::string_view name) {
  USER_CHECK(name == "loops" || name == "library", "[POPTORCH_GEMM] matrix products by \"", name,
             "\": there are \"loops\", the package's own, and \"library\", PyTorch's BLAS. "
             "Choose one of those.");
  return name == "loops";
}

bool parse_measure(const std::string& text) {
  USER_CHECK(text.empty() || text == "0" || text == "1",
             "[POPTORCH_MEASURE] expected 0 or 1, got \"", text,
             "\". Set it to one of them, or unset it.");
  return text != "0";
}

std::string find_cache_folder() {
  const std::string own = environment_variable("POPTORCH_CACHE_DIR");
  const std::string cache = environment_variable("XDG_CACHE_HOME");
  if (!own.empty()) return absolute_path(own);
  if (!cache.empty()) return concat(cache, "/poptorch");
  const std::string home = environment_variable("HOME");
  return home.empty() ? "" : concat(home, "/.cache/poptorch");
}

// The machine's best level, of those that this file is built for.
simd::Isa best_level() {
  const std::vector<simd::Isa> levels = simd::machine_levels();
#ifdef POPTORCH_ONLY_ISA
  USER_CHECK(!levels.empty(), "[runner] this binary needs a processor with ",
             name_of(simd::Isa::POPTORCH_ONLY_ISA), ", which this machine does not have. Build it ",
             "for this machine: make runner PROGRAM=FILE CPU=avx2 (or base).");
#endif
  return levels.back();
}

bool is_other_than_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel");
#else
  return true;
#endif
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  for (const std::string& name : split(environment_variable("POPTORCH_OFF"), ',')) {
    if (!name.empty()) settings.off.push_back(name);
  }
  settings.algorithms = parse_algorithms(environment_variable("POPTORCH_ALGORITHM"));
  const std::string isa = environment_variable("POPTORCH_ISA");
  const std::string gemm = environment_variable("POPTORCH_GEMM");
  settings.isa = isa.empty() ? best_level() : simd::parse_isa(isa);
  settings.names_gemm = !gemm.empty();
  settings.measures = parse_measure(environment_variable("POPTORCH_MEASURE"));
  settings.cache_folder = find_cache_folder();
  settings.has_gemm_loops = gemm.empty() ? is_other_than_intel() : parse_gemm(gemm);
  return settings;
}

bool Settings::is_on(std::string_view name) const {
  return std::find(off.begin(), off.end(), name) == off.end();
}

const Settings& settings() {
  if (current != nullptr) return *current;
  thread_local Settings outside;
  return outside = Settings::from_environment();
}

const Settings* scoped_settings() { return current; }

SettingsScope::SettingsScope() : outer_(current) {
  if (outer_ == nullptr) current = &own_.emplace(Settings::from_environment());
}

SettingsScope::SettingsScope(const Settings* settings) : outer_(current) { current = settings; }

SettingsScope::~SettingsScope() { current = outer_; }

}  // namespace poptorch
