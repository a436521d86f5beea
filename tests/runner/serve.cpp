// Threads that call one model of poptorch/runtime.h, and its timeout: serve FILE [TRAINING FILE].
#include <poptorch/runtime.h>

#include <atomic>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

namespace runtime = poptorch::runtime;

namespace {

constexpr int threads = 4, calls = 100;

runtime::Tensor filled(const runtime::TensorInfo& info, float value) {
  int64_t count = 1;
  for (const int64_t size : info.shape) count *= size;
  runtime::Tensor tensor{info.dtype, info.shape, {}};
  tensor.data.resize(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) tensor.as<float>()[i] = value;
  return tensor;
}

}  // namespace

int main(int, char** words) {
  auto loaded = runtime::Model::load(words[1]);
  if (!loaded) return std::puts(loaded.error().c_str()), 1;
  runtime::Model& model = loaded.value();

  std::atomic<int> wrong = 0;
  std::vector<std::thread> workers;
  for (int number = 0; number < threads; ++number) {
    workers.emplace_back([&, number] {
      const runtime::Tensor x = filled(model.inputs()[0], 0.5F * static_cast<float>(number));
      const auto expected = model.run({x});
      for (int i = 0; i < calls; ++i) {
        const auto result = model.run({x});
        if (!result || result.value()[0].data != expected.value()[0].data) ++wrong;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::printf("%d wrong\n", wrong.load());

  const runtime::Tensor x = filled(model.inputs()[0], 1);
  if (!model.set_timeout(1e-6)) return 1;
  const auto late = model.run({x});
  std::printf("%d %s\n", late.is_timeout() ? 1 : 0, late.error().c_str());
  if (!model.set_timeout(std::numeric_limits<double>::infinity())) return 1;
  std::printf("%d %d\n", model.run({x}) ? 1 : 0, model.run({}).is_timeout() ? 1 : 0);
  std::puts(model.set_timeout(0).error().c_str());
  std::puts(runtime::Model::load(words[2]).value().set_timeout(1).error().c_str());
}
