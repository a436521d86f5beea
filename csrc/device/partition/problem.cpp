#include "device/partition/problem.h"

#include <algorithm>
#include <utility>

#include "support/ceil_div.h"

namespace poptorch::device {

namespace {

bool is_pointwise(const Problem& problem) {
  return std::all_of(problem.field.begin(), problem.field.end(),
                     [](const Field& f) { return f.kernel == 1; });
}

// The result is that of the plain product, with zeros in between.
void defer_dilation(Problem& problem) {
  for (Field& field : problem.field) {
    if (field.input_dilation == 1) continue;
    field.output = field.input;
    field.input_dilation = 1;
    field.is_padded = false;
  }
}

// Batch and output channels, fields and kernels change places.
Problem swapped(const Problem& problem) {
  Problem out = problem;
  std::swap(out.batch, out.out_channels);
  for (Field& field : out.field) {
    // The kernel moves over the output as the input did.
    std::swap(field.input, field.kernel);
    if (field.input == 1 && field.kernel == 1) continue;
    field.kernel = std::max<int64_t>(field.kernel, 1);
    std::swap(field.kernel_dilation, field.input_dilation);
  }
  return out;
}

void expand(Form& form, size_t dim) {
  Problem& problem = form.problem;
  Field& field = problem.field[dim];
  problem.in_channels *= field.kernel;
  field = {field.output, field.output};
  form.rearranges_inputs = true;
  form.rearranges_weights = true;
}

void combine(Form& form, int64_t factor) {
  Problem& problem = form.problem;
  problem.groups = ceil_div(problem.groups, factor);
  problem.in_channels *= factor;
  problem.out_channels *= factor;
  form.rearranges_inputs = form.rearranges_weights = form.rearranges_output = true;
}

void flatten(Problem& problem) {
  for (Field& field : problem.field) {
    if (!field.is_plain()) continue;
    problem.batch *= field.output;
    field = {};
  }
}

void add_combined(const Form& form, std::vector<Form>& out) {
  out.push_back(form);
  flatten(out.back().problem);
  if (form.problem.in_channels > 2 || form.problem.groups == 1) return;
  for (const int64_t factor : {4, 8, 16}) {
    if (factor > form.problem.groups) break;
    Form combined = form;
    combine(combined, factor);
    flatten(combined.problem);
    out.push_back(std::move(combined));
  }
}

void add_expanded(const Form& form, std::vector<Form>& out) {
  for (unsigned chosen = 0; chosen < 4; ++chosen) {
    Form expanded = form;
    bool is_possible = true;
    for (size_t dim = 0; dim < 2; ++dim) {
      if ((chosen >> dim & 1U) == 0) continue;
      const Field& field = form.problem.field[dim];
      is_possible = is_possible && field.kernel > 1 && field.input >= field.kernel;
      if (is_possible) expand(expanded, dim);
    }
    if (is_possible) add_combined(expanded, out);
  }
}

}  // namespace

int64_t Field::inputs_of(int64_t outputs, int64_t positions) const {
  const int64_t span = (outputs - 1) * stride + (positions - 1) * kernel_dilation + 1;
  return std::min(input, ceil_div(span, input_dilation));
}

double Problem::macs() const {
  double macs = static_cast<double>(batch) * static_cast<double>(groups) *
                static_cast<double>(in_channels) * static_cast<double>(out_channels);
  for (const Field& f : field) {
    macs *= static_cast<double>(f.output) * static_cast<double>(f.kernel) /
            static_cast<double>(f.input_dilation);
  }
  return macs;
}

Problem backward_of(const Problem& forward) {
  Problem out = forward;
  out.pass = Pass::backward;
  std::swap(out.in_channels, out.out_channels);
  for (Field& field : out.field) {
    std::swap(field.input, field.output);
    std::swap(field.stride, field.input_dilation);
    field.is_padded = field.is_padded || field.kernel > 1;
  }
  return out;
}

Problem weight_update_of(const Problem& forward) {
  Problem out = forward;
  out.pass = Pass::weight_update;
  std::swap(out.batch, out.in_channels);
  for (Field& field : out.field) {
    std::swap(field.kernel, field.output);
    std::swap(field.stride, field.kernel_dilation);
  }
  return out;
}

std::vector<Form> forms_of(const Problem& problem) {
  std::vector<Form> out;
  Form form{.problem = problem};
  const bool is_update = problem.pass == Pass::weight_update;
  form.rearranges_inputs = is_update || (problem.is_layer && problem.pass == Pass::backward);
  form.rearranges_output = problem.is_layer && is_update;
  if (is_pointwise(form.problem)) defer_dilation(form.problem);
  for (const bool is_swapped : {problem.is_product, !problem.is_product}) {
    Form next = form;
    next.is_swapped = is_swapped;
    if (is_swapped) next.problem = swapped(form.problem);
    if (is_swapped != problem.is_product) {
      next.rearranges_inputs = next.rearranges_weights = next.rearranges_output = true;
    }
    add_expanded(next, out);
  }
  return out;
}

}  // namespace poptorch::device
