// Reads IR text; ir/text.h has the grammar.
#include <algorithm>
#include <charconv>
#include <limits>

#include "ir/text.h"
#include "support/error.h"

namespace poptorch::ir {

namespace {

// Not functions: as arguments they would be called by address, for each character.
constexpr auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
constexpr auto is_letter = [](char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
};
constexpr auto is_name_char = [](char c) { return is_letter(c) || is_digit(c) || c == '.'; };

// Characters, words and messages: independent of the IR.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(std::string_view expected) const {
    const size_t before = text_.substr(0, at_).rfind('\n');
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n');
    constexpr size_t most_shown = 1000;
    const size_t length = std::min(text_.find('\n', begin) - begin, most_shown);
    const std::string_view whole = text_.substr(begin, length);
    const std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_);
    throw_user_error(concat("[ir text] line ", line, ", column ", at_ - begin + 1, ": expected ",
                            expected, ", found ",
                            at_ == text_.size() ? "the end of the text"
                            : rest.empty()      ? "the end of the line"
                                                : concat("`", rest.substr(0, 30), "`"),
                            ". Correct this line:\n  ", whole));
  }

  // Blanks on this line.
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  // Blanks, empty lines and comment lines.
  void skip_lines() {
    for (skip_blanks(); at_ < text_.size(); skip_blanks()) {
      if (text_.substr(at_, 2) == "//") at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size() || (text_[at_] != '\n' && text_[at_] != '\r')) return;
      ++at_;
    }
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(std::string_view token) {
    skip_blanks();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(concat("`", token, "`"));
  }
  void end_line() {
    skip_blanks();
    if (peek() == '\r') ++at_;
    if (!at_end() && peek() != '\n') fail("the end of the line");
  }
  std::string_view take_while(const auto& test) {
    const size_t begin = at_;
    while (at_ < text_.size() && test(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view name(const char* what) {
    skip_blanks();
    const std::string_view word = take_while(is_name_char);
    if (word.empty()) fail(what);
    return word;
  }
  int64_t integer() {
    skip_blanks();
    const Attr value = number();
    if (const auto* whole = std::get_if<int64_t>(&value.value)) return *whole;
    fail("an integer");
  }
  Attr number();
  std::string quoted();
  // For messages about what was just read.
  size_t position() const { return at_; }
  void back_to(size_t position) { at_ = position; }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

Attr Reader::number() {
  const size_t begin = at_;
  if (accept("-inf")) return -std::numeric_limits<double>::infinity();
  const std::string_view word = take_while(
      [](char c) { return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e'; });
  const char* end = word.data() + word.size();
  int64_t whole = 0;
  const auto as_int = std::from_chars(word.data(), end, whole);
  if (as_int.ec == std::errc() && as_int.ptr == end) return whole;
  double real = 0;
  const auto as_float = std::from_chars(word.data(), end, real);
  const bool too_large = as_int.ec == std::errc::result_out_of_range && as_int.ptr == end;
  if (too_large || as_float.ec != std::errc() || as_float.ptr != end) {
    at_ = begin;
    fail(too_large ? "an integer of 64 bits" : "a number");
  }
  return real;
}

std::string Reader::quoted() {
  expect("\"");
  std::string out;
  while (peek() != '"') {
    const char c = peek();
    if (at_end() || c == '\n') fail("`\"`");
    ++at_;
    if (c != '\\') {
      out += c;
    } else if (peek() == 'n') {
      out += '\n';
      ++at_;
    } else if (peek() == '"' || peek() == '\\') {
      out += text_[at_++];
    } else {
      if (!accept("x")) fail("one of \\n \\\" \\\\ \\x00");
      unsigned code = 0;
      const auto digits = text_.substr(at_, 2);
      const char* end = digits.data() + digits.size();
      const auto result = std::from_chars(digits.data(), end, code, 16);
      if (digits.size() != 2 || result.ptr != end) fail("two hexadecimal digits");
      at_ += 2;
      out += static_cast<char>(code);
    }
  }
  ++at_;
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text), module_(std::make_unique<Module>()) {}

  std::unique_ptr<Module> module() {
    for (in_.skip_lines(); !in_.at_end(); in_.skip_lines()) graph();
    if (module_->graphs.empty()) in_.fail("`graph`");
    return std::move(module_);
  }

 private:
  void graph() {
    in_.expect("graph ");
    const size_t at = in_.position();
    const std::string name(in_.name("the name of the graph"));
    if (module_->find_graph(name) != nullptr) {
      in_.back_to(at);
      in_.fail("a new name, there is a graph of this one already");
    }
    graph_ = module_->add_graph(name);
    values_.clear();
    in_.expect("{");
    in_.end_line();
    for (in_.skip_lines(); !output(); in_.skip_lines()) op();
    in_.end_line();
    in_.skip_lines();
    in_.expect("}");
    in_.end_line();
  }

  // The last line of a graph. An op may have a name that begins with `output`.
  bool output() {
    const size_t at = in_.position();
    if (!in_.accept("output")) return false;
    if (is_name_char(in_.peek())) {
      in_.back_to(at);
      return false;
    }
    in_.skip_blanks();
    if (in_.peek() == '%') graph_->outputs = uses();
    return true;
  }

  void op() {
    std::vector<std::string> names;
    std::vector<size_t> positions;
    if (in_.peek() == '%') {
      do {
        in_.expect("%");
        positions.push_back(in_.position());
        names.emplace_back(in_.name("the name of a value"));
      } while (in_.accept(","));
      in_.expect("=");
    }
    const OpName op_name(in_.name("the name of an op, or `output`"));
    in_.skip_blanks();
    const bool has_operands = in_.peek() == '%' || in_.peek() == '_';
    std::vector<Value*> operands = has_operands ? uses() : std::vector<Value*>();
    Attrs attrs;
    if (in_.accept("{")) attributes(attrs);
    std::vector<Type> types;
    if (!names.empty()) {
      in_.expect(":");
      do {
        if (types.size() == names.size()) in_.fail(concat(names.size(), " types"));
        types.push_back(type());
      } while (in_.accept(","));
      if (types.size() != names.size()) in_.fail(concat(names.size(), " types"));
    }
    SourceLocation where;
    if (in_.accept("//")) where = source_location();
    in_.end_line();
    Op* op = graph_->append(op_name, std::move(operands), std::move(attrs), types,
                            std::move(where), names);
    for (size_t i = 0; i < names.size(); ++i) {
      if (op->result(i)->name != names[i]) {
        in_.back_to(positions[i]);
        in_.fail("a new name, there is a value of this one already");
      }
      values_.emplace(op->result(i)->name, op->result(i));
    }
  }

  std::vector<Value*> uses() {
    std::vector<Value*> out;
    do {
      if (in_.accept("_")) {
        out.push_back(nullptr);
        continue;
      }
      in_.expect("%");
      const size_t at = in_.position();
      const auto value = values_.find(in_.name("the name of a value"));
      if (value == values_.end()) {
        in_.back_to(at);
        in_.fail("a value that is defined above");
      }
      out.push_back(value->second);
    } while (in_.accept(","));
    return out;
  }

  void attributes(Attrs& attrs) {
    do {
      in_.skip_blanks();
      const size_t at = in_.position();
      const std::string_view key = in_.name("the name of an attribute");
      if (attrs.has(key)) {
        in_.back_to(at);
        in_.fail("a new name, there is an attribute of this one already");
      }
      in_.expect("=");
      attrs.set(key, attribute());
    } while (in_.accept(","));
    in_.expect("}");
  }

  // `lists`: those that are open around it.
  Attr attribute(int lists = 0) {
    in_.skip_blanks();
    const size_t at = in_.position();
    const char c = in_.peek();
    if (c == '"') return in_.quoted();
    if (c == '-' || is_digit(c)) return in_.number();
    if (in_.accept("@")) return GraphRef{std::string(in_.name("the name of a graph"))};
    if (in_.accept("[")) {
      if (lists == most_nested_lists) {
        in_.back_to(at);
        in_.fail(concat("no list within ", most_nested_lists, " others"));
      }
      AttrList items;
      if (in_.accept("]")) return items;
      do {
        items.push_back(attribute(lists + 1));
      } while (in_.accept(","));
      in_.expect("]");
      return items;
    }
    if (in_.accept("dtype:")) return dtype();
    const std::string_view word = in_.take_while(is_letter);
    if (word == "none") return {};
    if (word == "true") return true;
    if (word == "false") return false;
    if (word == "inf") return std::numeric_limits<double>::infinity();
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    in_.back_to(at);
    in_.fail("an attribute: none, true, false, a number, \"text\", dtype:f32, @graph or [...]");
  }

  DType dtype() {
    in_.skip_blanks();
    const size_t at = in_.position();
    const std::string_view word = in_.take_while(is_name_char);
    if (!is_dtype_name(word)) {
      in_.back_to(at);
      in_.fail("a dtype, for instance f32");
    }
    return dtype_from_name(word);
  }

  Dims integers(std::string_view close) {
    Dims out;
    if (in_.accept(close)) return out;
    do {
      out.push_back(in_.integer());
    } while (in_.accept(","));
    in_.expect(close);
    return out;
  }

  Type type() {
    const size_t begin = in_.position();
    Type out{dtype(), {}, {}};
    in_.expect("[");
    out.sizes = integers("]");
    const size_t at = in_.position();
    const bool has_strides = in_.accept("(");
    if (has_strides) out.strides = integers(")");
    if (has_strides && out.strides.size() != out.sizes.size()) {
      in_.back_to(at);
      in_.fail(concat(out.sizes.size(), " strides"));
    }
    if (!out.is_sane()) {
      in_.back_to(begin);
      in_.fail("a type of at least 0 and less than 2^47 bytes");
    }
    if (!has_strides) return out;
    out.set_strides(Dims(std::move(out.strides)));
    if (out.strides.empty()) {
      in_.back_to(at);
      in_.fail("no strides, as these are the row-major ones");
    }
    return out;
  }

  std::string word() {
    in_.skip_blanks();
    if (in_.peek() == '"') return in_.quoted();
    return std::string(in_.take_while(
        [](char c) { return c != ' ' && c != ':' && c != '\n' && c != '\r'; }));
  }

  SourceLocation source_location() {
    SourceLocation out;
    out.file = word();
    in_.expect(":");
    out.line = static_cast<int>(in_.integer());
    out.module = word();
    return out;
  }

  Reader in_;
  std::unique_ptr<Module> module_;
  Graph* graph_ = nullptr;
  std::unordered_map<std::string_view, Value*> values_;  // by their names
};

void take_constants(Module& module, const Module& source) {
  for (const Op* op : module.all_ops()) {
    const Attr* hash = op->attrs.find(ir::attr::hash);
    if (hash == nullptr || !std::holds_alternative<std::string>(hash->value)) continue;
    const auto found = source.constants.find(std::get<std::string>(hash->value));
    if (found != source.constants.end()) module.constants.insert(*found);
  }
}

}  // namespace

std::unique_ptr<Module> parse(std::string_view text, const Module* constants_of) {
  std::unique_ptr<Module> module = Parser(text).module();
  if (constants_of != nullptr) take_constants(*module, *constants_of);
  return module;
}

}  // namespace poptorch::ir
