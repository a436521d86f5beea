// PyTorch's CPU library, which some algorithms and all opaque ops call. A Python process has loaded
// it. A program of C++ loads it when an op first needs it, and runs without it otherwise.
#pragma once

namespace poptorch {

// Whether it is loaded, or lies where `load_torch` finds it.
bool has_torch();
bool is_torch_loaded();

// Loads it, with libpoptorch_aten.so, unless it is loaded. A user error if it cannot be.
void load_torch();

// A function of it by name, after `load_torch`; nullptr: it has none.
void* torch_function(const char* name);

// Called when libpoptorch_aten.so is loaded, which needs PyTorch's library.
bool note_torch();

}  // namespace poptorch
