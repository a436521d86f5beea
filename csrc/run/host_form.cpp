#include "run/host_form.h"

#include <array>
#include <utility>

#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr std::array<std::pair<std::string_view, HostForm>, 3> forms = {
    {{"inline", HostForm::in_turn}, {"replicas", HostForm::replicas}, {"micro", HostForm::micro}}};

}  // namespace

HostForm host_form_from_name(std::string_view name) {
  std::string names;
  for (const auto& [known, form] : forms) {
    if (known == name) return form;
    names += concat(names.empty() ? "" : ", ", known);
  }
  throw_user_error(concat("[POPTORCH_HOST] there is no form \"", name, "\". Use one of: ", names,
                          "."));
}

std::string_view name_of(HostForm form) {
  for (const auto& [name, known] : forms) {
    if (known == form) return name;
  }
  throw_internal_error(__FILE__, __LINE__, "form", "not a HostForm");
}

}  // namespace poptorch::run
