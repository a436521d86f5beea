// How the host runs what a program repeats: its replicas, and the rounds of a loop.
#pragma once

#include <cstdint>
#include <string_view>

namespace poptorch::run {

// in_turn: one after the other, with all threads in each kernel. replicas: side by side, up to the
// next all_reduce. micro: micro-batches (where there is one, iterations of the device) of one
// replica side by side; what one hands on to the next passes in their order. Results have the same
// bits in each form.
enum class HostForm : uint8_t { in_turn, replicas, micro };

// The form that POPTORCH_HOST calls by that name; a user error that lists the names for others.
HostForm host_form_from_name(std::string_view name);
std::string_view name_of(HostForm form);

}  // namespace poptorch::run
