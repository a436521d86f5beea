// All loops of rows.h, for the T and V that the including namespace defines (see lanes.inl).
#include "kernels/rows/lanes.inl"
#include "kernels/rows/softmax.inl"
#include "kernels/rows/norm.inl"
#include "kernels/rows/batch_norm.inl"
#include "kernels/rows/loss.inl"
#include "kernels/rows/attention.inl"
#include "kernels/rows/table.inl"
