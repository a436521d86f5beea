// The standard library.
#include "support/standard_library.h"
