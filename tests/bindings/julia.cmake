# SPDX-License-Identifier: Apache-2.0
# The Julia package: its own tests, the scenario.
find_program(OTR_JULIA julia HINTS ${CMAKE_SOURCE_DIR}/build/julia)
set(julia_missing "")
if(NOT OTR_JULIA)
  set(julia_missing "no julia was found")
else()
  execute_process(COMMAND ${OTR_JULIA} --startup-file=no -e "try sqrt(-1.0) catch end" RESULT_VARIABLE failed
    OUTPUT_QUIET ERROR_QUIET)
  if(failed)  # Julia 1.5 beside libunwind 1.6 dies in the first exception
    set(julia_missing "${OTR_JULIA} dies when it throws an exception: give it the libunwind it was built with")
  endif()
endif()
set(julia ${CMAKE_SOURCE_DIR}/julia)
set(julia_environment "OUTRIGGER_LIB_DIR=$<TARGET_FILE_DIR:outrigger>;JULIA_DEPOT_PATH=${CMAKE_BINARY_DIR}/julia")
binding_test(bindings_julia MISSING ${julia_missing} SETUP julia_ready ENVIRONMENT ${julia_environment}
  COMMAND ${OTR_JULIA} --startup-file=no --project=${julia} ${julia}/test/runtests.jl $<TARGET_FILE:outrigger_layout>)
binding_test(bindings_scenario_julia MISSING ${julia_missing} ${launcher_missing} NEEDS scenario_c julia_ready
  ENVIRONMENT ${julia_environment}
  COMMAND ${run_scenario} julia ${work} ${launcher} --together
          # a run of a moment: compiling it would take three times as long
          ${OTR_JULIA} --compile=min -O0 --startup-file=no --project=${julia} ${julia}/examples/scenario.jl)
