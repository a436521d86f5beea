// Ops that the tests need and no program: each does one thing wrong, or shows what it is given.
#include <poptorch/custom_op.h>

#include <algorithm>
#include <stdexcept>

namespace {

namespace custom = poptorch::custom;

void like_input(custom::Shape& op) { op.add_output(op.input(0)); }

void copy(custom::Call& op) {
  const float* x = op.in<float>(0);
  std::copy(x, x + op.input(0).numel(), op.out<float>(0));
}

// Throws where the first element is negative.
void throwing(custom::Call& op) {
  if (op.in<float>(0)[0] < 0) throw std::runtime_error("the first element is negative");
  copy(op);
}

void throwing_in_parts(custom::Call& op) {
  const float* x = op.in<float>(0);
  op.parallel_for(op.input(0).numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      custom::check(x[i] >= 0, "element ", i, " is ", x[i], ".");
      op.out<float>(0)[i] = x[i];
    }
  }, 1);
}

void throwing_an_int(custom::Call&) { throw 3; }

// Where each element's part began.
void parts(custom::Call& op) {
  op.parallel_for(op.output(0).numel(), [&](int64_t begin, int64_t end) {
    std::fill(op.out<float>(0) + begin, op.out<float>(0) + end, static_cast<float>(begin));
  });
}

// The bytes of the strings and the numbers of all attributes.
void shown_shape(custom::Shape& op) {
  int64_t count = static_cast<int64_t>(op.attribute<std::string>("text").size()) + 2;
  count += static_cast<int64_t>(op.attribute<std::vector<double>>("floats").size());
  count += static_cast<int64_t>(op.attribute<std::vector<int64_t>>("ints").size());
  for (const auto& text : op.attribute<std::vector<std::string>>("texts")) {
    count += static_cast<int64_t>(text.size()) + 1;
  }
  op.add_output(custom::DType::f32, {count});
}

void shown(custom::Call& op) {
  float* out = op.out<float>(0);
  const auto add = [&](double value) { *out++ = static_cast<float>(value); };
  const auto add_text = [&](const std::string& text) {
    for (const unsigned char letter : text) add(letter);
  };
  add(op.attribute<double>("number"));
  add(static_cast<double>(op.attribute<int64_t>("count")));
  add_text(op.attribute<std::string>("text"));
  for (const double value : op.attribute<std::vector<double>>("floats")) add(value);
  for (const int64_t value : op.attribute<std::vector<int64_t>>("ints")) {
    add(static_cast<double>(value));
  }
  for (const auto& text : op.attribute<std::vector<std::string>>("texts")) {
    add_text(text);
    add(-1);
  }
}

// 1 for each element: the kernel was given the 16-bit type itself.
void is_half(custom::Call& op) {
  const bool is_one = op.input(0).dtype() == custom::DType::bf16;
  std::fill_n(op.out<uint16_t>(0), op.output(0).numel(), is_one ? 0x3f80 : 0x3c00);
}

// The square and the sign (int32) of x; its gradient reads the outputs.
void square_shape(custom::Shape& op) {
  op.add_output(op.input(0));
  op.add_output(custom::DType::i32, op.input(0).sizes());
}

void square(custom::Call& op) {
  const float* x = op.in<float>(0);
  for (int64_t i = 0; i < op.input(0).numel(); ++i) {
    op.out<float>(0)[i] = x[i] * x[i];
    op.out<int32_t>(1)[i] = (x[i] > 0) - (x[i] < 0);
  }
}

void square_gradient(custom::Call& op) {
  const float* gradient = op.in<float>(0);
  const float* x = op.in<float>(2);
  for (int64_t i = 0; i < op.input(0).numel(); ++i) op.out<float>(0)[i] = 2 * x[i] * gradient[i];
}

}  // namespace

#define TRIAL(name) POPTORCH_CUSTOM_OP("trial", name, 1)

TRIAL("Throwing").inputs(1).shape(like_input).kernel(throwing);
TRIAL("ThrowingInParts").inputs(1).shape(like_input).kernel(throwing_in_parts);
TRIAL("ThrowingAnInt").inputs(1).shape(like_input).kernel(throwing_an_int);
TRIAL("NoKernel").inputs(1).shape(like_input);
TRIAL("NoOutput").inputs(1).shape([](custom::Shape&) {}).kernel(copy);
TRIAL("Huge").inputs(1).kernel(copy).shape([](custom::Shape& op) {
  op.add_output(custom::DType::f32, {int64_t{1} << 40, int64_t{1} << 40});
});
TRIAL("ReadsWrongType").inputs(1).shape(like_input).kernel([](custom::Call& op) {
  op.in<int32_t>(0);
});
TRIAL("Counted").inputs(1).attribute("count", 7).kernel(copy).shape([](custom::Shape& op) {
  op.add_output(op.input(0).dtype(), {op.attribute<int>("count")});
});
TRIAL("NoSuchGradient").inputs(1).shape(like_input).kernel(copy).gradient("Absent");
TRIAL("WrongGradient").inputs(1).shape(like_input).kernel(copy).gradient("Scalar");
TRIAL("Scalar").shape([](custom::Shape& op) { op.add_output(op.input(0).dtype(), {}); })
    .kernel(copy);
TRIAL("Parts").shape(like_input).kernel(parts);
TRIAL("CheapParts").shape(like_input).kernel(parts).cost([](const custom::Call&) { return 1.0; });
TRIAL("DearParts").shape(like_input).kernel(parts).cost([](const custom::Call&) { return 1e9; });
TRIAL("WrongCost").shape(like_input).kernel(parts).cost([](const custom::Call&) { return -2.0; });
TRIAL("Shown").attribute("number", 0.5).attribute("count", 7).attribute("text", "")
    .attribute("floats", std::vector<double>{1.5}).attribute("ints", std::vector<int64_t>{})
    .attribute("texts", std::vector<std::string>{}).shape(shown_shape).kernel(shown);
TRIAL("IsHalf").inputs(1).shape(like_input).kernel(is_half, true);
TRIAL("Square").inputs(1).shape(square_shape).kernel(square)
    .gradient("SquareGradient", custom::Reads::inputs);
TRIAL("SquareGradient").inputs(3).shape(like_input).kernel(square_gradient);
TRIAL("Root").inputs(1).shape(like_input).gradient("RootGradient", custom::Reads::outputs)
    .kernel([](custom::Call& op) {
      const float* x = op.in<float>(0);
      for (int64_t i = 0; i < op.input(0).numel(); ++i) op.out<float>(0)[i] = __builtin_sqrtf(x[i]);
    });
TRIAL("RootGradient").inputs(2).shape(like_input).kernel([](custom::Call& op) {
  const float* gradient = op.in<float>(0);
  const float* root = op.in<float>(1);
  for (int64_t i = 0; i < op.input(0).numel(); ++i) {
    op.out<float>(0)[i] = gradient[i] / (2 * root[i]);
  }
});
