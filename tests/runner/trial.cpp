// Calls all of poptorch/runtime.h on the file of a training model: prints the results of one step,
// and what each mistake is answered with.
#include <poptorch/runtime.h>

#include <cstdio>

namespace runtime = poptorch::runtime;

namespace {

runtime::Tensor ones(const runtime::TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t size : info.shape) count *= size;
  runtime::Tensor tensor{info.dtype, info.shape, {}};
  tensor.data.resize(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) tensor.as<float>()[i] = 1;
  return tensor;
}

}  // namespace

int main(int, char** words) {
  std::puts(runtime::Model::load("/no/such/file").error().c_str());
  auto loaded = runtime::Model::load(words[1], 1);
  if (!loaded) return std::puts(loaded.error().c_str()), 1;
  runtime::Model model = std::move(loaded.value());
  std::printf("%d %s\n", model.is_training() ? 1 : 0, model.inputs()[0].name.c_str());

  std::puts(model.run({}).error().c_str());
  runtime::Tensor cut = ones(model.inputs()[0]);
  cut.data.pop_back();
  std::puts(model.run({cut}).error().c_str());

  auto weights = model.weights();
  if (!weights) return 1;
  runtime::Tensor bias = weights.value().at("bias");
  bias.as<float>()[0] = 5;
  if (!model.set_weights({{"bias", bias}})) return 1;
  std::puts(model.set_weights({{"wait", bias}}).error().c_str());

  auto results = model.run({ones(model.inputs()[0])});
  if (!results) return std::puts(results.error().c_str()), 1;
  const auto after = model.weights();
  std::printf("%.9g %.9g\n", static_cast<double>(results.value()[0].as<float>()[0]),
              static_cast<double>(after.value().at("bias").as<float>()[0]));
}
