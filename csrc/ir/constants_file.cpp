#include "ir/constants_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "support/error.h"
#include "support/files.h"

namespace poptorch::ir {

namespace {

// In the order of DType.
constexpr std::array<std::string_view, 10> format_names = {"BOOL", "U8",  "I8",   "I16", "I32",
                                                           "I64",  "F16", "BF16", "F32", "F64"};

std::string list_text(const Dims& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) out += concat(i > 0 ? "," : "", numbers[i]);
  return out + ']';
}

std::set<std::string> used_hashes(const Module& module) {
  std::set<std::string> used;
  for (const Op* op : module.all_ops()) {
    const Attr* hash = op->attrs.find(ir::attr::hash);
    if (op->name != op::constant || hash == nullptr) continue;
    const std::string& name = op->attrs.get_string(ir::attr::hash);
    if (module.constants.contains(name)) used.insert(name);
  }
  return used;
}

// Reads the one kind of JSON that the header is: objects of strings, integers and lists of
// integers.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw_user_error(concat("[ir] ", path_, " is not a constants file: ", what, " at byte ",
                            at_ + 8, ". Use the file written with the IR text."));
  }
  bool accept(char wanted) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(concat("expected `", wanted, "`"));
  }
  std::string string() {
    expect('"');
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail("a string has no end");
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  Dims integers() {
    Dims out;
    expect('[');
    if (accept(']')) return out;
    do {
      accept(' ');
      int64_t value = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) fail("expected a number");
      at_ = static_cast<size_t>(end - text_.data());
      out.push_back(value);
    } while (accept(','));
    expect(']');
    return out;
  }

 private:
  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

struct Entry {
  Type type;
  Dims range;
};

Entry read_entry(HeaderReader& in) {
  Entry entry;
  in.expect('{');
  do {
    const std::string key = in.string();
    in.expect(':');
    if (key == "dtype") {
      const std::string name = in.string();
      const std::optional<DType> dtype = dtype_of_safetensors(name);
      if (!dtype) in.fail(concat("unknown dtype ", name));
      entry.type.dtype = *dtype;
    } else if (key == "shape") {
      entry.type.sizes = in.integers();
    } else if (key == "data_offsets") {
      entry.range = in.integers();
    } else {
      in.fail(concat("unknown key ", key));
    }
  } while (in.accept(','));
  in.expect('}');
  return entry;
}

void skip_metadata(HeaderReader& in) {
  in.expect('{');
  if (in.accept('}')) return;
  do {
    in.string();
    in.expect(':');
    in.string();
  } while (in.accept(','));
  in.expect('}');
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return format_names[static_cast<size_t>(dtype)];
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const auto at = std::find(format_names.begin(), format_names.end(), name);
  if (at == format_names.end()) return std::nullopt;
  return static_cast<DType>(at - format_names.begin());
}

std::string pack_constants(const Module& module) {
  const std::set<std::string> hashes = used_hashes(module);
  if (hashes.empty()) return {};
  std::string header;
  int64_t offset = 0;
  for (const std::string& hash : hashes) {
    const Type& type = module.constants.at(hash)->type;
    header += concat(header.empty() ? "{" : ",", "\"", hash, "\":{\"dtype\":\"",
                     safetensors_name(type.dtype), "\",\"shape\":",
                     list_text(type.sizes), ",\"data_offsets\":",
                     list_text({offset, offset + type.bytes()}), "}");
    offset += type.bytes();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const auto size = static_cast<uint64_t>(header.size());
  std::string out(reinterpret_cast<const char*>(&size), sizeof size);
  out.reserve(sizeof size + header.size() + static_cast<size_t>(offset));
  out += header;
  for (const std::string& hash : hashes) {
    const std::vector<std::byte>& bytes = module.constants.at(hash)->bytes;
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

bool save_constants(const Module& module, const std::string& path) {
  const std::string bytes = pack_constants(module);
  if (bytes.empty()) return false;
  USER_CHECK(write_whole(path, bytes), "[ir] cannot write ", path,
             ". Check the folder and the free space.");
  return true;
}

std::unique_ptr<Module> load_constants(const std::string& path) {
  const std::optional<std::string> bytes = read_whole(path);
  USER_CHECK(bytes.has_value(), "[ir] cannot read ", path, ". Check that it exists.");
  return unpack_constants(*bytes, path);
}

std::unique_ptr<Module> unpack_constants(std::string_view bytes, const std::string& path) {
  uint64_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  USER_CHECK(bytes.size() >= 8 && size <= bytes.size() - 8, "[ir] ", path, " has ", bytes.size(),
             " bytes, its header says ", size, ". Use the file written with the IR text.");
  HeaderReader in(bytes.substr(8, size), path);
  const std::string_view data = bytes.substr(8 + size);
  auto module = std::make_unique<Module>();
  in.expect('{');
  do {
    const std::string name = in.string();
    in.expect(':');
    if (name == "__metadata__") {
      skip_metadata(in);
      continue;
    }
    const Entry entry = read_entry(in);
    const bool fits = entry.range.size() == 2 && entry.type.is_sane() && entry.range[0] >= 0 &&
                      entry.range[1] >= entry.range[0] &&
                      entry.range[1] - entry.range[0] == entry.type.bytes() &&
                      entry.range[1] <= static_cast<int64_t>(data.size());
    if (!fits) in.fail(concat("the data of ", name, " does not fit its type"));
    const std::string hash = module->add_constant(entry.type, data.data() + entry.range[0]);
    if (hash != name) in.fail(concat("the data of ", name, " was changed, it has hash ", hash));
  } while (in.accept(','));
  in.expect('}');
  return module;
}

}  // namespace poptorch::ir
