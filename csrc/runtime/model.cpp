// The interface without exceptions.
#include <poptorch/runtime.h>

#include <cstring>
#include <exception>
#include <mutex>

#include "runtime/program.h"
#include "support/error.h"

namespace poptorch::runtime {

struct Model::Content {
  Program program;
  std::vector<TensorInfo> inputs, outputs;
  std::timed_mutex mutex;  // a run sees all weights of set_weights, or none

  Content(const std::string& path, const std::string& name, int threads)
      : program(path, name, threads) {}
};

namespace {

DataType public_type(ir::DType dtype) { return static_cast<DataType>(dtype); }

View view_of(const Tensor& tensor) {
  return {static_cast<ir::DType>(tensor.dtype), tensor.shape, tensor.data.data()};
}

Tensor tensor_of(Array array) {
  return {public_type(array.dtype), std::move(array.shape), std::move(array.data)};
}

void check_size(const Tensor& tensor, const std::string& name) {
  const View view = view_of(tensor);
  const bool is_sane = ir::Type{view.dtype, view.shape, {}}.is_sane();
  USER_CHECK(is_sane && tensor.data.size() == view.bytes(), "[arguments] ", name, " has ",
             tensor.data.size(), " bytes for the shape ", view.text(), ". Give it all its data.");
}

// What `fn` returns, or its exception as an Error.
template <typename T, typename Fn>
Result<T> guarded(const Fn& fn) noexcept {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return Error{"[run] the system has no memory left. Use a smaller model or batch."};
  } catch (const UserError& error) {
    return Error{error.what(), error.kind == "TimeoutError"};
  } catch (const std::exception& error) {
    return Error{error.what()};
  } catch (...) {
    return Error{"[run] an unknown error. Please report this."};
  }
}

}  // namespace

Model::Model(std::unique_ptr<Content> content) : content_(std::move(content)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::load(const std::string& path, int threads, const std::string& program) {
  return guarded<Model>([&] {
    auto content = std::make_unique<Content>(path, program, threads);
    for (const Document::Input& input : content->program.inputs()) {
      content->inputs.push_back({input.name, public_type(input.dtype), input.shape});
    }
    for (size_t i = 0; i < content->program.result_count(); ++i) {
      const View type = content->program.result_type(i);
      content->outputs.push_back(
          {"output" + std::to_string(i), public_type(type.dtype), type.shape});
    }
    return Model(std::move(content));
  });
}

const std::vector<TensorInfo>& Model::inputs() const { return content_->inputs; }
const std::vector<TensorInfo>& Model::outputs() const { return content_->outputs; }
bool Model::is_training() const { return content_->program.is_training(); }

Result<std::vector<Tensor>> Model::run(const std::vector<Tensor>& tensors) {
  return guarded<std::vector<Tensor>>([&] {
    std::vector<View> views;
    for (size_t i = 0; i < tensors.size(); ++i) {
      check_size(tensors[i], "tensor " + std::to_string(i));
      views.push_back(view_of(tensors[i]));
    }
    run::Deadline deadline = content_->program.executable().deadline();
    const auto lock = deadline.lock(content_->mutex);
    std::vector<Tensor> results;
    for (Array& array : content_->program.run(views, deadline)) {
      results.push_back(tensor_of(std::move(array)));
    }
    return results;
  });
}

Status Model::set_timeout(double seconds) {
  return guarded<std::monostate>([&] {
    content_->program.set_timeout(seconds);
    return std::monostate();
  });
}

Result<std::map<std::string, Tensor>> Model::weights() const {
  return guarded<std::map<std::string, Tensor>>([&] {
    const std::lock_guard lock(content_->mutex);
    std::map<std::string, Tensor> found;
    for (auto& [name, array] : content_->program.weights()) found[name] = tensor_of(array);
    return found;
  });
}

Status Model::set_weights(const std::map<std::string, Tensor>& weights) {
  return guarded<std::monostate>([&] {
    std::map<std::string, View> views;
    for (const auto& [name, tensor] : weights) {
      check_size(tensor, name);
      views[name] = view_of(tensor);
    }
    const std::lock_guard lock(content_->mutex);
    content_->program.set_weights(views, "weights");
    return std::monostate();
  });
}

}  // namespace poptorch::runtime
