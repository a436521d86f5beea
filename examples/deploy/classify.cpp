// Runs a compiled model on zeros and prints the largest score of each row.
//
//   classify net.poptorch
#include <poptorch/runtime.h>

#include <algorithm>
#include <cstdio>

namespace {

namespace runtime = poptorch::runtime;

int fail(const std::string& words) {
  std::fprintf(stderr, "classify: %s\n", words.c_str());
  return 1;
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return fail("expected the file of a compiled model");
  auto loaded = runtime::Model::load(words[1]);
  if (!loaded) return fail(loaded.error());
  runtime::Model& model = loaded.value();

  std::vector<runtime::Tensor> tensors;
  for (const runtime::TensorInfo& input : model.inputs()) {
    if (input.dtype != runtime::DataType::f32) return fail(input.name + " is not float32");
    runtime::Tensor zeros{input.dtype, input.shape, {}};
    zeros.data.resize(static_cast<size_t>(count_of(input.shape)) * sizeof(float));
    tensors.push_back(zeros);
  }
  auto results = model.run(tensors);
  if (!results) return fail(results.error());

  const runtime::Tensor& scores = results.value()[0];
  const int64_t classes = scores.shape.back(), rows = count_of(scores.shape) / classes;
  for (int64_t row = 0; row < rows; ++row) {
    const float* first = scores.as<float>() + row * classes;
    const float* best = std::max_element(first, first + classes);
    std::printf("row %ld: class %ld, score %.9g\n", static_cast<long>(row),
                static_cast<long>(best - first), static_cast<double>(*best));
  }
}
