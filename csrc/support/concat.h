// Text of several parts, without streams: those bring a megabyte of locales into a program.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace poptorch {

// What concat() joins: text, numbers as std::ostream prints them, and names that have text().
class TextPart {
 public:
  TextPart(std::string_view text) : kind_(Kind::text), text_(text) {}
  TextPart(const char* text) : TextPart(std::string_view(text)) {}
  TextPart(const std::string& text) : TextPart(std::string_view(text)) {}
  TextPart(char value) : kind_(Kind::character), character_(value) {}
  TextPart(std::signed_integral auto value) : kind_(Kind::integer), integer_(value) {}
  TextPart(std::unsigned_integral auto value) : kind_(Kind::natural), natural_(value) {}
  TextPart(std::floating_point auto value)
      : kind_(Kind::real), real_(static_cast<double>(value)) {}
  template <typename Name>
    requires requires(const Name& name) {
      { name.text() } -> std::same_as<std::string_view>;
    }
  TextPart(const Name& name) : TextPart(name.text()) {}

  void append_to(std::string& out) const;

 private:
  enum class Kind : unsigned char { text, character, integer, natural, real };

  Kind kind_;
  union {
    std::string_view text_;
    char character_;
    long long integer_;
    unsigned long long natural_;
    double real_;
  };
};

std::string join(std::initializer_list<TextPart> parts);

// Joins the printed forms of all parts.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  return join({TextPart(parts)...});
}

}  // namespace poptorch
