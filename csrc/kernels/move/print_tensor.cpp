// print_tensor: the values of a tensor as text on stderr, and the tensor.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/index/rows.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

struct Format {
  std::string title, separator, open, close;
  int64_t edge_items, line_width, digits;
  bool summarises = false;
  std::string number;  // auto, fixed, scientific

  explicit Format(const Call& call) {
    const ir::Attrs& attrs = call.attrs();
    title = attrs.get_string(ir::attr::title);
    separator = attrs.get_string(ir::attr::separator);
    open = attrs.get_string(ir::attr::open_bracket);
    close = attrs.get_string(ir::attr::close_bracket);
    edge_items = attrs.get_int(ir::attr::edge_items);
    line_width = attrs.get_int(ir::attr::max_line_width);
    digits = attrs.get_int(ir::attr::digits);
    number = attrs.get_string(ir::attr::float_format);
    summarises = call.in(0).numel() > attrs.get_int(ir::attr::summarise_threshold);
  }
};

// The text of one tensor.
template <typename T>
class Text {
 public:
  Text(const Format& format, const ir::Dims& sizes, const T* x)
      : format_(format), sizes_(sizes), x_(x) {}

  std::string whole() {
    is_scientific_ = format_.number == "scientific" || (format_.number == "auto" && is_wide());
    if (!format_.title.empty()) out_ = format_.title + ": ";
    if (sizes_.empty()) {
      out_ += number(0);
    } else if (sizes_.size() == 1) {
      out_ += format_.open + "\n ";
      row(0, 1);
      out_ += "\n" + format_.close;
    } else {
      block(0, 0, 0);
    }
    return out_ + "\n";
  }

 private:
  // Whether fixed-point numbers of so many digits would be long.
  bool is_wide() const {
    if constexpr (!std::is_floating_point_v<T>) return false;
    double low = INFINITY, high = 0;
    each_shown(0, 0, [&](int64_t at) {
      const double size = std::abs(static_cast<double>(x_[at]));
      if (size == 0 || !std::isfinite(size)) return;
      low = std::min(low, size), high = std::max(high, size);
    });
    return high > 0 && (high >= std::pow(10.0, static_cast<double>(format_.digits)) ||
                        low < 1e-4);
  }

  // Positions in a dimension, -1 for what is left out.
  std::vector<int64_t> shown(size_t dim) const {
    const int64_t size = sizes_[dim], edge = format_.edge_items;
    const bool is_cut = format_.summarises && size > 2 * edge;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < (is_cut ? edge : size); ++i) places.push_back(i);
    if (is_cut) places.push_back(-1);
    for (int64_t i = size - edge; is_cut && i < size; ++i) places.push_back(i);
    return places;
  }

  void each_shown(size_t dim, int64_t first, const auto& fn) const {
    if (dim == sizes_.size()) return fn(first);
    for (const int64_t place : shown(dim)) {
      if (place >= 0) each_shown(dim + 1, first * sizes_[dim] + place, fn);
    }
  }

  std::string number(int64_t at) const {
    if constexpr (std::is_same_v<T, bool>) {
      return x_[at] ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(x_[at]);
    } else {
      return real(static_cast<double>(x_[at]));
    }
  }

  std::string real(double value) const {
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    char text[400];
    const int digits = static_cast<int>(format_.digits);
    if (is_scientific_) {
      std::snprintf(text, sizeof(text), "%.*e", digits - 1, value);
      return text;
    }
    // Fixed point: as many decimals as make the digits, of the value as it is rounded to them.
    std::snprintf(text, sizeof(text), "%.*e", digits - 1, value);
    const int exponent = std::atoi(std::strchr(text, 'e') + 1);
    std::snprintf(text, sizeof(text), "%.*f", std::max(0, digits - 1 - exponent), value);
    return text;
  }

  // The values of a row behind what stands on the line; wrapped lines begin with some spaces.
  void row(int64_t first, size_t depth) {
    const size_t last = sizes_.size() - 1, indent = std::max<size_t>(depth, 2) + 1;
    const auto places = shown(last);
    for (size_t i = 0; i < places.size(); ++i) {
      std::string item = places[i] < 0 ? "..." : number(first * sizes_[last] + places[i]);
      if (i + 1 < places.size()) item += format_.separator;
      const size_t on_line = out_.size() - (out_.rfind('\n') + 1);
      if (i > 0 && static_cast<int64_t>(on_line + item.size()) > format_.line_width) {
        out_.append("\n").append(indent, ' ');
      }
      out_ += item;
    }
  }

  void block(size_t dim, int64_t first, size_t depth) {
    out_ += format_.open;
    if (dim + 1 == sizes_.size()) {
      row(first, depth + 1);
    } else {
      const auto places = shown(dim);
      for (size_t i = 0; i < places.size(); ++i) {
        out_.append("\n").append(depth + 1, ' ');
        if (places[i] < 0) {
          out_ += "...";
        } else {
          block(dim + 1, first * sizes_[dim] + places[i], depth + 1);
        }
        if (i + 1 < places.size()) out_ += format_.separator;
      }
      out_.append("\n").append(depth, ' ');
    }
    out_ += format_.close;
  }

  const Format& format_;
  const ir::Dims& sizes_;
  const T* x_;
  bool is_scientific_ = false;
  std::string out_;
};

Prepared print_tensor(const Call& call) {
  return with_type(call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    return {[format = Format(call), sizes = call.in(0).sizes,
             bytes = call.in(0).bytes()](const Args& args) {
      const std::string text = Text<T>(format, sizes, args.in<T>(0)).whole();
      std::fwrite(text.data(), 1, text.size(), stderr);  // at once, whatever other threads print
      std::fflush(stderr);
      copy_unless_same(args, bytes);
    }};
  });
}

KERNEL("print_tensor", print_tensor)

}  // namespace

}  // namespace poptorch::kernels
