// The standard library, with the flags of what only compiles programs.
#include "support/standard_library.h"
