// ctc_beam_search_decoder: a beam of prefixes, each with the probability that it is read so far
// with a blank at the end, and with its last label at the end.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b) {
  const double low = std::min(a, b), high = std::max(a, b);
  return low == nothing ? high : high + std::log1p(std::exp(low - high));
}

// A prefix: that of `parent` and one more label. Node 0 is the empty prefix.
struct Node {
  int32_t parent, label, depth;
  int32_t child, sibling;  // first child; next one of the parent's
  int32_t place;           // in the beam; -1: not there
};

struct Beam {
  int32_t node;
  double blank, label, total;  // logarithms of probabilities
};

// A prefix of the next step: that of `node`, or with `label` (>= 0) behind it.
struct Candidate {
  int32_t node, label;
  double blank_end, label_end, total;
};

struct Shape {
  int64_t time, batch, classes;
  int32_t blank;
  int64_t width, top;

  int64_t nodes() const { return time * width + 1; }
  int64_t candidates() const { return width * classes; }
  size_t bytes() const {
    return align_up(nodes() * sizeof(Node)) + align_up(width * sizeof(Beam)) +
           align_up(candidates() * sizeof(Candidate)) +
           align_up(static_cast<size_t>(width * classes));
  }
};

// The search for one sequence, in memory that it is given.
class Search {
 public:
  Search(const Shape& shape, std::byte* memory) : shape_(shape) {
    nodes_ = take<Node>(memory, shape.nodes());
    beam_ = take<Beam>(memory, shape.width);
    candidates_ = take<Candidate>(memory, shape.candidates());
    is_joined_ = take<bool>(memory, shape.width * shape.classes);
  }

  // Ends with the beam in order, the likeliest prefix first. Log-probabilities of a step are
  // `stride` behind those of the step before.
  template <typename T>
  void run(const T* probs, int64_t length, int64_t stride) {
    nodes_[0] = {-1, -1, 0, -1, -1, 0};
    count_ = 1;
    beam_[0] = {0, 0.0, nothing, 0.0};
    size_ = 1;
    for (int64_t t = 0; t < length; ++t) step(probs + t * stride);
  }

  int64_t size() const { return size_; }
  double total(int64_t i) const { return beam_[i].total; }

  // Writes the labels of a prefix, and how many there are.
  int32_t labels(int64_t i, int32_t* out) const {
    const int32_t depth = nodes_[beam_[i].node].depth;
    for (int32_t at = beam_[i].node, left = depth; left-- > 0; at = nodes_[at].parent) {
      out[left] = nodes_[at].label;
    }
    return depth;
  }

 private:
  template <typename T>
  static T* take(std::byte*& memory, int64_t count) {
    T* taken = reinterpret_cast<T*>(memory);
    memory += align_up(static_cast<size_t>(count) * sizeof(T));
    return taken;
  }

  template <typename T>
  void step(const T* probs) {
    found_ = 0;
    std::fill_n(is_joined_, size_ * shape_.classes, false);
    for (int64_t i = 0; i < size_; ++i) add_same(beam_[i], probs);
    for (int64_t i = 0; i < size_; ++i) add_longer(i, probs);
    const int64_t kept = std::min(found_, shape_.width);
    std::partial_sort(candidates_, candidates_ + kept, candidates_ + found_,
                      [this](const Candidate& a, const Candidate& b) { return is_before(a, b); });
    for (int64_t i = 0; i < size_; ++i) nodes_[beam_[i].node].place = -1;
    size_ = kept;
    for (int64_t i = 0; i < kept; ++i) {
      const Candidate& c = candidates_[i];
      beam_[i] = {c.label < 0 ? c.node : child(c.node, c.label), c.blank_end, c.label_end,
                  c.total};
      nodes_[beam_[i].node].place = static_cast<int32_t>(i);
    }
  }

  void add(int32_t node, int32_t label, double blank_end, double label_end) {
    const double total = log_sum(blank_end, label_end);
    if (total == nothing) return;
    candidates_[found_++] = {node, label, blank_end, label_end, total};
  }

  // The same prefix: after a blank, after its last label again, or reached from its parent.
  template <typename T>
  void add_same(const Beam& beam, const T* probs) {
    const Node& node = nodes_[beam.node];
    double label_end = nothing;
    if (node.depth > 0) {
      label_end = beam.label + probs[node.label];
      if (const int32_t place = nodes_[node.parent].place; place >= 0) {
        label_end = log_sum(label_end, longer(beam_[place], node.label) + probs[node.label]);
        is_joined_[place * shape_.classes + node.label] = true;
      }
    }
    add(beam.node, -1, beam.total + probs[shape_.blank], label_end);
  }

  // What a label behind the prefix begins with: the same label needs a blank between.
  double longer(const Beam& beam, int32_t label) const {
    return nodes_[beam.node].label == label ? beam.blank : beam.total;
  }

