// The sum or the mean of all elements of any number of tensors: several inputs, a scalar output.
#include <poptorch/custom_op.h>

#include <algorithm>
#include <string>

namespace {

namespace custom = poptorch::custom;

// What each element is multiplied by.
double factor(const custom::Arguments& op, int64_t first) {
  const auto kind = op.attribute<std::string>("reduction");
  custom::check(kind == "sum" || kind == "mean", "the reduction is \"", kind,
                "\". Choose \"sum\" or \"mean\".");
  int64_t count = 0;
  for (int64_t i = first; i < op.input_count(); ++i) count += op.input(i).numel();
  return kind == "sum" ? 1.0 : 1.0 / static_cast<double>(count);
}

void reduce_shape(custom::Shape& op) {
  factor(op, 0);
  for (int64_t i = 1; i < op.input_count(); ++i) {
    custom::check(op.input(i).dtype() == op.input(0).dtype(), "input ", i, " is ",
                  op.input(i).text(), ", input 0 is ", op.input(0).text(), ". Cast one of them.");
  }
  op.add_output(op.input(0).dtype(), {});
}

void reduce(custom::Call& op) {
  double sum = 0;
  for (int64_t i = 0; i < op.input_count(); ++i) {
    const float* x = op.in<float>(i);
    for (int64_t k = 0; k < op.input(i).numel(); ++k) sum += x[k];
  }
  op.out<float>(0)[0] = static_cast<float>(sum * factor(op, 0));
}

// Inputs: the gradient of the output, then all inputs. One output for each input.
void gradient_shape(custom::Shape& op) {
  for (int64_t i = 1; i < op.input_count(); ++i) op.add_output(op.input(i));
}

void gradient(custom::Call& op) {
  const float value = static_cast<float>(op.in<float>(0)[0] * factor(op, 1));
  for (int64_t i = 0; i < op.output_count(); ++i) {
    std::fill_n(op.out<float>(i), op.output(i).numel(), value);
  }
}

}  // namespace

POPTORCH_CUSTOM_OP("com.example", "Reduce", 1)
    .inputs(1, -1)
    .attribute("reduction", "sum")
    .shape(reduce_shape)
    .kernel(reduce)
    .gradient("ReduceGradient");

POPTORCH_CUSTOM_OP("com.example", "ReduceGradient", 1)
    .inputs(2, -1)
    .attribute("reduction", "sum")
    .shape(gradient_shape)
    .kernel(gradient);
