// poptorch._C: what tests may read about calls of ATen.
#include "kernels/aten/allocator.h"
#include "python/bind.h"

namespace poptorch::python {

void bind_aten(py::module_& module) {
  module.def("aten_allocations", &aten::original_allocations,
             "How often torch's own allocator was called, on any thread of the process, "
             "since the first ATen kernel was prepared.");
}

}  // namespace poptorch::python
