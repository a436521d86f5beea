// The same with the flags of kernels.
#include "support/standard_library.h"
