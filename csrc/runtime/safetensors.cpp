// Reads and writes files of tensors in the safetensors format.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "ir/constants_file.h"
#include "runtime/formats.h"
#include "runtime/json.h"
#include "support/error.h"

namespace poptorch::runtime {

namespace {

View read_entry(const Json& entry, std::string_view data, const std::string& name,
                const std::string& where) {
  View view;
  const std::string& dtype = entry["dtype"].string();
  const std::optional<ir::DType> known = ir::dtype_of_safetensors(dtype);
  USER_CHECK(known, "[load] ", where, ": ", name, " has the type ", dtype,
             ", which poptorch does not have. Convert it to one that it has.");
  view.dtype = *known;
  for (const Json& size : entry["shape"].list()) view.shape.push_back(size.integer());
  const Json::List& range = entry["data_offsets"].list();
  const ir::Type type{view.dtype, view.shape, {}};
  const bool is_range = range.size() == 2 && type.is_sane();
  const int64_t begin = is_range ? range[0].integer() : 0, end = is_range ? range[1].integer() : 0;
  USER_CHECK(is_range && begin >= 0 && end >= begin && end - begin == type.bytes() &&
                 end <= static_cast<int64_t>(data.size()),
             "[load] ", where, ": the data of ", name, " does not fit its shape. Write it again.");
  view.data = reinterpret_cast<const std::byte*>(data.data()) + begin;
  return view;
}

}  // namespace

std::map<std::string, View> read_safetensors(std::string_view bytes, const std::string& where) {
  std::map<std::string, View> found;
  if (bytes.empty()) return found;
  uint64_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  USER_CHECK(bytes.size() >= sizeof size && size <= bytes.size() - sizeof size, "[load] ", where,
             " is not a safetensors file: it has ", bytes.size(), " bytes, its header says ", size,
             ". Give one.");
  const Json header = Json::parse(bytes.substr(sizeof size, size), where);
  for (const auto& [name, entry] : header.object()) {
    if (name == "__metadata__") continue;
    found[name] = read_entry(entry, bytes.substr(sizeof size + size), name, where);
  }
  return found;
}

std::string write_safetensors(const std::vector<std::pair<std::string, View>>& tensors) {
  std::vector<std::pair<std::string, View>> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const int64_t size_a = ir::item_bytes(a.second.dtype), size_b = ir::item_bytes(b.second.dtype);
    return size_a != size_b ? size_a > size_b : a.first < b.first;
  });
  std::string header, data;
  for (const auto& [name, view] : sorted) {
    std::string shape;
    for (const int64_t size : view.shape) shape += concat(shape.empty() ? "" : ",", size);
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(view.data), view.bytes());
    header += concat(header.empty() ? "{" : ",", quoted(name), ":{\"dtype\":\"",
                     ir::safetensors_name(view.dtype), "\",\"shape\":[", shape,
                     "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += header.empty() ? "{}" : "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

}  // namespace poptorch::runtime
