# SPDX-License-Identifier: Apache-2.0
# The C# assembly: its own tests, an example on one rank and on two, the scenario.
add_subdirectory(${CMAKE_SOURCE_DIR}/bindings/csharp ${CMAKE_BINARY_DIR}/bindings/csharp)
set(csharp_missing "${OTR_CSHARP_MISSING}")
set(csharp_package ${CMAKE_BINARY_DIR}/csharp)
set(csharp_programs "")
if(NOT csharp_missing)
  foreach(source ${here}/csharp/Test.cs ${CMAKE_SOURCE_DIR}/bindings/csharp/examples/Regression.cs ${CMAKE_SOURCE_DIR}/bindings/csharp/examples/Scenario.cs)
    cmake_path(GET source STEM name)
    set(program ${csharp_package}/${name}.exe)  # beside the assembly that it needs
    add_custom_command(OUTPUT ${program}
      COMMAND ${OTR_MCS} -warnaserror -r:${csharp_package}/Outrigger.dll -out:${program} ${source}
      DEPENDS ${source} ${csharp_package}/Outrigger.dll VERBATIM COMMENT "mcs: ${name}.exe")
    list(APPEND csharp_programs ${program})
  endforeach()
  add_custom_target(bindings_csharp_built ALL DEPENDS ${csharp_programs})
  add_dependencies(bindings_csharp_built outrigger_csharp)
endif()
binding_test(bindings_csharp TIER fast MISSING ${csharp_missing} ENVIRONMENT ROUNDS=300 COMMAND ${OTR_MONO} ${csharp_package}/Test.exe)
binding_test(bindings_csharp_leaks TIER soak MISSING ${csharp_missing} ENVIRONMENT ROUNDS=5000 COMMAND ${OTR_MONO} ${csharp_package}/Test.exe)
foreach(ranks 1 2)
  binding_test(bindings_csharp_regression_${ranks} MISSING ${csharp_missing} ${launcher_missing}
    COMMAND ${launcher} run -n ${ranks} -- ${OTR_MONO} ${csharp_package}/Regression.exe)
endforeach()
binding_test(bindings_scenario_csharp MISSING ${csharp_missing} ${launcher_missing} NEEDS scenario_c
  COMMAND ${run_scenario} csharp ${work} ${launcher} ${OTR_MONO} ${csharp_package}/Scenario.exe)
