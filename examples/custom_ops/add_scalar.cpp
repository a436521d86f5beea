// x + value, for float32 and int32: an attribute without a default, two element types, a cost.
#include <poptorch/custom_op.h>

#include <algorithm>

namespace {

namespace custom = poptorch::custom;

template <typename T>
void add(custom::Call& op) {
  const T value = static_cast<T>(op.attribute<double>("value"));
  const T* x = op.in<T>(0);
  T* out = op.out<T>(0);
  op.parallel_for(op.output(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] + value;
  });
}

void add_scalar(custom::Call& op) {
  op.input(0).dtype() == custom::DType::i32 ? add<int32_t>(op) : add<float>(op);
}

double one_addition_each(const custom::Call& op) {
  return static_cast<double>(op.output(0).numel());
}

// The gradient of x is that of the output: nothing else is read.
void copy(custom::Call& op) {
  const float* gradient = op.in<float>(0);
  std::copy(gradient, gradient + op.input(0).numel(), op.out<float>(0));
}

void like_input(custom::Shape& op) { op.add_output(op.input(0)); }

}  // namespace

POPTORCH_CUSTOM_OP("com.example", "AddScalar", 1)
    .inputs(1)
    .attribute<double>("value")
    .shape(like_input)
    .kernel(add_scalar)
    .cost(one_addition_each)
    .gradient("AddScalarGradient", custom::Reads::nothing);

POPTORCH_CUSTOM_OP("com.example", "AddScalarGradient", 1).inputs(1).shape(like_input).kernel(copy);
