#include "support/error.h"

namespace poptorch {

void throw_user_error(const std::string& message) { throw UserError(message); }

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& message) {
  InternalError error("[internal] " + message,
                      concat("\n  condition `", condition, "` failed at ", file, ":", line,
                             ". Please report this with the files that POPTORCH_DUMP_IR=<folder> "
                             "writes."));
  error.rule = message;
  throw error;
}

}  // namespace poptorch
