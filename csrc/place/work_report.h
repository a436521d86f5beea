// The work of a program: that of its ops, as often as they run in one call of one replica.
//
// It is read before any lowering, so it does not depend on the CPU, on its kernels or on settings
// of these.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace poptorch::place {

// Of all ops of one name in one phase. Numbers are whole; as doubles they do not overflow.
struct OpWork {
  std::optional<double> flops;  // none: not counted
  std::optional<double> bytes;
  double count = 0;             // how often such an op runs
};

// By phase (forward, backward, update) and name; what neither computes nor touches anything is left
// out. A loop that runs as long as a tensor says is an entry `loop` without FLOPs and bytes, and
// what is in it is not counted.
using WorkReport = std::map<std::string, std::map<std::string, OpWork>>;

// The module of a placed program's text, without the data of its constants; it is verified.
std::unique_ptr<ir::Module> parse_placed(std::string_view text);

// Of the text of a placed program, without the data of its constants. A user error where it breaks
// a rule: the text may be that of a file.
WorkReport work_report(std::string_view text);

}  // namespace poptorch::place
