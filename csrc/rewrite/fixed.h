// Values that change only when the host writes a state: computed from states that the program never
// assigns, and from constants.
#pragma once

#include <set>
#include <string>
#include <unordered_map>

#include "ir/graph.h"

namespace poptorch::rewrite {

// Whether products of this type are computed in f32, so that fixed weights of it may be upcast
// once. Those for the unit that multiplies bf16 would have to be rounded again.
bool is_computed_in_f32(ir::DType dtype);

class FixedValues {
 public:
  // Looks at the whole module: a state that any graph assigns is not fixed.
  explicit FixedValues(const ir::Module& module);

  // Adds an op that was made after construction; operands first.
  void add(const ir::Op& op);

  bool contains(const ir::Value* value) const { return kinds_.contains(value); }
  // Fixed, and not a constant.
  bool is_from_state(const ir::Value* value) const;

 private:
  enum class Kind { constant, state };

  std::set<std::string> assigned_;
  std::unordered_map<const ir::Value*, Kind> kinds_;
};

}  // namespace poptorch::rewrite
