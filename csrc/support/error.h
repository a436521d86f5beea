// Errors: one kind for the user's mistakes, one for ours.
//
//   USER_CHECK(cond, parts...)      throws UserError; Python sees poptorch.Error
//   INTERNAL_CHECK(cond, parts...)  throws InternalError with file, line and the condition
//
// The words of a user error have the form `[where] what is wrong: both values. What to do.`
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "support/concat.h"

namespace poptorch {

// `kind`: the Python class that the error is of besides poptorch.Error, if there is one.
struct UserError : std::runtime_error {
  explicit UserError(const std::string& message, std::string kind = "")
      : std::runtime_error(message), kind(std::move(kind)) {}
  std::string kind;
};

// `rule`: what does not hold, without where it was found out and what to do about it.
struct InternalError : std::logic_error {
  explicit InternalError(const std::string& rule, const std::string& more = "")
      : std::logic_error(rule + more), rule(rule) {}
  std::string rule;
};

[[noreturn]] void throw_user_error(const std::string& message);
[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& message);

}  // namespace poptorch

#define USER_CHECK(cond, ...) \
  do { \
    if (!(cond)) ::poptorch::throw_user_error(::poptorch::concat(__VA_ARGS__)); \
  } while (false)

#define INTERNAL_CHECK(cond, ...) \
  do { \
    if (!(cond)) \
      ::poptorch::throw_internal_error(__FILE__, __LINE__, #cond, \
                                       ::poptorch::concat(__VA_ARGS__)); \
  } while (false)
