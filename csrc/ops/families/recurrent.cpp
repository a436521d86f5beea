// Recurrent layers: one layer, one direction. x is [time, batch, input], states are [batch,
// hidden], gates lie side by side in the rows of the weights in torch's order. `reserve` keeps what
// the gradient needs (`keep` false: it is empty), dx is empty where it is not wanted.
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

struct Sizes {
  int64_t time, batch, input, hidden;
};

void expect(const InferInput& in, const char* name, const ir::Type& type, const ir::Dims& sizes) {
  USER_CHECK(type.sizes == sizes, "[", in.op.name, "] ", name, " is ", type.text(), ", expected ",
             ir::Type{type.dtype, sizes, {}}.text(),
             ". Sizes are [time, batch, input] and [batch, hidden].");
}

// Checks x, the states and the weights; `first` is the position of x, `states` how many follow it.
Sizes check_layer(const InferInput& in, size_t first, size_t states, int64_t gates) {
  const ir::Type& x = in.operand(first);
  const ir::Type& h0 = in.operand(first + 1);
  USER_CHECK(x.rank() == 3 && h0.rank() == 2, "[", in.op.name, "] x is ", x.text(), ", h0 is ",
             h0.text(), ". Use [time, batch, input] and [batch, hidden].");
  const Sizes s{x.sizes[0], x.sizes[1], x.sizes[2], h0.sizes[1]};
  USER_CHECK(s.time > 0, "[", in.op.name, "] x is ", x.text(),
             ": a sequence of 0 steps. Give it one step at least.");
  for (size_t i = 0; i < states; ++i) {
    expect(in, i == 0 ? "h0" : "c0", in.operand(first + 1 + i), {s.batch, s.hidden});
  }
  expect(in, "w_ih", in.operand(first + states + 1), {gates * s.hidden, s.input});
  expect(in, "w_hh", in.operand(first + states + 2), {gates * s.hidden, s.hidden});
  for (size_t i = 0; i < in.count(); ++i) {
    USER_CHECK(!in.has(i) || in.operand(i).dtype == x.dtype, "[", in.op.name, "] dtypes differ: ",
               x.text(), " and ", in.operand(i).text(), ". Cast one of them.");
  }
  return s;
}

void check_biases(const InferInput& in, size_t first, int64_t size) {
  USER_CHECK(in.has(first) == in.has(first + 1), "[", in.op.name,
             "] one of two biases is missing. Give both or none.");
  if (!in.has(first)) return;
  expect(in, "b_ih", in.operand(first), {size});
  expect(in, "b_hh", in.operand(first + 1), {size});
}

// Gradients of the results may be absent: dy first, then those of the last states.
void check_gradients(const InferInput& in, const Sizes& s, size_t states) {
  if (in.has(0)) expect(in, "dy", in.operand(0), {s.time, s.batch, s.hidden});
  for (size_t i = 1; i <= states; ++i) {
    if (in.has(i)) expect(in, i == 1 ? "dhn" : "dcn", in.operand(i), {s.batch, s.hidden});
  }
}

void check_kept(const InferInput& in, const Sizes& s, size_t y, int64_t reserve_width) {
  expect(in, "y", in.operand(y), {s.time, s.batch, s.hidden});
  if (reserve_width == 0) return;
  expect(in, "reserve", in.operand(y + 1), {s.time, s.batch, reserve_width * s.hidden});
}

// Result types: `shape` of each one.
std::vector<ir::Type> types(ir::DType dtype, std::initializer_list<ir::Dims> shapes) {
  std::vector<ir::Type> out;
  for (const ir::Dims& sizes : shapes) out.push_back({dtype, sizes, {}});
  return out;
}

ir::Dims bias_sizes(const InferInput& in, int64_t size) {
  return {in.attrs().get_bool(ir::attr::has_bias) ? size : 0};
}

ir::Dims reserve_sizes(const InferInput& in, const Sizes& s, int64_t width) {
  if (!in.attrs().get_bool(ir::attr::keep)) return {0};
  return {s.time, s.batch, width * s.hidden};
}

