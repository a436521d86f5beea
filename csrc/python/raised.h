// For sources that do without pybind11: it takes seconds to compile, however little is used of it.
#pragma once

namespace poptorch::python {

// Throws the exception that Python has set.
[[noreturn]] void throw_raised();

}  // namespace poptorch::python
