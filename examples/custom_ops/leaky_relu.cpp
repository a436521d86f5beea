// x where it is positive, and alpha * x elsewhere: an op with an attribute and a gradient.
#include <poptorch/custom_op.h>

namespace {

namespace custom = poptorch::custom;

void leaky_relu_shape(custom::Shape& op) {
  custom::check(op.attribute<float>("alpha") >= 0, "alpha is ", op.attribute<float>("alpha"),
                ". Give a number that is not negative.");
  op.add_output(op.input(0));
}

void leaky_relu(custom::Call& op) {
  const float alpha = op.attribute<float>("alpha");
  const float* x = op.in<float>(0);
  float* out = op.out<float>(0);
  op.parallel_for(op.output(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] > 0 ? x[i] : alpha * x[i];
  });
}

// Inputs: the gradient of the output, x. Output: the gradient of x. Same attribute.
void leaky_relu_gradient(custom::Call& op) {
  const float alpha = op.attribute<float>("alpha");
  const float* gradient = op.in<float>(0);
  const float* x = op.in<float>(1);
  float* out = op.out<float>(0);
  op.parallel_for(op.output(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] > 0 ? gradient[i] : alpha * gradient[i];
  });
}

}  // namespace

POPTORCH_CUSTOM_OP("com.example", "LeakyRelu", 1)
    .inputs(1)
    .attribute("alpha", 0.01)
    .shape(leaky_relu_shape)
    .kernel(leaky_relu)
    .gradient("LeakyReluGradient");

POPTORCH_CUSTOM_OP("com.example", "LeakyReluGradient", 1)
    .inputs(2)
    .attribute("alpha", 0.01)
    .shape([](custom::Shape& op) { op.add_output(op.input(1)); })
    .kernel(leaky_relu_gradient);
