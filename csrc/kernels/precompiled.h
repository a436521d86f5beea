// The same with the flags of kernels.
#include "support/precompiled.h"
