#include "support/loading/torch_library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "support/files.h"

namespace poptorch {

namespace {

std::atomic<bool> is_loaded = false;

// `torch2_13` for the torch that is installed next to poptorch; empty: there is none.
std::string installed_release(const std::string& packages) {
  const std::string text = read_whole(packages + "/torch/version.py").value_or("");
  constexpr std::string_view before = "__version__ = '";
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const std::vector<std::string> numbers = split(text.substr(at + before.size()), '.');
  return numbers.size() < 2 ? "" : concat("torch", numbers[0], "_", numbers[1]);
}

bool is_file(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// That for the torch that is installed, or the first there is: torch's C++ interface differs from
// release to release, so there is a library for each. Empty: there is none.
std::string library_in(const std::string& folder) {
  const std::string name = "/libpoptorch_aten.so";
  const std::string release = installed_release(folder_of(folder_of(folder)));
  if (!release.empty()) {
    const std::string path = concat(folder, "/", release, name);
    return is_file(path) ? path : "";
  }
  std::string first;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return first;
  while (const dirent* entry = readdir(entries)) {
    const std::string path = concat(folder, "/", entry->d_name, name);
    if (is_file(path) && (first.empty() || path < first)) first = path;
  }
  closedir(entries);
  return first;
}

// In a folder next to libpoptorch.so, which has this function; empty: there is none, or this is
// another file that has the same code.
std::string find_library() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&has_torch), &own) == 0 || own.dli_fname == nullptr) return "";
  const std::string path = own.dli_fname;
  if (!path.ends_with("libpoptorch.so")) return "";
  return library_in(folder_of(path));
}

const std::string& library() {
  static const std::string path = find_library();
  return path;
}

}  // namespace

bool is_torch_loaded() { return is_loaded; }

bool has_torch() { return is_loaded || !library().empty(); }

void load_torch() {
  if (is_loaded) return;
  USER_CHECK(!library().empty(), "[torch] the program calls PyTorch's operators, which this build "
             "of poptorch does not have. Use the poptorch-run of the Python package.");
  // For all to see: its functions are looked up by name.
  void* const opened = dlopen(library().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (opened == nullptr) {
    const char* reason = dlerror();
    throw_user_error(concat("[torch] the program calls PyTorch's operators, and PyTorch cannot be "
                            "loaded: ", reason == nullptr ? "" : reason,
                            ". Install a version of torch that poptorch was built for."));
  }
}

void* torch_function(const char* name) {
  load_torch();
  return dlsym(RTLD_DEFAULT, name);
}

bool note_torch() {
  is_loaded = true;
  return true;
}

}  // namespace poptorch
