// Custom ops of random programs, in float32 and float64, with their gradients.
#include <poptorch/custom_op.h>

namespace {

namespace custom = poptorch::custom;

// Calls a kernel for the element type of the first input.
template <template <typename> typename Kernel>
void by_type(custom::Call& op) {
  if (op.input(0).dtype() == custom::DType::f64) return Kernel<double>::run(op);
  Kernel<float>::run(op);
}

// factor x^3
template <typename T>
struct Cube {
  static void run(custom::Call& op) {
    const T* x = op.in<T>(0);
    T* out = op.out<T>(0);
    const T factor = static_cast<T>(op.attribute<double>("factor"));
    op.parallel_for(op.input(0).numel(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = factor * x[i] * x[i] * x[i];
    });
  }
};

template <typename T>
struct CubeGradient {
  static void run(custom::Call& op) {
    const T* grad = op.in<T>(0);
    const T* x = op.in<T>(1);
    T* out = op.out<T>(0);
    const T factor = static_cast<T>(op.attribute<double>("factor"));
    op.parallel_for(op.input(0).numel(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = 3 * factor * x[i] * x[i] * grad[i];
    });
  }
};

// a b, and the sum of a^2 + b^2.
template <typename T>
struct Pair {
  static void run(custom::Call& op) {
    const T* a = op.in<T>(0);
    const T* b = op.in<T>(1);
    T* product = op.out<T>(0);
    double sum = 0;
    for (int64_t i = 0; i < op.input(0).numel(); ++i) {
      product[i] = a[i] * b[i];
      sum += static_cast<double>(a[i]) * a[i] + static_cast<double>(b[i]) * b[i];
    }
    *op.out<T>(1) = static_cast<T>(sum);
  }
};

template <typename T>
struct PairGradient {
  static void run(custom::Call& op) {
    const T* product = op.in<T>(0);
    const T sum = *op.in<T>(1);
    const T* a = op.in<T>(2);
    const T* b = op.in<T>(3);
    T* of_a = op.out<T>(0);
    T* of_b = op.out<T>(1);
    op.parallel_for(op.input(0).numel(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        of_a[i] = product[i] * b[i] + 2 * sum * a[i];
        of_b[i] = product[i] * a[i] + 2 * sum * b[i];
      }
    });
  }
};

void cube_shape(custom::Shape& op) { op.add_output(op.input(0)); }
void cube_gradient_shape(custom::Shape& op) { op.add_output(op.input(1)); }

void pair_shape(custom::Shape& op) {
  op.add_output(op.input(0));
  op.add_output(op.input(0).dtype(), {});
}

void pair_gradient_shape(custom::Shape& op) {
  op.add_output(op.input(2));
  op.add_output(op.input(3));
}

}  // namespace

POPTORCH_CUSTOM_OP("tests.fuzz", "Cube", 1)
    .inputs(1)
    .attribute("factor", 1.0)
    .shape(cube_shape)
    .kernel(by_type<Cube>)
    .gradient("CubeGradient");

POPTORCH_CUSTOM_OP("tests.fuzz", "CubeGradient", 1)
    .inputs(2)
    .attribute("factor", 1.0)
    .shape(cube_gradient_shape)
    .kernel(by_type<CubeGradient>);

POPTORCH_CUSTOM_OP("tests.fuzz", "Pair", 1)
    .inputs(2)
    .shape(pair_shape)
    .kernel(by_type<Pair>)
    .gradient("PairGradient");

POPTORCH_CUSTOM_OP("tests.fuzz", "PairGradient", 1)
    .inputs(4)
    .shape(pair_gradient_shape)
    .kernel(by_type<PairGradient>);
