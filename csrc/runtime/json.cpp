#include "runtime/json.h"

#include <charconv>
#include <cstdlib>

#include "support/error.h"

namespace poptorch::runtime {

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json whole() {
    Json found = value(0);
    skip_space();
    if (at_ != text_.size()) fail("text after the end");
    return found;
  }

 private:
  static constexpr int most_levels = 200;

  [[noreturn]] void fail(const char* what) const {
    throw_user_error(concat("[load] ", where_, " is not JSON: ", what, " at byte ", at_,
                            ". Export the model again."));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' ||
                                  text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted, const char* what) {
    if (!accept(wanted)) fail(what);
  }

  bool accept_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json value(int level) {
    if (level > most_levels) fail("too many levels");
    skip_space();
    if (at_ >= text_.size()) fail("expected a value");
    Json found;
    const char first = text_[at_];
    if (first == '{') {
      found.value_ = object(level);
    } else if (first == '[') {
      found.value_ = list(level);
    } else if (first == '"') {
      found.value_ = string();
    } else if (accept_word("true")) {
      found.value_ = true;
    } else if (accept_word("false")) {
      found.value_ = false;
    } else if (!accept_word("null")) {
      read_number(found);
    }
    return found;
  }

  Json::List list(int level) {
    Json::List found;
    expect('[', "expected [");
    if (accept(']')) return found;
    do {
      found.push_back(value(level + 1));
    } while (accept(','));
    expect(']', "expected ]");
    return found;
  }

  Json::Object object(int level) {
    Json::Object found;
    expect('{', "expected {");
    if (accept('}')) return found;
    do {
      skip_space();
      std::string key = string();
      expect(':', "expected :");
      found.emplace_back(std::move(key), value(level + 1));
    } while (accept(','));
    expect('}', "expected }");
    return found;
  }

  void read_number(Json& found) {
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    double number = 0;
    const auto [after, error] = std::from_chars(begin, end, number);
    if (error != std::errc() || !(*begin == '-' || (*begin >= '0' && *begin <= '9'))) {
      fail("expected a value");
    }
    found.value_ = number;
    const auto [last, not_whole] = std::from_chars(begin, end, found.integer_);
    found.is_integer_ = not_whole == std::errc() && last == after;
    at_ += static_cast<size_t>(after - begin);
  }

  std::string string() {
    if (at_ >= text_.size() || text_[at_] != '"') fail("expected a string");
    std::string found;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) fail("a string without an end");
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\') {
        ++at_;
        escape(found);
      } else {
        found += text_[at_];
      }
    }
    ++at_;
    return found;
  }

  // At the character after the backslash; leaves the last one of the escape to the caller.
  void escape(std::string& to) {
    if (at_ >= text_.size()) fail("a string without an end");
    constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    if (const size_t known = names.find(text_[at_]); known != std::string_view::npos) {
      to += values[known];
      return;
    }
    uint32_t code = unit();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_ + 1).starts_with("\\u")) {
      at_ += 2;
      code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
    }
    append(to, code);
  }

  uint32_t unit() {
    if (text_[at_] != 'u' || at_ + 4 >= text_.size()) fail("an unknown escape");
    uint32_t code = 0;
    const char* begin = text_.data() + at_ + 1;
    if (std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4) fail("an unknown escape");
    at_ += 4;
    return code;
  }

  static void append(std::string& to, uint32_t code) {
    const auto add = [&](uint32_t byte) { to += static_cast<char>(byte); };
    if (code < 0x80) return add(code);
    if (code < 0x800) {
      add(0xC0 | code >> 6);
    } else {
      if (code < 0x10000) {
        add(0xE0 | code >> 12);
      } else {
        add(0xF0 | (code >> 18 & 0x07));
        add(0x80 | (code >> 12 & 0x3F));
      }
      add(0x80 | (code >> 6 & 0x3F));
    }
    add(0x80 | (code & 0x3F));
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20) {
      out += concat("\\u00", digits[code >> 4], digits[code & 15]);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

Json Json::parse(std::string_view text, const std::string& where) {
  return JsonReader(text, where).whole();
}

void Json::fail(const char* expected) const {
  throw_user_error(concat("[load] an entry of the file is not ", expected,
                          ". Export the model again."));
}

bool Json::boolean() const {
  const auto* found = std::get_if<bool>(&value_);
  if (found == nullptr) fail("true or false");
  return *found;
}

double Json::number() const {
  if (const auto* text = std::get_if<std::string>(&value_)) {
    return std::strtod(text->c_str(), nullptr);
  }
  const auto* found = std::get_if<double>(&value_);
  if (found == nullptr) fail("a number");
  return *found;
}

int64_t Json::integer() const {
  if (!is_integer_) fail("a whole number");
  return integer_;
}

const std::string& Json::string() const {
  const auto* found = std::get_if<std::string>(&value_);
  if (found == nullptr) fail("a string");
  return *found;
}

const Json::List& Json::list() const {
  const auto* found = std::get_if<List>(&value_);
  if (found == nullptr) fail("a list");
  return *found;
}

const Json::Object& Json::object() const {
  const auto* found = std::get_if<Object>(&value_);
  if (found == nullptr) fail("an object");
  return *found;
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  USER_CHECK(found != nullptr, "[load] the file has no entry ", key,
             ". Export the model again with this version of poptorch.");
  return *found;
}

}  // namespace poptorch::runtime
