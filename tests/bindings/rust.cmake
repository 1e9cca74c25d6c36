# SPDX-License-Identifier: Apache-2.0
# The Rust crates: their own tests, an example on one rank and on two, the scenario, how they are built and loaded, their form.
find_program(OTR_CARGO cargo)

# otr_crates_missing(out folder): why the workspace of this folder cannot be built; empty: it can.
function(otr_crates_missing out folder)
  set(reason "")
  if(NOT OTR_CARGO)
    set(reason "no cargo was found")
  else()
    execute_process(COMMAND ${OTR_CARGO} metadata --offline --locked --format-version 1 --manifest-path ${CMAKE_SOURCE_DIR}/${folder}/Cargo.toml
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      set(reason "the crates that ${folder}/Cargo.lock names are not here (cargo fetch)")
    endif()
  endif()
  set(${out} "${reason}" PARENT_SCOPE)
endfunction()

otr_crates_missing(rust_missing rust)
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
binding_test(bindings_rust_builds MISSING ${rust_missing}
  COMMAND ${Python3_EXECUTABLE} ${here}/test_rust_builds.py ${OTR_CARGO} $<TARGET_FILE_DIR:outrigger> ${CMAKE_BINARY_DIR}/rust_builds Builds Loaded)
binding_test(bindings_rust_bundled TIER soak TIMEOUT 1800 MISSING ${rust_missing}
  COMMAND ${Python3_EXECUTABLE} ${here}/test_rust_builds.py ${OTR_CARGO} $<TARGET_FILE_DIR:outrigger> ${CMAKE_BINARY_DIR}/rust_builds Compiled)
binding_test(bindings_rust_form MISSING ${rust_missing} NEEDS rust_built ENVIRONMENT ${rust_environment}
  COMMAND ${Python3_EXECUTABLE} ${here}/test_rust_form.py ${OTR_CARGO} ${rust})

# The oldest compiler that the crates are for.
set(msrv_missing ${rust_missing})
execute_process(COMMAND rustup run 1.77 cargo --version RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
  set(msrv_missing "no Rust 1.77 (rustup toolchain install 1.77 --profile minimal)")
endif()
binding_test(bindings_rust_oldest TIER soak TIMEOUT 600 MISSING ${msrv_missing} ENVIRONMENT ${rust_environment}
  "CARGO_TARGET_DIR=${CMAKE_BINARY_DIR}/rust_oldest"
  COMMAND rustup run 1.77 cargo test --locked --quiet --manifest-path ${rust}/Cargo.toml --workspace)

# Adapters of frameworks: workspaces of their own, whose frameworks take minutes to compile. The example learns too slowly unoptimised.
foreach(crate candle burn)
  otr_crates_missing(${crate}_missing rust/outrigger-${crate})
  set(${crate}_target ${CMAKE_BINARY_DIR}/rust_${crate})
  set(crate_environment ${rust_environment} "CARGO_TARGET_DIR=${${crate}_target}")
  binding_test(bindings_${crate} TIER soak TIMEOUT 1800 MISSING ${${crate}_missing} SETUP ${crate}_built ENVIRONMENT ${crate_environment}
    COMMAND ${OTR_CARGO} test --offline --locked --quiet --manifest-path ${rust}/outrigger-${crate}/Cargo.toml)
  binding_test(bindings_${crate}_form TIER soak TIMEOUT 1800 MISSING ${${crate}_missing} NEEDS ${crate}_built ENVIRONMENT ${crate_environment}
    COMMAND ${Python3_EXECUTABLE} ${here}/test_rust_form.py ${OTR_CARGO} ${rust}/outrigger-${crate})
endforeach()
foreach(ranks 1 2)
  binding_test(bindings_candle_blocks_${ranks} TIER soak MISSING ${candle_missing} ${launcher_missing} NEEDS candle_built
    ENVIRONMENT ${rust_environment} COMMAND ${launcher} run -n ${ranks} -- ${candle_target}/debug/examples/blocks)
  binding_test(bindings_burn_curve_${ranks} TIER soak MISSING ${burn_missing} ${launcher_missing} NEEDS burn_built
    ENVIRONMENT ${rust_environment} COMMAND ${launcher} run -n ${ranks} -- ${burn_target}/debug/examples/curve)
endforeach()
binding_test(bindings_candle_plays TIER soak TIMEOUT 1800 MISSING ${candle_missing} ${launcher_missing} NEEDS candle_built
  ENVIRONMENT ${rust_environment}
  COMMAND ${Python3_EXECUTABLE} ${here}/test_rust_plays.py ${launcher} ${candle_target}/debug/examples/plays ${CMAKE_BINARY_DIR}/plays)
