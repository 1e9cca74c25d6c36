# SPDX-License-Identifier: Apache-2.0
# Compiler flags that every target of this project shares.
add_library(otr_flags INTERFACE)
target_compile_options(otr_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off -fno-math-errno -g1
  # No machine's path in what is installed; and ccache takes what another build folder has compiled.
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${PROJECT_BINARY_DIR}=.
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # std::stable_sort of libstdc++ 12 uses what C++17 deprecates, and clang blames who calls it
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
if(OTR_SANITIZE)
  target_compile_options(otr_flags INTERFACE
    -fsanitize=${OTR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # gcc sees uninitialised values in the instrumented standard library
    $<$<NOT:$<C_COMPILER_ID:Clang>>:-Wno-maybe-uninitialized>)
  set(quick -O1)
  if(OTR_SANITIZE MATCHES address)
    # gcc 12 compiles the library in three fifths of the time of -O1, but not what xxhash wants inlined through pointers.
    set(quick -Og)
    target_compile_definitions(otr_flags INTERFACE XXH_NO_INLINE_HINTS=1)
    # AddressSanitizer sees what these checks of UBSan see, and a third of a compilation goes to them.
    target_compile_options(otr_flags INTERFACE -fno-sanitize=null,vptr,object-size)
  endif()
  target_link_options(otr_flags INTERFACE -fsanitize=${OTR_SANITIZE})
  string(APPEND CMAKE_C_FLAGS_DEBUG " ${quick}")
  string(APPEND CMAKE_CXX_FLAGS_DEBUG " ${quick}")
endif()
if(OTR_FUZZ)
  target_compile_options(otr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# otr_quick_to_compile(target [scope]): for tests, most of which take longer to compile than to run, with gcc 12 by a half with -O1.
# UBSan looks at the library, not at them: it makes three times as much of a compilation.
function(otr_quick_to_compile target)
  set(scope PRIVATE ${ARGN})
  list(GET scope -1 scope)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT OTR_SANITIZE MATCHES thread)
    target_compile_options(${target} ${scope} -O0)
  else()
    target_compile_options(${target} ${scope} -O1)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND OTR_SANITIZE MATCHES address)
    target_compile_options(${target} ${scope} -fno-sanitize=undefined)
  endif()
endfunction()

# otr_precompiled_headers(owner libraries…): with OTR_PCH the program that has compiled tests/precompiled.h; these are the libraries of
# the tests that read it, from which it also takes their options.
function(otr_precompiled_headers owner)
  if(OTR_PCH)
    add_executable(${owner} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/precompiled.cpp)
    target_link_libraries(${owner} PRIVATE ${ARGN})
    target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/tests/precompiled.h)
  endif()
endfunction()

# otr_precompiled(target owner): a program that is compiled with the owner's options.
function(otr_precompiled target owner)
  if(OTR_PCH)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    otr_reads_precompiled(${target})
  endif()
endfunction()

# otr_reads_precompiled(target): gcc 12 sees overlaps and ends in std::string that are not there (its bug 105651), also in what it has
# compiled before.
function(otr_reads_precompiled target)
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endfunction()

# otr_unity(target): with OTR_UNITY its sources are compiled twenty at a time, headers read once for all of them.
# Names in anonymous namespaces then meet: such a target's sources keep theirs apart.
function(otr_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${OTR_UNITY} UNITY_BUILD_BATCH_SIZE 20)
endfunction()
