#include "support/algorithms/algorithm.h"

#include <algorithm>
#include <map>

#include "support/files.h"
#include "support/loading/at_load.h"

namespace poptorch {

namespace {

// A function's static: tables are made before main, in the order the linker chose.
std::vector<AlgorithmName>& registry() {
  static std::vector<AlgorithmName> names;
  return names;
}

// Read by each choice, and written by tests alone.
std::map<std::string, double, std::less<>>& scales() {
  static std::map<std::string, double, std::less<>> factors;
  return factors;
}

}  // namespace

void scale_cost(const std::string& algorithm, double factor) { scales()[algorithm] = factor; }

double cost_scale(std::string_view family, std::string_view name) {
  if (scales().empty()) return 1;
  const auto at = scales().find(concat(family, ":", name));
  return at == scales().end() ? 1 : at->second;
}

void note_algorithm(std::string_view family, std::string_view name) {
  note_need("algorithm.", concat(family, ".", name));
}

void register_algorithm(const AlgorithmName& name) { registry().push_back(name); }

std::vector<AlgorithmName> all_algorithms() {
  std::vector<AlgorithmName> names = registry();
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.family < b.family; });
  return names;
}

std::vector<ForcedAlgorithm> parse_algorithms(const std::string& text) {
  std::vector<ForcedAlgorithm> forced;
  for (const std::string& word : split(text, ',')) {
    if (word.empty()) continue;
    std::string names;
    bool is_known = false;
    for (const AlgorithmName& one : all_algorithms()) {
      const std::string known = concat(one.family, ":", one.name);
      is_known = is_known || known == word;
      names += concat(names.empty() ? "" : ", ", known);
    }
    USER_CHECK(is_known, "[POPTORCH_ALGORITHM] \"", word, "\" is no algorithm. There are: ", names,
               ". Choose from these, with commas between them.");
    const size_t colon = word.find(':');
    forced.push_back({word.substr(0, colon), word.substr(colon + 1)});
  }
  return forced;
}

}  // namespace poptorch
