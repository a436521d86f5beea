// Files of tensors: safetensors and NumPy's .npy. What is not one, or cut off, is a user error that
// names the file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace poptorch::runtime {

// The tensors of a safetensors file, in its memory; `where` names it. No bytes: no tensors.
std::map<std::string, View> read_safetensors(std::string_view bytes, const std::string& where);
// The file, as `safetensors.torch.save_file` orders it: by size of the elements, then by name.
std::string write_safetensors(const std::vector<std::pair<std::string, View>>& tensors);

// The tensor of a .npy file. A type of two bytes that NumPy has no name for (V2) is bfloat16.
Array read_npy(const std::string& path);
std::string write_npy(const View& tensor);

// The bytes of a whole file.
std::string read_file(const std::string& path);
// A user error if the folder of a file that is written later does not exist.
void check_folder_of(const std::string& path);
// Replaces the file in one step, by way of a temporary file next to it.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace poptorch::runtime
