# SPDX-License-Identifier: Apache-2.0
# Compiler flags that every target of this project shares.
add_library(otr_flags INTERFACE)
target_compile_options(otr_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Werror -ffp-contract=off -fno-math-errno -g1
  # No machine's path in what is installed; and ccache takes what another build folder has compiled.
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${CMAKE_BINARY_DIR}=.
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # std::stable_sort of libstdc++ 12 uses what C++17 deprecates, and clang blames who calls it
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
if(OTR_SANITIZE)
  target_compile_options(otr_flags INTERFACE
    -fsanitize=${OTR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # gcc sees uninitialised values in the instrumented standard library
    $<$<NOT:$<C_COMPILER_ID:Clang>>:-Wno-maybe-uninitialized>)
  target_link_options(otr_flags INTERFACE -fsanitize=${OTR_SANITIZE})
  string(APPEND CMAKE_C_FLAGS_DEBUG " -O1")
  string(APPEND CMAKE_CXX_FLAGS_DEBUG " -O1")
endif()
if(OTR_FUZZ)
  target_compile_options(otr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# otr_unity(target): with OTR_UNITY its sources are compiled ten at a time, headers read once for all of them.
# Names in anonymous namespaces then meet: such a target's sources keep theirs apart.
function(otr_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${OTR_UNITY} UNITY_BUILD_BATCH_SIZE 10)
endfunction()
