// Look-ups of rows and updates by rows.
#include <algorithm>
#include <sstream>

#include "device/cost/steps.h"
#include "device/partition/slices.h"

namespace poptorch::device {

namespace {

std::string words_of(const SlicePlan& plan) {
  std::ostringstream out;
  out << "elements=" << plan.element_splits << " rows=" << plan.row_splits
      << " lookups=" << plan.lookup_splits << " serial=" << plan.serial;
  return out.str();
}

void add_slices(Steps& steps, const Call& call, const SliceProblem& problem) {
  if (problem.rows == 0 || problem.elements == 0 || problem.lookups == 0) return;
  const Target& target = call.target;
  const SlicePlan plan = plan_of(problem, target, call.settings.memory_proportion);
  steps.add(plan.compute, plan.exchange);
  if (plan.steps > 1) steps.add(0, 0, plan.steps - 1);
  steps.use_temporary(plan.temporary_bytes);
  steps.cost.plan = words_of(plan);
}

// Rows of the table: the dimension `dim`. Elements: all others.
SliceProblem rows_of(const ir::Type& table, int64_t dim, double lookups) {
  SliceProblem out;
  out.item_bytes = ir::item_bytes(table.dtype);
  out.rows = table.rank() == 0 ? 1 : table.sizes[static_cast<size_t>(dim)];
  out.elements = out.rows == 0 ? 0 : table.numel() / out.rows;
  out.lookups = static_cast<int64_t>(lookups);
  return out;
}

int64_t dim_of(const Call& call, const ir::Type& table) {
  return ops::wrap_dim(call, call.attrs().get_int(ir::attr::dim),
                       std::max<int64_t>(1, table.rank()));
}

Cost index_select_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& table = call.operand(0);
  add_slices(steps, call, rows_of(table, dim_of(call, table), ops::numel(call.operand(1))));
  return steps.cost;
}

Cost embedding_cost(const Call& call) {
  Steps steps(call);
  add_slices(steps, call, rows_of(call.operand(0), 0, ops::numel(call.operand(1))));
  return steps.cost;
}

// The operand that has the table's form, and how many rows of it are updated.
void add_update(Steps& steps, const Call& call, const ir::Type& table, int64_t dim,
                double lookups) {
  SliceProblem problem = rows_of(table, dim, lookups);
  problem.is_update = true;
  add_slices(steps, call, problem);
}

Cost embedding_backward_cost(const Call& call) {
  Steps steps(call);
  add_update(steps, call, call.result(), 0, ops::numel(call.operand(1)));
  return steps.cost;
}

Cost index_add_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& table = call.operand(0);
  add_update(steps, call, table, dim_of(call, table), ops::numel(call.operand(1)));
  return steps.cost;
}

// An index that is the same along all dimensions but one takes whole rows. Its values are not known
// at this time; an expanded index has this form.
bool takes_rows(const ir::Value& index, int64_t dim) {
  if (index.op != nullptr && index.op->name == ir::op::expand) return true;
  for (size_t d = 0; d < index.type.sizes.size(); ++d) {
    const bool is_dim = static_cast<int64_t>(d) == dim;
    const bool is_one = index.type.sizes[d] == 1 ||
                        (!index.type.strides.empty() && index.type.strides[d] == 0);
    if (!is_dim && !is_one) return false;
  }
  return true;
}

// Look-ups or updates of whole rows, or of single elements.
SliceProblem along_dim(const Call& call, const ir::Type& table, bool is_update) {
  const int64_t dim = dim_of(call, table);
  const ir::Value& index = *call.op.operand(1);
  SliceProblem problem;
  if (takes_rows(index, dim) && index.type.rank() > 0) {
    problem = rows_of(table, dim,
                      static_cast<double>(index.type.sizes[static_cast<size_t>(dim)]));
  } else {
    problem = {table.numel(), 1, index.type.numel(), ir::item_bytes(table.dtype), false};
  }
  problem.is_update = is_update;
  return problem;
}

Cost gather_cost(const Call& call) {
  Steps steps(call);
  add_slices(steps, call, along_dim(call, call.operand(0), false));
  return steps.cost;
}

Cost scatter_cost(const Call& call) {
  Steps steps(call);
  add_slices(steps, call, along_dim(call, call.operand(0), true));
  return steps.cost;
}

// Indices of some leading dimensions take what is left of the others.
double index_lookups(const Call& call, size_t first, const ir::Type& table, double* elements) {
  double lookups = 0;
  double rows = 1;
  for (size_t i = first; i < call.count() && i - first < table.sizes.size(); ++i) {
    if (!call.has(i)) continue;
    lookups = std::max(lookups, ops::numel(call.operand(i)));
    rows *= static_cast<double>(table.sizes[i - first]);
  }
  *elements = rows == 0 ? 0 : ops::numel(table) / rows;
  return lookups;
}

template <bool is_update>
Cost index_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& table = call.operand(0);
  double elements = 1;
  const double lookups = index_lookups(call, is_update ? 2 : 1, table, &elements);
  const double rows = elements == 0 ? 0 : ops::numel(table) / elements;
  add_slices(steps, call,
             {static_cast<int64_t>(rows), static_cast<int64_t>(elements),
              static_cast<int64_t>(lookups), ir::item_bytes(table.dtype), is_update});
  return steps.cost;
}

}  // namespace

std::vector<CostRow> indexing_costs() {
  return {{"index_select", index_select_cost}, {"embedding", embedding_cost},
          {"embedding_backward", embedding_backward_cost}, {"index_add", index_add_cost},
          {"gather", gather_cost}, {"scatter", scatter_cost},
          {"scatter_add", scatter_cost}, {"scatter_reduce", scatter_cost},
          {"index", index_cost<false>}, {"index_put", index_cost<true>}};
}

}  // namespace poptorch::device
