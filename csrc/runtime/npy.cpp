#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "runtime/formats.h"
#include "support/error.h"
#include "support/files.h"

namespace poptorch::runtime {

namespace {

using ir::DType;

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::array<std::pair<std::string_view, DType>, 10> names = {{
    {"b1", DType::boolean}, {"u1", DType::u8}, {"i1", DType::i8}, {"i2", DType::i16},
    {"i4", DType::i32}, {"i8", DType::i64}, {"f2", DType::f16}, {"V2", DType::bf16},
    {"f4", DType::f32}, {"f8", DType::f64}}};

// The parts of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Header {
 public:
  Header(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  // What stands behind a key.
  std::string_view after(std::string_view key) const {
    const size_t at = text_.find(concat("'", key, "':"));
    USER_CHECK(at != std::string_view::npos, "[load] ", path_, " is not a .npy file: its header ",
               "has no ", key, ". Write it with numpy.save.");
    std::string_view rest = text_.substr(at + key.size() + 3);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest;
  }

  DType dtype() const {
    std::string_view text = after("descr");
    const bool is_name = text.starts_with('\'');  // a list: of the fields of a structure
    const std::string name(is_name ? text.substr(1, text.find('\'', 1) - 1)
                                   : text.substr(0, text.find(", 'fortran_order'")));
    const auto row = std::find_if(names.begin(), names.end(), [&](const auto& one) {
      return name.size() == 3 && one.first == name.substr(1);
    });
    USER_CHECK(row != names.end() && name[0] != '>', "[load] ", path_, " has elements of the type ",
               name, ". Save it as bool, uint8, int8 to int64 or float16 to float64, in the order ",
               "of x86.");
    return row->second;
  }

  ir::Dims shape() const {
    std::string_view text = after("shape");
    text = text.substr(0, text.find(')'));
    ir::Dims sizes;
    for (size_t at = 0; at < text.size();) {
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), size);
      if (error == std::errc()) sizes.push_back(size);
      at = error == std::errc() ? static_cast<size_t>(end - text.data()) : at + 1;
    }
    return sizes;
  }

 private:
  std::string_view text_;
  const std::string& path_;
};

// Row-major, of what lies column-major.
Array transposed(const Array& columns) {
  Array rows(columns.dtype, columns.shape);
  const ir::Dims& sizes = columns.shape;
  const auto item = static_cast<size_t>(ir::item_bytes(columns.dtype));
  ir::Dims index(sizes.size(), 0);
  for (int64_t to = 0; to < columns.view().numel(); ++to) {
    int64_t from = 0;
    for (size_t dim = sizes.size(); dim-- > 0;) from = from * sizes[dim] + index[dim];
    std::memcpy(rows.data.data() + static_cast<size_t>(to) * item,
                columns.data.data() + static_cast<size_t>(from) * item, item);
    for (size_t dim = sizes.size(); dim-- > 0 && ++index[dim] == sizes[dim];) index[dim] = 0;
  }
  return rows;
}

}  // namespace

Array read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  USER_CHECK(bytes.size() >= 12 && bytes.starts_with(magic), "[load] ", path,
             " is not a .npy file. Write it with numpy.save.");
  // The header's size has two bytes in version 1, four in later ones.
  const size_t width = bytes[6] == 1 ? 2 : 4, begin = 8 + width;
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 8, width);
  USER_CHECK(size <= bytes.size() - begin, "[load] ", path, " is cut off: its header has ", size,
             " bytes, the file ", bytes.size(), ". Write it again.");
  const Header header(std::string_view(bytes).substr(begin, size), path);
  const ir::Type type{header.dtype(), header.shape(), {}};
  const size_t have = bytes.size() - begin - size;
  USER_CHECK(type.is_sane() && static_cast<size_t>(type.bytes()) == have, "[load] ", path,
             " is cut off or damaged: its header says ", type.text(), ", its data has ", have,
             " bytes. Write it again.");
  Array array(type.dtype, type.sizes);
  std::memcpy(array.data.data(), bytes.data() + begin + size, have);
  return header.after("fortran_order").starts_with("True") ? transposed(array) : array;
}

std::string write_npy(const View& tensor) {
  const auto row = std::find_if(names.begin(), names.end(),
                                [&](const auto& one) { return one.second == tensor.dtype; });
  std::string shape;
  for (const int64_t size : tensor.shape) shape += concat(shape.empty() ? "" : ", ", size);
  if (tensor.shape.size() == 1) shape += ',';
  const bool has_order = ir::item_bytes(tensor.dtype) > 1 && tensor.dtype != DType::bf16;
  const char order = has_order ? '<' : '|';  // as NumPy writes it
  std::string header = concat("{'descr': '", order, row->first, "', 'fortran_order': False, ",
                              "'shape': (", shape, "), }");
  constexpr size_t before = 10, alignment = 64;
  header.resize((before + header.size() + alignment) / alignment * alignment - before, ' ');
  header.back() = '\n';
  const auto size = static_cast<uint16_t>(header.size());
  std::string out = concat(magic, '\1', '\0');
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += header;
  out.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
  return out;
}

void check_folder_of(const std::string& path) {
  const size_t end = path.rfind('/');
  const std::string folder = end == std::string::npos ? "." : path.substr(0, end + 1);
  USER_CHECK(access(folder.c_str(), W_OK | X_OK) == 0, "[save] cannot write ", path,
             ": there is no folder ", folder, " that may be written to. Create it, or change the ",
             "path.");
}

std::string read_file(const std::string& path) {
  std::optional<std::string> bytes = read_whole(path);
  USER_CHECK(bytes.has_value(), "[load] cannot read ", path,
             ". Check that the file exists and may be read.");
  return *std::move(bytes);
}

void write_file(const std::string& path, std::string_view bytes) {
  const std::string beside = concat(path, ".", getpid(), ".part");
  const bool is_written =
      write_whole(beside, bytes) && std::rename(beside.c_str(), path.c_str()) == 0;
  if (!is_written) std::remove(beside.c_str());
  USER_CHECK(is_written, "[save] cannot write ", path,
             ". Check that the folder exists, may be written to and has space for ", bytes.size(),
             " bytes.");
}

}  // namespace poptorch::runtime