ir::Dims dx_sizes(const InferInput& in, const Sizes& s) {
  if (!in.attrs().get_bool(ir::attr::wants_dx)) return {0};
  return {s.time, s.batch, s.input};
}

std::vector<ir::Type> infer_lstm(const InferInput& in) {
  const Sizes s = check_layer(in, 0, 2, 4);
  check_biases(in, 5, 4 * s.hidden);
  return types(in.operand(0).dtype, {{s.time, s.batch, s.hidden},
                                     {s.batch, s.hidden},
                                     {s.batch, s.hidden},
                                     reserve_sizes(in, s, 5)});
}

std::vector<ir::Type> infer_lstm_backward(const InferInput& in) {
  const Sizes s = check_layer(in, 3, 2, 4);
  check_gradients(in, s, 2);
  check_kept(in, s, 8, 5);
  return types(in.operand(3).dtype,
               {dx_sizes(in, s),
                {s.batch, s.hidden},
                {s.batch, s.hidden},
                {4 * s.hidden, s.input},
                {4 * s.hidden, s.hidden},
                bias_sizes(in, 4 * s.hidden)});
}

std::vector<ir::Type> infer_gru(const InferInput& in) {
  const Sizes s = check_layer(in, 0, 1, 3);
  check_biases(in, 4, 3 * s.hidden);
  return types(in.operand(0).dtype, {{s.time, s.batch, s.hidden},
                                     {s.batch, s.hidden},
                                     reserve_sizes(in, s, 4)});
}

std::vector<ir::Type> infer_gru_backward(const InferInput& in) {
  const Sizes s = check_layer(in, 2, 1, 3);
  check_gradients(in, s, 1);
  check_kept(in, s, 6, 4);
  return types(in.operand(2).dtype,
               {dx_sizes(in, s),
                {s.batch, s.hidden},
                {3 * s.hidden, s.input},
                {3 * s.hidden, s.hidden},
                bias_sizes(in, 3 * s.hidden),
                bias_sizes(in, 3 * s.hidden),
                {s.time, s.batch, 4 * s.hidden}});
}

void check_nonlinearity(const InferInput& in) {
  const std::string& word = in.attrs().get_string(ir::attr::nonlinearity);
  USER_CHECK(word == "tanh" || word == "relu", "[", in.op.name, "] nonlinearity is \"", word,
             "\". Use \"tanh\" or \"relu\".");
}

std::vector<ir::Type> infer_rnn(const InferInput& in) {
  const Sizes s = check_layer(in, 0, 1, 1);
  check_biases(in, 4, s.hidden);
  check_nonlinearity(in);
  return types(in.operand(0).dtype, {{s.time, s.batch, s.hidden}, {s.batch, s.hidden}});
}

std::vector<ir::Type> infer_rnn_backward(const InferInput& in) {
  const Sizes s = check_layer(in, 2, 1, 1);
  check_gradients(in, s, 1);
  check_kept(in, s, 6, 0);
  check_nonlinearity(in);
  return types(in.operand(2).dtype, {dx_sizes(in, s),
                                     {s.batch, s.hidden},
                                     {s.hidden, s.input},
                                     {s.hidden, s.hidden},
                                     bias_sizes(in, s.hidden)});
}

// Products of each step: by the input's weight and by the state's. `x` is the position of x, the
// weights follow `states` states.
template <size_t x, size_t states>
double forward_flops(const WorkInput& in) {
  const ir::Dims& sizes = in.operand(x).sizes;
  const ir::Type &w_ih = in.operand(x + states + 1), &w_hh = in.operand(x + states + 2);
  return 2 * static_cast<double>(sizes[0] * sizes[1]) * (numel(w_ih) + numel(w_hh));
}

