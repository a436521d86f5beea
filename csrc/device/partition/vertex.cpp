#include "device/partition/vertex.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/ceil_div.h"

namespace poptorch::device {

namespace {

double as_double(int64_t n) { return static_cast<double>(n); }

bool is_single_row(const Problem& problem) {
  return std::all_of(problem.field.begin(), problem.field.end(), [](const Field& f) {
    return f.kernel == 1 && f.stride == 1 && f.input_dilation == 1;
  });
}

// One worker on n rows of a 1 x 1 product, less what it keeps between calls.
double row_worker(int64_t n, int64_t item_bytes) {
  if (n == 0) return 0;
  const double kept = 7;
  if (item_bytes == 4) return (n < 3 ? 47 - as_double(2 - n) : 46 + 8 * as_double(n - 3)) - kept;
  if (n == 1) return 31 - kept;
  return (n == 2 ? 40 : 37 + 4 * as_double(n - 3)) - kept;
}

double weight_load(const Method& method, int64_t item_bytes) {
  return as_double(std::min(method.units, method.out_group) * method.in_group * item_bytes) / 8;
}

double amp_single_row(const Method& m, const Share& s, int64_t item_bytes, int64_t workers) {
  const int64_t rows = ceil_div(s.batch * s.outer * s.inner, workers);
  const double passes = as_double(ceil_div(m.out_group, m.units));
  const double pass =
      weight_load(m, item_bytes) + 6.5 + as_double(workers) * row_worker(rows, item_bytes);
  return 50 + as_double(s.conv_groups) *
                  (13 + as_double(s.in_groups) *
                            (15 + as_double(s.out_groups) * (18.5 + passes * pass)));
}

// Rows are shared among the workers; the fullest one has whole rows and a part of one.
template <typename Item>
double rows_worker(int64_t rows, int64_t width, int64_t workers, const Item& item) {
  const int64_t rest = rows % workers;
  double cycles = as_double(rows / workers) * item(width);
  if (rest != 0) {
    const int64_t parts = workers / std::gcd(workers, rest);
    cycles += item(ceil_div(width * (rest / std::gcd(workers, rest)), parts));
  }
  return cycles;
}

double amp_item(int64_t width, int64_t item_bytes) {
  if (width == 0) return 0;
  const double step = item_bytes == 4 ? 8 : 4;
  return (item_bytes == 4 ? 39 : 28) + step * std::max(as_double(width - 3), -1.0);
}

double amp_kernel(const Method& m, const Share& s, const Problem& p, int64_t workers) {
  const int64_t full = p.item_bytes == 4 ? 8 : 16;
  const int64_t height = std::max<int64_t>(1, std::min<int64_t>(4, full / m.in_group));
  const int64_t rows = s.batch * ceil_div(s.outer, p.field[0].input_dilation);
  const int64_t width = ceil_div(s.inner, p.field[1].input_dilation);
  const double passes = as_double(ceil_div(m.out_group, m.units));
  const double start = height == 1 ? 15 : height == 2 ? 46 : 60;
  const double worker =
      17 + rows_worker(rows, width, workers,
                       [&](int64_t part) { return amp_item(part, p.item_bytes); });
  const double pass = weight_load(m, p.item_bytes) * as_double(height) + start + 3 +
                      as_double(workers) * worker;
  const int64_t kernel_rows = ceil_div(s.kernel_outer, height);
  const double kernel =
      as_double(kernel_rows) * (14 + as_double(s.kernel_inner) * (12 + passes * pass));
  const double zero = as_double(s.conv_groups * s.out_groups) *
                      (17 + as_double(m.out_group * s.batch * s.outer * s.inner *
                                      m.partial_bytes) / 8);
  return 109 + zero +
         as_double(s.conv_groups) *
             (14 + as_double(s.in_groups) * (15 + as_double(s.out_groups) * (16 + kernel)));
}

// Cycles of one worker for rows whose elements take `element` each.
double plain_worker(const Share& s, int64_t workers, double row, double element) {
  return 16 + rows_worker(s.batch * s.outer, s.inner, workers, [&](int64_t part) {
           return part == 0 ? 0 : row + as_double(part) * element;
         });
}

double hmac(const Method& m, const Share& s, const Problem& p, int64_t workers) {
  const double vector = p.item_bytes == 4 ? 2 : 4;
  const double element = as_double(s.kernel_outer * s.kernel_inner) *
                         (std::ceil(as_double(m.in_group) / vector) + 10);
  const double worker = as_double(workers) * plain_worker(s, workers, 15, element);
  return 60 + as_double(s.conv_groups) *
                  (23 + as_double(s.in_groups) * (15 + as_double(s.out_groups) * (10 + worker)));
}

double vmac(const Method& m, const Share& s, const Problem&, int64_t workers) {
  const double vectors = as_double(m.conv_group) / 4;
  const double element = as_double(s.kernel_outer * s.kernel_inner) * 2.5 * vectors;
  const double outputs = as_double(s.batch * s.outer * s.inner);
  const double zero_and_reduce = outputs * vectors * 5;
  return 100 + as_double(s.conv_groups) *
                   (25 + as_double(workers) * plain_worker(s, workers, 15, element) +
                    zero_and_reduce);
}

double slic(const Method& m, const Share& s, const Problem& p, int64_t workers) {
  const double blocks = as_double(s.kernel_outer * ceil_div(s.kernel_inner, 4));
  const double element = (m.partial_bytes == 4 ? 2 : 1) * (p.field[1].stride == 2 ? 2 : 1) *
                         std::ceil(as_double(m.conv_group * m.out_group) / 4);
  const double worker = as_double(workers) * plain_worker(s, workers, 20, element);
  return 28 + as_double(s.conv_groups * s.in_groups * s.out_groups) * blocks * (56 + worker);
}

double outer_product(const Share& s, const Problem& p, int64_t workers) {
  const double vector = p.item_bytes == 4 ? 2 : 4;
  const double element = 5 + 2 * std::ceil(as_double(s.out_groups) / vector);
  return 30 + as_double(s.conv_groups) * as_double(workers) *
                  plain_worker(s, workers, 10, element);
}

void add_amp(const Problem& p, const Target& target, std::vector<Method>& out) {
  const bool is_half = p.item_bytes == 2;
  const int64_t full = p.item_bytes == 1 ? 32 : is_half ? 16 : 8;
  const auto add = [&](int64_t in_group, int64_t units, int64_t partial_bytes) {
    for (const int64_t out_group : {int64_t{16}, int64_t{8}}) {
      out.push_back({Vertex::amp, 1, in_group, out_group, std::min(units, out_group),
                     partial_bytes});
    }
  };
  for (int64_t in_group = full; in_group >= (p.item_bytes == 1 ? 32 : full / 4); in_group /= 2) {
    if (p.item_bytes == 1) {
      if (target.units_f8 != 0) add(in_group, target.units_f8, 2);
    } else if (!is_half) {
      add(in_group, target.units_f32, 4);
    } else if (p.partial_bytes == 2) {
      add(in_group, target.units_f16_partials, 2);
    } else {
      add(in_group, target.units_f16, 4);
    }
  }
}

void add_hmac(const Problem& p, std::vector<Method>& out) {
  const int64_t vector = p.item_bytes == 4 ? 2 : 4;
  int64_t groups_before = 0;
  for (int64_t in_group = round_up(p.in_channels, vector); in_group >= vector;
       in_group = std::min(in_group - vector, round_up(in_group / 2, vector))) {
    const int64_t groups = ceil_div(p.in_channels, in_group);
    if (groups == groups_before || groups > 64) continue;
    groups_before = groups;
    out.push_back({Vertex::hmac, 1, in_group, 1, 0, p.partial_bytes});
  }
}

void add_slic(const Problem& p, std::vector<Method>& out) {
  if (p.item_bytes != 2 || p.field[1].stride > 2 || p.field[1].input_dilation != 1 ||
      p.field[1].kernel_dilation != 1 || p.field[1].kernel < 2) {
    return;
  }
  for (const int64_t channels : {1, 2, 4}) {
    if (p.groups % (4 / channels) != 0 || p.in_channels > channels * 4) continue;
    out.push_back({Vertex::slic, 4 / channels, channels, channels, 0, p.partial_bytes});
  }
}

}  // namespace

double Method::row_cycles(int64_t item_bytes) const {
  const double vector = item_bytes == 4 ? 2 : 4;
  switch (vertex) {
    case Vertex::amp: return as_double(ceil_div(out_group, units)) * (item_bytes == 4 ? 8 : 4);
    case Vertex::hmac: return std::ceil(as_double(in_group) / vector);
    case Vertex::vmac: return 2.5 * as_double(conv_group) / 4;
    case Vertex::slic: return 0.25;
    case Vertex::outer: return 2 / vector;
  }
  return 0;
}

std::vector<Method> methods_for(const Problem& p, const Target& target) {
  std::vector<Method> out;
  add_amp(p, target, out);
  add_slic(p, out);
  if (p.in_channels == 1 && p.out_channels == 1 && p.item_bytes == 2) {
    for (const int64_t groups : {4, 8, 16}) {
      if (p.groups >= groups) out.push_back({Vertex::vmac, groups, 1, 1, 0, p.partial_bytes});
    }
  }
  if (p.in_channels == 1 && is_single_row(p)) {
    out.push_back({Vertex::outer, 1, 1, 1, 0, p.partial_bytes});
  }
  if (p.item_bytes != 1) add_hmac(p, out);
  return out;
}

double vertex_cycles(const Method& method, const Share& share, const Problem& problem,
                     const Target& target) {
  switch (method.vertex) {
    case Vertex::amp:
      return is_single_row(problem)
                 ? amp_single_row(method, share, problem.item_bytes, target.workers)
                 : amp_kernel(method, share, problem, target.workers);
    case Vertex::hmac: return hmac(method, share, problem, target.workers);
    case Vertex::vmac: return vmac(method, share, problem, target.workers);
    case Vertex::slic: return slic(method, share, problem, target.workers);
    case Vertex::outer: return outer_product(share, problem, target.workers);
  }
  return 0;
}

double reduce_cycles(double outputs, double depth, double partial_bytes, const Target& target) {
  const double vectors = std::ceil(outputs / 4);
  const auto workers = static_cast<double>(target.workers);
  const bool is_fast = std::fmod(outputs, 4) == 0 && outputs * depth * partial_bytes > 32768;
  if (is_fast) return (2 * (depth - 1) + 8) * vectors + 20;
  return ((3 * depth + 7) * std::ceil(vectors / workers) + 32) * workers;
}

}  // namespace poptorch::device
