// The standard library, and pybind11.
#include "support/standard_library.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
