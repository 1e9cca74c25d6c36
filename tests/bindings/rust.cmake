# SPDX-License-Identifier: Apache-2.0
# The Rust crates: their own tests, an example on one rank and on two, the scenario.
find_program(OTR_CARGO cargo)
set(rust_missing "")
if(NOT OTR_CARGO)
  set(rust_missing "no cargo was found")
else()
  execute_process(COMMAND ${OTR_CARGO} metadata --offline --locked --format-version 1 --manifest-path ${CMAKE_SOURCE_DIR}/rust/Cargo.toml
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(rust_missing "the crates that rust/Cargo.lock names are not here (cargo fetch)")
  endif()
endif()
set(rust ${CMAKE_SOURCE_DIR}/rust)
set(rust_target ${CMAKE_BINARY_DIR}/rust)
set(rust_environment "OUTRIGGER_LIB_DIR=$<TARGET_FILE_DIR:outrigger>;CARGO_TARGET_DIR=${rust_target}"
  "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:outrigger>") # for documentation's examples, which have no rpath
binding_test(bindings_rust MISSING ${rust_missing} SETUP rust_built ENVIRONMENT ${rust_environment}
  COMMAND ${OTR_CARGO} test --offline --locked --quiet --manifest-path ${rust}/Cargo.toml --workspace)
foreach(ranks 1 2)
  binding_test(bindings_rust_regression_${ranks} MISSING ${rust_missing} ${launcher_missing} NEEDS rust_built
    COMMAND ${launcher} run -n ${ranks} -- ${rust_target}/debug/examples/regression)
endforeach()
binding_test(bindings_scenario_rust MISSING ${rust_missing} ${launcher_missing} NEEDS scenario_c rust_built
  COMMAND ${run_scenario} rust ${work} ${launcher} ${rust_target}/debug/examples/scenario)
