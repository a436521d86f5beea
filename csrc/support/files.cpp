#include "support/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <memory>
#include <utility>

#include "support/concat.h"

namespace poptorch {

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

std::optional<std::string> read_whole(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return std::nullopt;
  std::string bytes;
  struct stat facts = {};
  if (fstat(fileno(file.get()), &facts) == 0) bytes.reserve(static_cast<size_t>(facts.st_size));
  char block[4096];
  while (const size_t count = std::fread(block, 1, sizeof block, file.get())) {
    bytes.append(block, count);
  }
  return std::ferror(file.get()) != 0 ? std::nullopt : std::optional(std::move(bytes));
}

bool write_whole(const std::string& path, std::string_view bytes) {
  File file(std::fopen(path.c_str(), "wbe"));
  if (file == nullptr) return false;
  const bool is_written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  return std::fclose(file.release()) == 0 && is_written;
}

void make_folders(const std::string& path) {
  constexpr mode_t anyone = 0777;
  for (size_t end = 0; end != std::string::npos && end < path.size();) {
    end = path.find('/', end + 1);
    mkdir(path.substr(0, end).c_str(), anyone);
  }
}

std::string absolute_path(const std::string& path) {
  char folder[PATH_MAX];
  if (path.starts_with('/') || getcwd(folder, sizeof folder) == nullptr) return path;
  return concat(folder, "/", path);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return parts;
}

}  // namespace poptorch
