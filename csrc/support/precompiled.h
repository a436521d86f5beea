// The same, with the flags of what each call of a program passes through.
#include "support/standard_library.h"
