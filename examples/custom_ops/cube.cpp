// The cube of a tensor, element by element, with its gradient.
#include <poptorch/custom_op.h>

namespace {

namespace custom = poptorch::custom;

void cube_shape(custom::Shape& op) {
  custom::check(op.input(0).is_float(), "the input is ", op.input(0).text(),
                ". Give a tensor of floating point.");
  op.add_output(op.input(0));
}

void cube(custom::Call& op) {
  const float* x = op.in<float>(0);
  float* out = op.out<float>(0);
  op.parallel_for(op.output(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] * x[i] * x[i];
  });
}

// Inputs: the gradient of the output, x. Output: the gradient of x.
void cube_gradient_shape(custom::Shape& op) { op.add_output(op.input(1)); }

void cube_gradient(custom::Call& op) {
  const float* gradient = op.in<float>(0);
  const float* x = op.in<float>(1);
  float* out = op.out<float>(0);
  op.parallel_for(op.output(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = 3 * x[i] * x[i] * gradient[i];
  });
}

}  // namespace

POPTORCH_CUSTOM_OP("com.example", "Cube", 1)
    .inputs(1)
    .shape(cube_shape)
    .kernel(cube)
    .gradient("CubeGradient");

POPTORCH_CUSTOM_OP("com.example", "CubeGradient", 1)
    .inputs(2)
    .shape(cube_gradient_shape)
    .kernel(cube_gradient);
