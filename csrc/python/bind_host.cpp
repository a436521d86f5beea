// poptorch._C: memory of results, handed to torch as DLPack capsules.
#include <ATen/dlpack.h>
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "ir/type.h"
#include "python/bind.h"
#include "python/host_storage.h"
#include "run/host_pool.h"
#include "run/memory_limit.h"

namespace poptorch::python {

namespace {

using run::HostPool;

// What a capsule's tensor refers to; freed when the tensor is.
struct Result {
  DLManagedTensor managed{};
  std::shared_ptr<HostPool> pool;
  std::vector<int64_t> sizes;
  size_t bytes = 0;
};

void free_result(DLManagedTensor* managed) {
  const std::unique_ptr<Result> result(static_cast<Result*>(managed->manager_ctx));
  result->pool->give_back(managed->dl_tensor.data, result->bytes);
}

// A capsule that was not taken frees its tensor; a taken one has another name.
void free_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  free_result(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
}

DLDataType dlpack_type(ir::DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * ir::item_bytes(dtype));
  uint8_t code = kDLInt;
  switch (dtype) {
    case ir::DType::boolean: code = kDLBool; break;
    case ir::DType::u8: code = kDLUInt; break;
    case ir::DType::bf16: code = kDLBfloat; break;
    default: code = ir::is_float(dtype) ? kDLFloat : kDLInt;
  }
  return {code, bits, 1};
}

py::capsule empty(HostPool& pool, const std::string& dtype_name, std::vector<int64_t> sizes) {
  const ir::DType dtype = to_dtype(py::str(dtype_name));
  auto result = std::make_unique<Result>();
  result->pool = pool.shared_from_this();
  result->sizes = std::move(sizes);
  result->bytes = static_cast<size_t>(ir::Type{dtype, result->sizes, {}}.bytes());
  DLTensor& tensor = result->managed.dl_tensor;
  tensor.data = pool.take(result->bytes);
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int>(result->sizes.size());
  tensor.dtype = dlpack_type(dtype);
  tensor.shape = result->sizes.data();
  result->managed.manager_ctx = result.get();
  result->managed.deleter = free_result;
  DLManagedTensor* managed = &result.release()->managed;
  return py::capsule(managed, "dltensor", free_capsule);
}

}  // namespace

void bind_host(py::module_& module) {
  py::class_<HostPool, std::shared_ptr<HostPool>>(module, "HostPool",
                                                  "Recycled host memory for results.")
      .def(py::init(&HostPool::make))
      .def("expect", &HostPool::expect, py::arg("nbytes"),
           "Announces a result of each call, so that its memory is kept.")
      .def("empty", &empty, py::arg("dtype"), py::arg("sizes"),
           "A DLPack capsule of an uninitialized tensor; its memory is used again once the tensor "
           "is freed.");
  module.def(
      "allow_resizing",
      [](uintptr_t storage) { allow_resizing(storage_at(storage)); }, py::arg("storage"),
      "Lets torch resize a storage, given by its address, whose memory comes from a HostPool.");
  module.def("memory_limit", &run::memory_limit, py::arg("root") = "",
             "Bytes of memory that this process may have, by the files under `root`.");
}

}  // namespace poptorch::python