// Those of the gradients of both weights and of the state, and that of x where it is wanted.
template <size_t x, size_t states>
double backward_flops(const WorkInput& in) {
  const ir::Dims& sizes = in.operand(x).sizes;
  const ir::Type &w_ih = in.operand(x + states + 1), &w_hh = in.operand(x + states + 2);
  const double by_input = in.attrs().get_bool(ir::attr::wants_dx) ? 2 : 1;
  return 2 * static_cast<double>(sizes[0] * sizes[1]) * (by_input * numel(w_ih) + 2 * numel(w_hh));
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
  return {
      {.name = "lstm",
       .aten = {"poptorch::lstm"},
       .doc = "Long short-term memory, gates i, f, g, o; `reserve` holds them activated, then "
              "the cell state.",
       .operands = {"x", "h0", "c0", "w_ih", "w_hh", "b_ih?", "b_hh?"},
       .results = {"y", "hn", "cn", "reserve"},
       .attrs = {{"reverse", false, true}, {"keep", true}},
       .infer = infer_lstm,
       .flops = forward_flops<0, 2>},
      {.name = "lstm_backward",
       .aten = {"poptorch::lstm_backward"},
       .doc = "Gradients of lstm; `db` is that of either bias.",
       .operands = {"dy?", "dhn?", "dcn?", "x", "h0", "c0", "w_ih", "w_hh", "y", "reserve"},
       .results = {"dx", "dh0", "dc0", "dw_ih", "dw_hh", "db"},
       .attrs = {{"has_bias", false, true}, {"wants_dx", true}, {"reverse", false, true}},
       .infer = infer_lstm_backward,
       .flops = backward_flops<3, 2>,
       .inplace = {{0}}},
      {.name = "gru",
       .aten = {"poptorch::gru"},
       .doc = "Gated recurrent unit, gates r, z, n; `reserve` holds them activated, then the "
              "recurrent part of n.",
       .operands = {"x", "h0", "w_ih", "w_hh", "b_ih?", "b_hh?"},
       .results = {"y", "hn", "reserve"},
       .attrs = {{"reverse", false, true}, {"keep", true}},
       .infer = infer_gru,
       .flops = forward_flops<0, 1>},
      {.name = "gru_backward",
       .aten = {"poptorch::gru_backward"},
       .doc = "Gradients of gru. `sums` are those of the state's products r, z, n, then of the "
              "input's product n: work memory, which may be that of `reserve`.",
       .operands = {"dy?", "dhn?", "x", "h0", "w_ih", "w_hh", "y", "reserve"},
       .results = {"dx", "dh0", "dw_ih", "dw_hh", "db_ih", "db_hh", "sums"},
       .attrs = {{"has_bias", false, true}, {"wants_dx", true}, {"reverse", false, true}},
       .infer = infer_gru_backward,
       .flops = backward_flops<2, 1>,
       .inplace = {{0}, {}, {}, {}, {}, {}, {7}}},
      {.name = "rnn",
       .aten = {"poptorch::rnn"},
       .doc = "Elman network; `nonlinearity` is \"tanh\" or \"relu\".",
       .operands = {"x", "h0", "w_ih", "w_hh", "b_ih?", "b_hh?"},
       .results = {"y", "hn"},
       .attrs = {{"nonlinearity", "tanh", true}, {"reverse", false, true}},
       .infer = infer_rnn,
       .flops = forward_flops<0, 1>},
      {.name = "rnn_backward",
       .aten = {"poptorch::rnn_backward"},
       .doc = "Gradients of rnn; `db` is that of either bias.",
       .operands = {"dy?", "dhn?", "x", "h0", "w_ih", "w_hh", "y"},
       .results = {"dx", "dh0", "dw_ih", "dw_hh", "db"},
       .attrs = {{"has_bias", false, true},
                 {"wants_dx", true},
                 {"nonlinearity", "tanh", true},
                 {"reverse", false, true}},
       .infer = infer_rnn_backward,
       .flops = backward_flops<2, 1>,
       .inplace = {{0}}},
  };
}

}  // namespace poptorch::ops
