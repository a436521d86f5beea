// Runs compiled models without Python. C++17; link libpoptorch.so (CMake: find_package(poptorch)).
//
//   auto loaded = poptorch::runtime::Model::load("net.poptorch");
//   if (!loaded) return fail(loaded.error());
//   auto& model = loaded.value();
//   auto results = model.run({image});      // tensors in the order of forward's
//   if (!results) return fail(results.error());
//   const float* scores = results.value()[0].as<float>();
//
// No function throws: what can fail returns a Result. Several threads may use one model: it runs
// one call at a time, and the others wait. Models of one file run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace poptorch::runtime {

enum class DataType : uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

// A row-major tensor with memory of its own.
struct Tensor {
  DataType dtype = DataType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  template <typename T>
  const T* as() const { return reinterpret_cast<const T*>(data.data()); }
  template <typename T>
  T* as() { return reinterpret_cast<T*>(data.data()); }
};

struct TensorInfo {
  std::string name;  // of an argument: its path, as "x"; of a result "output0"
  DataType dtype = DataType::f32;
  std::vector<int64_t> shape;
};

// `[where] what is wrong: both values. What to do.`
struct Error {
  std::string message;
  bool is_timeout = false;  // see Model::set_timeout
};

// A value or an error.
template <typename T>
class Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Error error) : content_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(content_); }
  // Only if there is one.
  T& value() { return std::get<T>(content_); }
  const T& value() const { return std::get<T>(content_); }
  const std::string& error() const { return std::get<Error>(content_).message; }
  bool is_timeout() const {
    const Error* const error = std::get_if<Error>(&content_);
    return error != nullptr && error->is_timeout;
  }

 private:
  std::variant<T, Error> content_;
};

// Of a function that returns nothing.
using Status = Result<std::monostate>;

class Model {
 public:
  // Reads a file that `compileAndExport` or `save` wrote. `threads`: the most that a run uses; 0:
  // as many as Python, a thread for each core. `program`: the name of one in a file that
  // `save_bundle` wrote.
  static Result<Model> load(const std::string& path, int threads = 0,
                            const std::string& program = "");
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  // The tensors of forward's arguments, in their order, and of what it returns.
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;
  bool is_training() const;

  // One call of forward, and for a training model one step of the optimizer. int64 and float64
  // tensors are narrowed to int32 and float32 where the program has these.
  Result<std::vector<Tensor>> run(const std::vector<Tensor>& tensors);

  // Limits how long a call waits for others and runs, in seconds; infinity: no limit. A call that
  // takes longer returns an Error, and the model can run again. poptorch checks the time between
  // operations. An error for a model whose calls change weights or buffers, as training does.
  Status set_timeout(double seconds);

  // The state_dict of the module.
  Result<std::map<std::string, Tensor>> weights() const;
  // Sets some or all tensors of the state_dict.
  Status set_weights(const std::map<std::string, Tensor>& weights);

 private:
  struct Content;
  explicit Model(std::unique_ptr<Content> content);

  std::unique_ptr<Content> content_;
};

}  // namespace poptorch::runtime
