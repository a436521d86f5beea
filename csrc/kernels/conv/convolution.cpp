// The ops `convolution` and `convolution_backward`, by algorithms of conv/algorithms.h.
#include <algorithm>
#include <array>

#include "ir/copy.h"
#include "kernels/conv/algorithms.h"
#include "kernels/float16.h"
#include "ops/layout.h"
#include "support/mutant.h"

namespace poptorch::kernels {
namespace {

using Direction = ConvProblem::Direction;

Prepared convolution(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution({first.op(), call.threads});
  }
  return prepare_conv(ConvProblem::forward(call));
}
KERNEL("convolution", convolution)
HALF_KERNEL("convolution", convolution)

// The call for some of the gradients; the other results are empty.
struct SomeGradients {
  ir::Op op;

  SomeGradients(const Call& call, const std::array<bool, 3>& mask) : op(ir::copy_apart(call.op)) {
    op.attrs.set(ir::attr::output_mask, ir::AttrList{mask[0], mask[1], mask[2]});
    for (size_t i = 0; i < 3; ++i) {
      if (!mask[i]) op.result(i)->type = {call.in(1).dtype, {0}, {}};
    }
  }
};

// The kernel of `sum`, over all dimensions of dy but that of the channels.
Prepared bias_gradient(const Call& call) {
  ir::Value dy = *call.op.operand(0);
  if (MUTANT(bias_gradient_is_row_major)) dy.type = {dy.type.dtype, dy.type.sizes, {}};
  ir::Dims dims{0};
  for (int64_t dim = 2; dim < dy.type.rank(); ++dim) dims.push_back(dim);
  ir::Op sum;
  sum.name = ir::op::sum;
  sum.source_location = call.op.source_location;
  sum.operands = {&dy};
  sum.attrs.set(ir::attr::dim, dims);
  sum.results.push_back(std::make_unique<ir::Value>(*call.op.result(2)));
  const Prepared prepared = ops::prepare({sum, call.threads});
  const auto run = [run = prepared.run](const Args& args) {
    run({args.inputs, args.outputs + 2, args.scratch, args.threads});
  };
  return {run, prepared.scratch_bytes};
}

Prepared one_after_the_other(std::vector<Prepared> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  size_t scratch_bytes = 0;
  std::string algorithm;
  for (const Prepared& part : parts) {
    scratch_bytes = std::max(scratch_bytes, part.scratch_bytes);
    if (!algorithm.empty() && !part.algorithm.empty()) algorithm += " ";
    algorithm += part.algorithm;
  }
  const auto run = [parts = std::move(parts)](const Args& args) {
    for (const Prepared& part : parts) part.run(args);
  };
  return {run, scratch_bytes, algorithm};
}

// One of the gradients that a call computes.
struct Part {
  SomeGradients one;
  Call call;
  ConvProblem problem;
  AlgorithmTable<ConvProblem, ConvMethod>::Choice choice;
  const ConvAlgorithm* row;

  Part(const Call& whole, Direction direction, bool is_upcast)
      : one(whole, {direction == Direction::data_gradient, direction == Direction::weight_gradient,
                    false}),
        call{one.op, whole.threads},
        problem(ConvProblem::gradient(call, direction, is_upcast)),
        choice(conv_algorithms().chosen(problem)),
        row(choice.row) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Prepared prepare() const {
    Prepared prepared = row->make.prepare(problem);
    if (row->make.prepare == upcast_convolution) return prepared;  // which has named it
    prepared.algorithm = name(prepared.algorithm.empty() ? choice.text() : prepared.algorithm);
    return prepared;
  }

