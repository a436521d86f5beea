// Reads JSON text, as far as files of compiled models have it. Text that is not JSON, or nested
// deeper than 200 levels, is a user error that names `where`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace poptorch::runtime {

// Text as JSON, with its quotes.
std::string quoted(std::string_view text);

class Json {
 public:
  using List = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  static Json parse(std::string_view text, const std::string& where);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // What it is expected to be; a user error if it is something else.
  bool boolean() const;
  double number() const;  // text stands for what is not finite: "inf"
  int64_t integer() const;
  const std::string& string() const;
  const List& list() const;
  const Object& object() const;
  // The entry of an object.
  const Json& operator[](std::string_view key) const;

 private:
  friend class JsonReader;

  const Json* find(std::string_view key) const;
  [[noreturn]] void fail(const char* expected) const;

  std::variant<std::nullptr_t, bool, double, std::string, List, Object> value_ = nullptr;
  int64_t integer_ = 0;       // of a number without a fraction
  bool is_integer_ = false;
};

}  // namespace poptorch::runtime
