// Tensors of torch as C++ objects. Only for files that are compiled for each release of torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <vector>

#include "python/bind.h"
#include "run/memory/host_pool.h"
#include "support/error.h"

namespace poptorch::python {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor to_tensor(py::handle object) {
  if (object.is_none()) return {};
  INTERNAL_CHECK(THPVariable_Check(object.ptr()), "a tensor is expected");
  return THPVariable_Unpack(object.ptr());
}

inline Tensors to_tensors(const py::sequence& objects) {
  Tensors tensors;
  tensors.reserve(objects.size());
  for (const py::handle object : objects) tensors.push_back(to_tensor(object));
  return tensors;
}

inline py::object from_tensor(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));  // None if undefined
}

inline py::list from_tensors(const Tensors& tensors) {
  py::list objects(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) objects[i] = from_tensor(tensors[i]);
  return objects;
}

inline c10::ScalarType to_scalar_type(py::handle dtype) {
  INTERNAL_CHECK(THPDtype_Check(dtype.ptr()), "a torch.dtype is expected");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

// An uninitialized tensor, without gaps, for a result of a program; a large one has memory of the
// pool. No operation of torch makes it, so that no mode or recording sees it.
at::Tensor empty_result(run::HostPool& pool, c10::ScalarType dtype, at::IntArrayRef sizes,
                        at::IntArrayRef strides);

}  // namespace poptorch::python