  std::string name(std::string_view algorithm) const {
    return concat(problem.is(Direction::data_gradient) ? "dx=" : "dw=", algorithm);
  }
};

// What computes the other gradients, and that of the bias. oneDNN, with the weights' gradient, adds
// pixel after pixel for it: after 250,000 of them it is 1e-3 off.
Prepared with_bias_gradient(const Call& call, std::vector<Prepared> prepared) {
  if (call.attrs().get_bools(ir::attr::output_mask)[2]) prepared.push_back(bias_gradient(call));
  return one_after_the_other(std::move(prepared));
}

Prepared each_alone(const Call& call, const std::vector<std::unique_ptr<Part>>& parts) {
  std::vector<Prepared> prepared;
  for (const auto& part : parts) prepared.push_back(part->prepare());
  return with_bias_gradient(call, std::move(prepared));
}

Prepared upcast_convolution_backward(const Call& call);

Prepared upcast(const Call& call, ops::Prepare inner) {
  Prepared prepared = prepare_upcast(call, inner);
  prepared.algorithm = "upcast " + prepared.algorithm;
  return prepared;
}

// Whether one call of PyTorch's for all gradients is cheaper than the parts together, whose
// estimated cost is given: measured, where an estimate may err.
bool is_joint_faster(const ConvProblem& all, const ConvAlgorithm& joint,
                     const std::vector<std::unique_ptr<Part>>& parts, double cost,
                     const Measured*& found) {
  constexpr double near = 2;
  const double joint_cost = conv_algorithms().cost(joint, all);
  const bool is_near = std::max(cost, joint_cost) <= near * std::min(cost, joint_cost);
  const bool are_library = std::all_of(parts.begin(), parts.end(),
                                       [](const auto& part) { return part->row->is_library; });
  const bool has_unit = std::any_of(parts.begin(), parts.end(),
                                    [](const auto& part) { return part->row->is_unit; });
  const std::string key = is_near && !are_library ? measuring_key(all, has_unit) : "";
  if (!key.empty()) {
    std::string apart;
    std::vector<ConvTrialRow> rows{{joint.applies, joint.make.prepare}, {}};
    for (const auto& part : parts) {
      apart += concat(apart.empty() ? "" : "+", part->name(part->row->name));
    }
    rows[1].prepare = [&](const ConvProblem& measured_part) {
      std::vector<Prepared> prepared;
      for (const auto& part : parts) {
        const SomeGradients one(*measured_part.call, {part->problem.is(Direction::data_gradient),
                                                      part->problem.is(Direction::weight_gradient),
                                                      false});
        const Call call{one.op, 1};
        prepared.push_back(part->row->make.prepare(
            ConvProblem::gradient(call, part->problem.direction, all.is_upcast)));
      }
      return one_after_the_other(std::move(prepared));
    };
    found = measured(concat("conv ", key), {std::string(joint.name), apart},
                     [&] { return conv_trials(all, rows); });
    if (found != nullptr) return found->timings[0].algorithm == joint.name;
  }
  return joint_cost <= cost;
}

// All in one call of PyTorch's, or each gradient by an algorithm of its own.
Prepared gradients(const Call& call, bool is_upcast) {
  const std::vector<bool> wanted = call.attrs().get_bools(ir::attr::output_mask);
  std::vector<std::unique_ptr<Part>> parts;
  if (wanted[1]) {
    parts.push_back(std::make_unique<Part>(call, Direction::weight_gradient, is_upcast));
  }
  if (wanted[0]) {
    parts.push_back(std::make_unique<Part>(call, Direction::data_gradient, is_upcast));
  }
  if (parts.empty()) return each_alone(call, parts);
  const auto& table = conv_algorithms();
  double cost = 0;
  bool is_forced = false, are_upcast = true;
  for (const auto& part : parts) {
    cost += table.cost(*part->row, part->problem);
    is_forced = is_forced || table.is_forced(*part->row);
    are_upcast = are_upcast && part->row->make.prepare == upcast_convolution;
  }
  if (are_upcast) return upcast(call, upcast_convolution_backward);
  const SomeGradients without_bias(call, {wanted[0], wanted[1], false});
  const Call joined{without_bias.op, call.threads};
  const ConvProblem all = ConvProblem::gradient(joined, Direction::gradients, is_upcast);
  const ConvAlgorithm* joint = table.cheapest(all);
  const Measured* found = nullptr;
  const bool is_joint =
      joint != nullptr && (table.is_forced(*joint) ||
                           (!is_forced && is_joint_faster(all, *joint, parts, cost, found)));
  if (!is_joint) return each_alone(call, parts);
  Prepared prepared = joint->make.prepare(all);
  const bool is_one = parts.size() == 1 && parts[0]->row->make.form == WeightForm::onednn;
  prepared.algorithm = is_one             ? parts[0]->name(parts[0]->row->name)
                       : found != nullptr ? found->text()
                                          : std::string(joint->name);
  return with_bias_gradient(call, {std::move(prepared)});
}

Prepared upcast_convolution_backward(const Call& call) { return gradients(call, true); }

Prepared convolution_backward(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution_backward({first.op(), call.threads});
  }
  return gradients(call, false);
}
KERNEL("convolution_backward", convolution_backward)
HALF_KERNEL("convolution_backward", convolution_backward)

}  // namespace

Prepared upcast_convolution(const ConvProblem& p) {
  return upcast(*p.call, p.is(Direction::forward) ? convolution : upcast_convolution_backward);
}

}  // namespace poptorch::kernels
