#include "support/concat.h"

#include <charconv>

namespace poptorch {

namespace {

void append_number(std::string& out, auto value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace

void TextPart::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::text: out += text_; break;
    case Kind::character: out += character_; break;
    case Kind::integer: append_number(out, integer_); break;
    case Kind::natural: append_number(out, natural_); break;
    case Kind::real: {
      char digits[32];
      constexpr int precision = 6;  // as std::ostream has it
      out.append(digits, std::to_chars(digits, digits + sizeof digits, real_,
                                       std::chars_format::general, precision).ptr);
      break;
    }
  }
}

std::string join(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

}  // namespace poptorch
