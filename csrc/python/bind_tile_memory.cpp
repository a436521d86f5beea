// poptorch._C: the memory of IPUs.
#include <string>

#include "estimate/ipu_memory.h"
#include "python/bind.h"

namespace poptorch::python {

namespace {

py::list ipu_memory(const std::string& text) {
  py::list out;
  for (const estimate::CategoryBytes& bytes : estimate::ipu_memory(text)) {
    py::dict row;
    for (size_t i = 0; i < bytes.size(); ++i) {
      row[estimate::name_of(static_cast<estimate::Category>(i))] = bytes[i];
    }
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_tile_memory(py::module_& module) {
  module.def("ipu_memory", &ipu_memory, py::arg("text"),
             "Bytes by category for each IPU, of a placed program's text.");
}

}  // namespace poptorch::python
