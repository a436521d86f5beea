// Finding the libraries with custom ops among all that the process has loaded.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "ops/custom/custom.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

using OpsOfLibrary = const PoptorchOp* (*)();
constexpr const char* symbol = "poptorch_custom_ops_1";

struct Registry {
  std::mutex mutex;
  unsigned long long loaded = 0;  // libraries that the process had loaded when it was last searched
  std::set<const PoptorchOp*> seen;
  std::vector<std::unique_ptr<CustomOp>> ops;
};

Registry& registry() {
  static auto* built = new Registry;  // kernels may run when statics are destroyed
  return *built;
}

auto key_of(const CustomOp& op) {
  return std::tuple<std::string_view, std::string_view, int32_t, std::string_view>(
      op.abi.domain, op.abi.name, op.abi.version, op.library);
}

void add_ops(Registry& to, const PoptorchOp* first, const std::string& library) {
  for (const PoptorchOp* own = first; own != nullptr;) {
    auto op = std::make_unique<CustomOp>();
    std::memset(&op->abi, 0, sizeof(PoptorchOp));
    std::memcpy(&op->abi, own, std::min<size_t>(own->size, sizeof(PoptorchOp)));
    op->own = own;
    op->library = library;
    own = op->abi.next;
    to.seen.insert(op->own);
    to.ops.push_back(std::move(op));
  }
}

struct Loaded {
  unsigned long long count = 0;  // ever
  std::vector<std::string> paths;
};

Loaded loaded_libraries() {
  Loaded found;
  const auto visit = [](dl_phdr_info* info, size_t, void* user) {
    auto& found = *static_cast<Loaded*>(user);
    found.count = info->dlpi_adds;
    if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
      found.paths.emplace_back(info->dlpi_name);
    }
    return 0;
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

// Under the registry's lock.
void search(Registry& to) {
  const Loaded found = loaded_libraries();
  if (found.count == to.loaded) return;
  for (const std::string& path : found.paths) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const auto ops_of = reinterpret_cast<OpsOfLibrary>(dlsym(library, symbol));
    const PoptorchOp* first = ops_of == nullptr ? nullptr : ops_of();
    // A library shows the ops of those that it is linked with, too.
    if (first == nullptr || to.seen.contains(first)) {
      dlclose(library);
    } else {
      add_ops(to, first, path);  // it stays open: the count of its users never falls to 0
    }
  }
  std::sort(to.ops.begin(), to.ops.end(),
            [](const auto& a, const auto& b) { return key_of(*a) < key_of(*b); });
  to.loaded = found.count;
}

// What there is, in words.
std::string known(std::string_view domain, std::string_view name) {
  std::string same, all;
  for (const CustomOp* op : loaded_custom_ops()) {
    const std::string text = concat(op->title(), " version ", op->abi.version);
    if (name == op->abi.name) same += concat(same.empty() ? "" : ", ", text);
    if (domain == op->abi.domain || domain.empty()) all += concat(all.empty() ? "" : ", ", text);
  }
  if (!same.empty()) return concat("There is ", same, ".");
  return concat("Loaded libraries define ", all.empty() ? "none of this domain" : all, ".");
}

}  // namespace

std::string CustomOp::title() const { return concat(abi.domain, "::", abi.name); }

std::vector<const CustomOp*> loaded_custom_ops() {
  Registry& from = registry();
  const std::lock_guard lock(from.mutex);
  search(from);
  std::vector<const CustomOp*> found;
  for (const auto& op : from.ops) found.push_back(op.get());
  return found;
}

const CustomOp* find_custom_op(std::string_view domain, std::string_view name, int64_t version) {
  const CustomOp* found = nullptr;
  for (const CustomOp* op : loaded_custom_ops()) {
    if (domain != op->abi.domain || name != op->abi.name || version != op->abi.version) continue;
    if (found != nullptr) {
      throw UserError(concat("[custom_op] both ", found->library, " and ", op->library, " have ",
                             op->title(), " in version ", version, ". Load one of them only."),
                      "ImportError");
    }
    found = op;
  }
  if (found == nullptr) return nullptr;
  USER_CHECK(found->abi.shape != nullptr && found->abi.kernel != nullptr, "[", found->title(),
             "] its definition in ", found->library, " has no ",
             found->abi.shape == nullptr ? "shape function" : "kernel", ". Give it one.");
  return found;
}

const CustomOp& custom_op_of(const ir::Op& op) {
  const std::string& domain = op.attrs.get_string(ir::attr::domain);
  const std::string& name = op.attrs.get_string(ir::attr::op);
  const int64_t version = op.attrs.get_int(ir::attr::version);
  const CustomOp* found = find_custom_op(domain, name, version);
  if (found == nullptr) {
    throw UserError(concat("[custom_op] no library that is loaded has the op ", domain, "::", name,
                           " in version ", version, ". ", known(domain, name),
                           " Load its library, with ctypes.cdll.LoadLibrary, before the program is "
                           "compiled or read from a file."),
                    "ImportError");
  }
  return *found;
}

}  // namespace poptorch::ops
