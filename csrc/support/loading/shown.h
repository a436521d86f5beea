// Libraries show all their functions to each other but those of kernels, where this stands before
// the few that are called from outside.
#pragma once

#define POPTORCH_SHOWN [[gnu::visibility("default")]]
