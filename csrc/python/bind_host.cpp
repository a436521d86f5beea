// poptorch._C: memory of the host.
#include <pybind11/stl.h>

#include <memory>

#include "python/bind.h"
#include "python/torch_tensors.h"
#include "run/memory/file_map.h"
#include "run/memory/host_pool.h"
#include "run/memory/memory_limit.h"

namespace poptorch::python {

using run::FileMap;
using run::HostPool;

namespace {

std::shared_ptr<FileMap> map_file(int file) {
  std::shared_ptr<FileMap> made = FileMap::of(file);
  if (made != nullptr) return made;
  PyErr_SetFromErrno(PyExc_OSError);
  throw py::error_already_set();
}

py::buffer_info bytes_of(const FileMap& map) {
  return py::buffer_info(reinterpret_cast<uint8_t*>(map.host().begin),
                         static_cast<py::ssize_t>(map.host().bytes()));
}

}  // namespace

void bind_host(py::module_& module) {
  py::class_<FileMap, std::shared_ptr<FileMap>>(
      module, "FileMap", py::buffer_protocol(),
      "The bytes of an open file, mapped: devices read large weights in its pages. The host may "
      "write to them, which does not change the file.")
      .def(py::init(&map_file), py::arg("file"))
      .def_buffer(&bytes_of);
  py::class_<HostPool, std::shared_ptr<HostPool>>(module, "HostPool",
                                                  "Recycled host memory for results.")
      .def(py::init(&HostPool::make))
      .def("expect", &HostPool::expect, py::arg("nbytes"),
           "Announces a result of each call, so that its memory is kept.");
  module.def(
      "allow_resizing", &allow_resizing, py::arg("storage"),
      "Lets torch resize a storage, given by its address, whose memory comes from a FileMap.");
  module.def("memory_limit", &run::memory_limit, py::arg("root") = "",
             "Bytes of memory that this process may have, by the files under `root`.");
}

}  // namespace poptorch::python
