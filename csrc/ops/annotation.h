// Annotations: attributes that ops of several rows may carry, and no kernel reads. The table
// (ops/annotations.def) says of each what happens to it where ops become one.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::ops {

enum class Rule {
  // Ops that differ in it are never computed by one op.
  apart,
  // The part of the step: equal ops may differ in it, ops that are fused may not.
  origin,
  // Equal ops that differ in it are not merged. A fused op has it if all of its ops have the same.
  label,
  // Where the step place puts the op. Ops at different places are never computed by one op, and
  // what stands for others is where they are. Only ops that run on an IPU carry it.
  place,
  // What a later step found out about the op.
  step,
};

struct Annotation {
  std::string_view name;
  Rule rule;
  std::vector<ir::OpName> ops;  // the only ops that carry it; empty: any op
};

// The table, in its order.
const std::vector<Annotation>& annotations();
// nullptr when the attribute is no annotation.
const Annotation* find_annotation(std::string_view name);
bool may_carry(ir::OpName op_name, const Annotation& annotation);

// Whether two ops agree in an annotation. What one of them cannot carry says nothing.
bool agree(const ir::Op& a, const ir::Op& b, const Annotation& annotation);

}  // namespace poptorch::ops
