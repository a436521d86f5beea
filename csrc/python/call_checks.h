// What each call of an executor asks of Python objects and of torch, and what it makes of them.
#pragma once

#include <c10/core/ScalarType.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace poptorch::python {

// The type and the sizes of a dense tensor on the CPU.
class TensorKind {
 public:
  TensorKind(const pybind11::object& dtype, std::vector<int64_t> sizes);

  // Whether an object is such a tensor, and of the class torch.Tensor itself.
  bool matches(pybind11::handle object) const;
  // An uninitialized contiguous one: torch's functions take twice as long, as they read arguments
  // of Python's.
  pybind11::object empty() const;

 private:
  c10::ScalarType dtype_;
  std::vector<int64_t> sizes_;
};

}  // namespace poptorch::python
