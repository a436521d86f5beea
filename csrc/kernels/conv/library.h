// Convolutions by PyTorch's library, which kernels/aten has and this folder does not see.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/loading/shown.h"

namespace poptorch::kernels {

struct LibraryConvolutions {
  ops::Prepared (*onednn)(const ConvProblem&) = nullptr;
  ops::Prepared (*bf16)(const ConvProblem&) = nullptr;
  ops::Prepared (*no_products)(const ConvProblem&) = nullptr;
  RestOfOutputs (*rest)(const ConvProblem&) = nullptr;
  // Of the op pack_convolution: weights in oneDNN's own form.
  ops::Prepared (*pack)(const ops::Call&) = nullptr;
};

// Loads the library.
const LibraryConvolutions& library_convolutions();

// Called by kernels/aten when it is loaded.
POPTORCH_SHOWN bool set_library_convolutions(const LibraryConvolutions& functions);

}  // namespace poptorch::kernels
