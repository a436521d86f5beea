#include "program/arguments.h"

#include <algorithm>
#include <charconv>

#include "support/error.h"

namespace poptorch::program {

Arguments::Arguments(const std::vector<std::string>& words, const std::vector<Option>& options) {
  std::vector<std::string>* target = &positional_;
  Option::Takes takes = Option::many;
  const auto add = [&](const std::string& value) {
    target->push_back(value);
    if (takes == Option::many) return;
    target = &positional_;
    takes = Option::many;
  };
  for (const std::string& word : words) {
    if (!word.starts_with("--")) {
      add(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& one) { return one.name == name; });
    if (option == options.end()) throw UsageError(concat("there is no option ", name));
    if (values_.contains(name)) throw UsageError(concat(name, " is given twice"));
    const bool has_value = equals != std::string::npos;
    if (option->takes == Option::none) {
      if (has_value) throw UsageError(concat(name, " takes no value"));
      values_[name].push_back("");
      target = &positional_;
      takes = Option::many;
      continue;
    }
    target = &values_[name];
    takes = option->takes;
    if (!has_value) continue;
    takes = Option::one;
    add(word.substr(equals + 1));
  }
  for (const auto& [name, values] : values_) {
    if (values.empty()) throw UsageError(concat(name, " needs a value"));
  }
}

const std::vector<std::string>& Arguments::all(const std::string& option) const {
  const auto found = values_.find(option);
  if (found == values_.end()) throw UsageError(concat(option, " is missing"));
  return found->second;
}

const std::string& Arguments::one(const std::string& option) const { return all(option)[0]; }

int64_t Arguments::count(const std::string& option, int64_t otherwise) const {
  if (!has(option)) return otherwise;
  const std::string& text = one(option);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int64_t most = 1 << 30;
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
    throw UsageError(concat(option, " is ", text, ", expected a whole number of at least 1"));
  }
  return value;
}

double Arguments::number(const std::string& option) const {
  const std::string& text = one(option);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) {
    throw UsageError(concat(option, " is ", text, ", expected a number above 0"));
  }
  return value;
}

}  // namespace poptorch::program
