# SPDX-License-Identifier: Apache-2.0
# What a Python wheel holds beside the package's sources: the module, the library and the command, each of which
# finds the library by its own place. All of it is the component "python", which pyproject.toml names.

# pip brings a SWIG that writes for the stable ABI; FindSWIG would prefer the system's older one by its name.
find_program(SWIG_EXECUTABLE swig)
add_subdirectory(bindings)
if(OTR_PYTHON_MISSING)
  message(FATAL_ERROR "a wheel cannot be built: ${OTR_PYTHON_MISSING}")
endif()

# One module for this Python and all later ones: SKBUILD_SABI_VERSION is pyproject.toml's wheel.py-api.
if(SKBUILD_SABI_VERSION MATCHES "^([0-9]+)\\.([0-9]+)$" AND SWIG_VERSION VERSION_GREATER_EQUAL 4.2)
  math(EXPR limited "(${CMAKE_MATCH_1} << 24) | (${CMAKE_MATCH_2} << 16)" OUTPUT_FORMAT HEXADECIMAL)
  target_compile_definitions(outrigger_python PRIVATE Py_LIMITED_API=${limited})
  set_target_properties(outrigger_python PROPERTIES SUFFIX .abi3.so)
elseif(SKBUILD_SABI_VERSION)
  message(FATAL_ERROR "SWIG ${SWIG_VERSION} does not write for Python's stable ABI; give 4.2 or newer (pip install swig)")
endif()

# A wheel has no links: one file, of the name that the loader asks for.
get_target_property(soversion outrigger SOVERSION)
set_target_properties(outrigger PROPERTIES VERSION ${soversion})
set_target_properties(outrigger_python PROPERTIES INSTALL_RPATH "$ORIGIN")
set_target_properties(outrigger_tool PROPERTIES INSTALL_RPATH "$ORIGIN/..")

install(TARGETS outrigger outrigger_python
  LIBRARY DESTINATION outrigger COMPONENT python NAMELINK_SKIP)
install(TARGETS outrigger_tool RUNTIME DESTINATION outrigger/bin COMPONENT python)
install(FILES ${CMAKE_BINARY_DIR}/python/outrigger/lowlevel.py
  DESTINATION outrigger COMPONENT python)
