#include "support/torch_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "support/error.h"

namespace poptorch {

namespace {

std::atomic<bool> is_loaded = false;

// `torch2_13` for the torch that is installed next to poptorch; empty: there is none.
std::string installed_release(const std::filesystem::path& packages) {
  std::ifstream file(packages / "torch" / "version.py");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::smatch found;
  const std::regex pattern(R"(__version__ = '(\d+)\.(\d+))");
  if (!std::regex_search(text, found, pattern)) return "";
  return concat("torch", found[1].str(), "_", found[2].str());
}

// That for the torch that is installed, or the first there is: torch's C++ interface differs from
// release to release, so there is a library for each. Empty: there is none.
std::string library_in(const std::filesystem::path& folder) {
  const std::string name = "libpoptorch_aten.so";
  const std::string release = installed_release(folder.parent_path().parent_path());
  if (!release.empty()) {
    const std::filesystem::path file = folder / release / name;
    return exists(file) ? file.string() : "";
  }
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (exists(entry.path() / name)) found.push_back((entry.path() / name).string());
  }
  return found.empty() ? "" : *std::ranges::min_element(found);
}

// In a folder next to libpoptorch.so, which has this function; empty: there is none, or this is
// another file that has the same code.
std::string find_library() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&has_torch), &own) == 0 || own.dli_fname == nullptr) return "";
  const std::string path = own.dli_fname;
  if (!path.ends_with("libpoptorch.so")) return "";
  return library_in(std::filesystem::path(path).parent_path());
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
