# find_package(poptorch): the library that runs compiled models, as poptorch::poptorch.
get_filename_component(poptorch_folder "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(NOT TARGET poptorch::poptorch)
  add_library(poptorch::poptorch SHARED IMPORTED)
  set_target_properties(poptorch::poptorch PROPERTIES
    IMPORTED_LOCATION "${poptorch_folder}/lib/libpoptorch.so"
    INTERFACE_INCLUDE_DIRECTORIES "${poptorch_folder}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
set(poptorch_FOUND TRUE)
