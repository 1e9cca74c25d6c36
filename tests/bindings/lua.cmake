# SPDX-License-Identifier: Apache-2.0
# The Lua module: its own tests, an example on one rank and on two, the scenario.
add_subdirectory(${CMAKE_SOURCE_DIR}/bindings/lua ${CMAKE_BINARY_DIR}/bindings/lua)
set(lua_missing "${OTR_LUA_MISSING}")
if(NOT lua_missing)
  add_custom_target(bindings_lua_built ALL DEPENDS outrigger_lua)
endif()
set(lua_environment "LUA_PATH=${CMAKE_BINARY_DIR}/lua/?.lua" "LUA_CPATH=${CMAKE_BINARY_DIR}/lua/?.so")
set(lua_examples ${CMAKE_SOURCE_DIR}/bindings/lua/examples)
binding_test(bindings_lua TIER fast MISSING ${lua_missing} ENVIRONMENT ${lua_environment} ROUNDS=300
  COMMAND ${OTR_LUA_INTERPRETER} ${here}/lua/test.lua ${CMAKE_CURRENT_BINARY_DIR})
binding_test(bindings_lua_leaks TIER soak MISSING ${lua_missing} ENVIRONMENT ${lua_environment} ROUNDS=5000
  COMMAND ${OTR_LUA_INTERPRETER} ${here}/lua/test.lua ${CMAKE_CURRENT_BINARY_DIR})
binding_test(bindings_lua_interrupted MISSING ${lua_missing} ENVIRONMENT ${lua_environment} RANK=0 WORLD_SIZE=2 OTR_JOB=bindings_lua_interrupted
  COMMAND timeout --preserve-status -s INT 1 ${OTR_LUA_INTERPRETER} ${here}/lua/interrupted.lua)
foreach(ranks 1 2)
  binding_test(bindings_lua_regression_${ranks} MISSING ${lua_missing} ${launcher_missing} ENVIRONMENT ${lua_environment}
    COMMAND ${launcher} run -n ${ranks} -- ${OTR_LUA_INTERPRETER} ${lua_examples}/regression.lua)
endforeach()
binding_test(bindings_scenario_lua TIER fast MISSING ${lua_missing} ${launcher_missing} NEEDS scenario_c ENVIRONMENT ${lua_environment}
  COMMAND ${run_scenario} lua ${work} ${launcher} ${OTR_LUA_INTERPRETER} ${lua_examples}/scenario.lua)
