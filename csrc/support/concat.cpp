#include "support/concat.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

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
      const int size = std::snprintf(digits, sizeof digits, "%g", real_);
      std::replace(digits, digits + size, ',', '.');  // of the user's locale
      out.append(digits, static_cast<size_t>(size));
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
