# SPDX-License-Identifier: Apache-2.0
# otr_swig_language(LANGUAGE NEEDS variable… MISSING text): the option OTR_<LANGUAGE>, and OTR_<LANGUAGE>_MISSING, the reason why its
# package cannot be built: text where one of the variables is not true; empty where it can.
function(otr_swig_language language)
  cmake_parse_arguments(L "" "MISSING" "NEEDS" ${ARGN})
  option(OTR_${language} "Build the package of this language where its tools and SWIG are found" ON)
  find_package(SWIG 4.1 QUIET)
  set(reason "")
  if(NOT OTR_${language})
    set(reason "OTR_${language} is off")
  elseif(NOT SWIG_FOUND)
    set(reason "no SWIG 4.1 or newer was found (Debian: swig)")
  endif()
  foreach(tool IN LISTS L_NEEDS)
    if(NOT reason AND NOT ${tool})
      set(reason "${L_MISSING}")
    endif()
  endforeach()
  string(TOLOWER ${language} name)
  set(OTR_${language}_MISSING "${reason}" CACHE INTERNAL "why there is no outrigger_${name}")
  if(reason)
    message(STATUS "outrigger_${name} is left out: ${reason}")
  endif()
endfunction()

# otr_swig_module(language FOLDER folder [CLASSES folder] [OPTIONS …] [INCLUDES …]): the target outrigger_<language>_native, a library in
# FOLDER that SWIG makes of bindings/swig/outrigger.i and <language>.i, for a language of plain.i. CLASSES: where SWIG writes in that language;
# it is emptied first. Sets OTR_SWIG_WRAPPER to the C file, which is newer than these.
function(otr_swig_module language)
  cmake_parse_arguments(M "" "FOLDER;CLASSES" "OPTIONS;INCLUDES" ${ARGN})
  set(interface ${CMAKE_SOURCE_DIR}/bindings/swig)
  set(header ${CMAKE_SOURCE_DIR}/c_api/include)
  set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/lowlevel_wrap.c)
  if(M_CLASSES)
    set(emptied COMMAND ${CMAKE_COMMAND} -E rm -rf ${M_CLASSES} COMMAND ${CMAKE_COMMAND} -E make_directory ${M_CLASSES})
    list(APPEND M_OPTIONS -outdir ${M_CLASSES})
  endif()
  add_custom_command(
    OUTPUT ${wrapper} ${emptied}
    COMMAND ${SWIG_EXECUTABLE} -${language} -DSWIGWORDSIZE64 -Wall -Werror -I${interface} -I${header} ${M_OPTIONS} -o ${wrapper} ${interface}/outrigger.i
    DEPENDS ${interface}/outrigger.i ${interface}/plain.i ${interface}/plain_message.i ${interface}/${language}.i ${interface}/calls.i ${interface}/docs.i ${header}/outrigger.h
    VERBATIM COMMENT "SWIG: outrigger.i for ${language}")
  add_library(outrigger_${language}_native MODULE ${wrapper})
  target_include_directories(outrigger_${language}_native PRIVATE ${interface} ${M_INCLUDES})
  target_link_libraries(outrigger_${language}_native PRIVATE outrigger)
  # SWIG's generated code has unused parameters, and keeps pointers in integers of their size.
  target_compile_options(outrigger_${language}_native PRIVATE -Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing)
  set_target_properties(outrigger_${language}_native PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${M_FOLDER} C_STANDARD 11 C_EXTENSIONS ON)
  set_property(SOURCE ${wrapper} APPEND PROPERTY OBJECT_DEPENDS "${interface}/plain.h;${interface}/plain_log.h;${interface}/plain_message.h;${interface}/refusal.h")
  set(OTR_SWIG_WRAPPER ${wrapper} PARENT_SCOPE)
endfunction()
