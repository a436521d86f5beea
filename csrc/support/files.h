// Whole files, and lists in one word.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace poptorch {

// The bytes of a file; nothing where it cannot be read.
std::optional<std::string> read_whole(const std::string& path);

// Writes a file, which replaces one of that name; whether all of it could be written.
bool write_whole(const std::string& path, std::string_view bytes);

// Makes a folder and those around it, where they are missing.
void make_folders(const std::string& path);

// From the root: a relative path begins in the present folder.
std::string absolute_path(const std::string& path);

// The parts between separators. After the last separator an empty part does not count.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace poptorch
