// Costs of ops, each distinct one computed once: the layers of a network plan their products once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/cost/cost.h"
#include "ir/graph.h"

namespace poptorch::estimate {

// The settings of an IPU, by its number.
using SettingsOf = std::function<device::Settings(int64_t ipu)>;

class CostTable {
 public:
  CostTable(device::Target target, SettingsOf settings)
      : target_(std::move(target)), settings_of_(std::move(settings)) {}

  // The op must be verified. The reference is valid as long as the table.
  const device::Cost& of(const ir::Op& op);

  const device::Target& target() const { return target_; }
  const device::Settings& settings(int64_t ipu);
  // How many different ops were computed.
  int64_t distinct() const;

 private:
  struct OfSettings {
    device::Settings settings;
    std::map<std::string, device::Cost> costs;
  };

  OfSettings& table_of(int64_t ipu);

  device::Target target_;
  SettingsOf settings_of_;
  std::vector<OfSettings> tables_;     // one for all IPUs with equal settings
  std::map<int64_t, size_t> numbers_;  // by IPU
};

// Marks each all_gather that is only summed.
void mark_summed(ir::Module& module);

}  // namespace poptorch::estimate
