// Large constants next to IR text, in the safetensors format: 8 bytes with the length of a JSON
// header (little endian), the header, the data. Tensors are named by their hashes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace poptorch::ir {

// The format's name of a dtype, and the dtype of a name; none: the IR does not have it.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_of_safetensors(std::string_view name);

// The constants that some op names by hash, as the bytes of a file; empty when there is none.
std::string pack_constants(const Module& module);

// Writes these bytes to a file; no file when there is none. True when written.
bool save_constants(const Module& module, const std::string& path);

// A module without graphs that holds the constants of the file. A file that cannot be read, or is
// not one that save_constants writes, is a user error.
std::unique_ptr<Module> load_constants(const std::string& path);

// Likewise, of bytes; messages call them `path`.
std::unique_ptr<Module> unpack_constants(std::string_view bytes, const std::string& path);

}  // namespace poptorch::ir
