// The standard library, and pybind11.
#include "support/precompiled.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
