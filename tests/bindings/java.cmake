# SPDX-License-Identifier: Apache-2.0
# The Java package: its own tests, an example on one rank and on two, the scenario, Maven's build.
add_subdirectory(${CMAKE_SOURCE_DIR}/bindings/java ${CMAKE_BINARY_DIR}/bindings/java)
set(java_missing "${OTR_JAVA_MISSING}")
set(java_package ${CMAKE_BINARY_DIR}/java)
set(java_programs ${CMAKE_CURRENT_BINARY_DIR}/java)
if(NOT java_missing)
  file(GLOB java_sources CONFIGURE_DEPENDS ${here}/java/*.java ${CMAKE_SOURCE_DIR}/bindings/java/examples/*.java)
  add_custom_command(
    OUTPUT ${java_programs}/built
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${java_programs}
    COMMAND ${Java_JAVAC_EXECUTABLE} -Xlint:all -Werror --release 17 -cp ${java_package}/outrigger.jar -d ${java_programs} ${java_sources}
    COMMAND ${CMAKE_COMMAND} -E touch ${java_programs}/built
    DEPENDS ${java_sources} ${java_package}/outrigger.jar
    VERBATIM COMMENT "javac: the tests and examples of Java")
  add_custom_target(bindings_java_built ALL DEPENDS ${java_programs}/built)
  add_dependencies(bindings_java_built outrigger_java)
endif()
# Programs of a moment: the second compiler would take longer than it saves.
# All memory that is not given back is in sight: the heap is there from the start, and direct buffers do not pile up.
set(java ${Java_JAVA_EXECUTABLE} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m -Xmx64m -XX:+AlwaysPreTouch -XX:MaxDirectMemorySize=8m
    -Doutrigger.library.path=${java_package}
    -cp ${java_package}/outrigger.jar:${java_programs})
# A name is of a class of tests/bindings/java.
binding_test(bindings_java_wrong_use MISSING ${java_missing} COMMAND ${java} -Xcheck:jni WrongUse)
binding_test(bindings_java_training MISSING ${java_missing} COMMAND ${java} -Xcheck:jni -Drounds=300 Training ${CMAKE_CURRENT_BINARY_DIR})
binding_test(bindings_java_leaks TIER soak MISSING ${java_missing} COMMAND ${java} -Drounds=3000 Training ${CMAKE_CURRENT_BINARY_DIR})
if(NOT java_missing)  # the virtual machine's own word on wrong use of its interface
  set_tests_properties(bindings_java_wrong_use bindings_java_training PROPERTIES FAIL_REGULAR_EXPRESSION "in native method")
endif()
foreach(ranks 1 2)
  binding_test(bindings_java_regression_${ranks} MISSING ${java_missing} ${launcher_missing}
    COMMAND ${launcher} run -n ${ranks} -- ${java} Regression)
endforeach()
binding_test(bindings_scenario_java MISSING ${java_missing} ${launcher_missing} NEEDS scenario_c
  COMMAND ${run_scenario} java ${work} ${launcher} ${java} Scenario)
# Maven makes the same package of the same sources, from the plugins that scripts/setup/java.sh has fetched.
find_program(OTR_MAVEN mvn)
set(maven_missing "${java_missing}")
if(NOT OTR_MAVEN)
  list(APPEND maven_missing "no mvn was found (Debian: maven)")
endif()
file(STRINGS ${CMAKE_SOURCE_DIR}/bindings/java/pom.xml maven_plugins REGEX "<artifactId>maven-.*-plugin<")
foreach(plugin IN LISTS maven_plugins)
  string(REGEX REPLACE ".*<artifactId>(.*)</.*" "\\1" plugin "${plugin}")
  if(NOT EXISTS "$ENV{HOME}/.m2/repository/org/apache/maven/plugins/${plugin}")
    list(APPEND maven_missing "Maven's cache has no ${plugin} (scripts/setup.sh fetches it)")
  endif()
endforeach()
binding_test(bindings_java_maven TIER soak MISSING ${maven_missing} COMMAND ${OTR_MAVEN} --offline --batch-mode --quiet -f ${java_package}/pom.xml package)
