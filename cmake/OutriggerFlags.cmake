# Compiler flags that every target of this project shares.
add_library(otr_flags INTERFACE)
target_compile_options(otr_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Werror -ffp-contract=off -fno-math-errno -g1
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(OTR_SANITIZE)
  target_compile_options(otr_flags INTERFACE -fsanitize=${OTR_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(otr_flags INTERFACE -fsanitize=${OTR_SANITIZE})
endif()
