# SPDX-License-Identifier: Apache-2.0
# The Julia package: its own tests, an example in two workers, the scenario.
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
set(runtests --startup-file=no --project=${julia} ${julia}/test/runtests.jl $<TARGET_FILE:outrigger_layout>)
# Compiling takes longer than these tests do interpreted; the process with threads is compiled. The soak has all of it as users have it, and collects for longer.
binding_test(bindings_julia MISSING ${julia_missing} SETUP julia_ready ENVIRONMENT ${julia_environment}
  COMMAND ${OTR_JULIA} --compile=min -O0 ${runtests})
binding_test(bindings_julia_compiled TIER soak TIMEOUT 900 MISSING ${julia_missing} ENVIRONMENT ${julia_environment} "OUTRIGGER_STRESS_SECONDS=30"
  COMMAND ${OTR_JULIA} --check-bounds=yes ${runtests})
set(plays --startup-file=no --project=${julia} ${julia}/examples/plays.jl)
binding_test(bindings_julia_plays MISSING ${julia_missing} ${launcher_missing} NEEDS julia_ready ENVIRONMENT ${julia_environment} "OPENBLAS_NUM_THREADS=1"
  COMMAND ${launcher} run -n 2 -- ${OTR_JULIA} -O0 ${plays} 60 ${CMAKE_SOURCE_DIR}/c_api/include/outrigger.h)
binding_test(bindings_julia_plays_learns TIER soak TIMEOUT 900 MISSING ${julia_missing} ENVIRONMENT ${julia_environment}
  COMMAND ${OTR_JULIA} ${plays})
binding_test(bindings_julia_overhead TIER soak MISSING ${julia_missing} ENVIRONMENT ${julia_environment}
  COMMAND ${OTR_JULIA} --startup-file=no --project=${julia} ${julia}/bench/overhead.jl 200)
binding_test(bindings_scenario_julia MISSING ${julia_missing} ${launcher_missing} NEEDS scenario_c julia_ready
  ENVIRONMENT ${julia_environment}
  COMMAND ${run_scenario} julia ${work} ${launcher} --together
          # a run of a moment: compiling it would take three times as long
          ${OTR_JULIA} --compile=min -O0 --startup-file=no --project=${julia} ${julia}/examples/scenario.jl)
