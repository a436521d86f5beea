// The command line of poptorch-run.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace poptorch::program {

// A command line that the program does not take: exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Option {
  std::string_view name;  // with its dashes
  enum Takes { none, one, many };  // many: the values up to the next option
  Takes takes = one;
};

class Arguments {
 public:
  Arguments(const std::vector<std::string>& words, const std::vector<Option>& options);

  const std::vector<std::string>& positional() const { return positional_; }
  bool has(const std::string& option) const { return values_.contains(option); }
  const std::vector<std::string>& all(const std::string& option) const;
  // The value of an option, which must be there unless it has a default.
  const std::string& one(const std::string& option) const;
  // The value of an option; empty if it is not given.
  std::string name(const std::string& option) const { return has(option) ? one(option) : ""; }
  // A number of at least 1.
  int64_t count(const std::string& option, int64_t otherwise) const;
  // A number above 0.
  double number(const std::string& option) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace poptorch::program
