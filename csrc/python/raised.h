// For sources that do without pybind11: it takes seconds to compile, however little is used of it.
#pragma once

#include <exception>

namespace poptorch::python {

// Throws the exception that Python has set.
[[noreturn]] void throw_raised();
// Sets in Python what a function of this module raises for an exception.
void set_raised(const std::exception_ptr& error);

}  // namespace poptorch::python
