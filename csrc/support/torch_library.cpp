#include "support/torch_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "support/error.h"

namespace poptorch {

namespace {

std::atomic<bool> is_loaded = false;

// Beside libpoptorch.so, which has this function; empty: there is none, or this is another file
// that has the same code.
std::string find_library() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&has_torch), &own) == 0 || own.dli_fname == nullptr) return "";
  std::string path = own.dli_fname;
  if (!path.ends_with("libpoptorch.so")) return "";
  path = path.substr(0, path.rfind('/') + 1) + "libpoptorch_aten.so";
  return access(path.c_str(), R_OK) == 0 ? path : "";
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
                            ". Install the version of torch that poptorch was built for."));
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