  template <typename T>
  void add_longer(int64_t i, const T* probs) {
    for (int32_t label = 0; label < shape_.classes; ++label) {
      if (label == shape_.blank || is_joined_[i * shape_.classes + label]) continue;
      add(beam_[i].node, label, nothing, longer(beam_[i], label) + probs[label]);
    }
  }

  int32_t child(int32_t node, int32_t label) {
    for (int32_t at = nodes_[node].child; at >= 0; at = nodes_[at].sibling) {
      if (nodes_[at].label == label) return at;
    }
    const auto made = static_cast<int32_t>(count_++);
    nodes_[made] = {node, label, nodes_[node].depth + 1, -1, nodes_[node].child, -1};
    nodes_[node].child = made;
    return made;
  }

  bool is_before(const Candidate& a, const Candidate& b) const {
    if (a.total != b.total) return a.total > b.total;
    return is_smaller(a, b);
  }

  // Lexicographic order of two different prefixes.
  bool is_smaller(const Candidate& a, const Candidate& b) const {
    const int32_t depth_a = depth(a), depth_b = depth(b);
    const int32_t depth = std::min(depth_a, depth_b);
    Candidate x = cut(a, depth), y = cut(b, depth);
    if (is_same(x, y)) return depth_a < depth_b;
    for (;;) {
      const Candidate up_x = cut(x, this->depth(x) - 1), up_y = cut(y, this->depth(y) - 1);
      if (is_same(up_x, up_y)) {
        return last(x) != last(y) ? last(x) < last(y) : depth_a < depth_b;
      }
      x = up_x, y = up_y;
    }
  }

  int32_t depth(const Candidate& c) const { return nodes_[c.node].depth + (c.label >= 0); }
  int32_t last(const Candidate& c) const { return c.label >= 0 ? c.label : nodes_[c.node].label; }
  static bool is_same(const Candidate& a, const Candidate& b) {
    return a.node == b.node && a.label == b.label;
  }
  // The first `depth` labels.
  Candidate cut(Candidate c, int32_t depth) const {
    if (this->depth(c) > depth) c.label = -1;
    while (this->depth(c) > depth) c.node = nodes_[c.node].parent;
    return c;
  }

  Shape shape_;
  Node* nodes_;
  Beam* beam_;
  Candidate* candidates_;
  bool* is_joined_;  // of a prefix and a label: the longer prefix is in the beam itself
  int64_t count_ = 0, size_ = 0, found_ = 0;
};

template <typename T>
void check_sequence(const T* probs, int64_t length, int64_t stride, const Shape& shape,
                    int64_t entry) {
  USER_CHECK(length >= 0 && length <= shape.time, "[ctc_beam_search_decoder] the length ", length,
             " of sequence ", entry, " is out of range: there are ", shape.time,
             " steps. Give lengths of 0 to ", shape.time, ".");
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t c = 0; c < shape.classes; ++c) {
      const T p = probs[t * stride + c];
      USER_CHECK(p < std::numeric_limits<T>::infinity(), "[ctc_beam_search_decoder] probs hold ",
                 p, " in step ", t, " of sequence ", entry,
                 ". Give logarithms of probabilities, such as those of log_softmax.");
    }
  }
}

Prepared beam_search(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const ir::Dims& sizes = call.in(0).sizes;
    const Shape shape{sizes[0],
                      sizes[1],
                      sizes[2],
                      static_cast<int32_t>(call.attrs().get_int(ir::attr::blank)),
                      call.attrs().get_int(ir::attr::beam_width),
                      call.attrs().get_int(ir::attr::top_paths)};
    const Slots slots(call.threads, shape.batch, Slots::grain, static_cast<int64_t>(shape.bytes()));
    return slots.prepared([shape](const Args& args, const Slot& slot) {
      const auto decode = [&](int64_t entry, Search& search) {
        const int64_t stride = shape.batch * shape.classes, length = args.in<Index>(1)[entry];
        const T* probs = args.in<T>(0) + entry * shape.classes;
        check_sequence(probs, length, stride, shape, entry);
        search.run(probs, length, stride);
        for (int64_t i = 0; i < shape.top; ++i) {
          const int64_t row = entry * shape.top + i;
          int32_t* labels = args.out<int32_t>(2) + row * shape.time;
          const bool is_there = i < search.size();
          const int32_t count = is_there ? search.labels(i, labels) : 0;
          std::fill(labels + count, labels + shape.time, shape.blank);
          args.out<T>(0)[row] = static_cast<T>(is_there ? search.total(i) : nothing);
          args.out<int32_t>(1)[row] = count;
        }
      };
      Search search(shape, slot.scratch);
      for (int64_t entry = slot.begin; entry < slot.end; ++entry) decode(entry, search);
    });
  };
  return with_float_and_index_type(call, call.in(0).dtype, call.in(1).dtype, prepare);
}

KERNEL("ctc_beam_search_decoder", beam_search)

}  // namespace

}  // namespace poptorch::kernels
