# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Defines the project's targets, with their warnings, sanitizers and tests.

# fsdpc_library(NAME SOURCES … [LIBS …]): a static library, compiled without warnings.
function(fsdpc_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  fsdpc_compile_options(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
endfunction()

# fsdpc_executable(NAME SOURCES … [LIBS …])
function(fsdpc_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  fsdpc_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
endfunction()

# fsdpc_test(NAME SOURCES … [LIBS …]): a GoogleTest program, one CTest test.
function(fsdpc_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  fsdpc_executable(${name} SOURCES ${ARG_SOURCES}
    LIBS ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# fsdpc_thread_tests(NAME…): tests that the thread sanitizer runs too (tools/test.sh).
# The target thread_tests builds them, and they have the label threads.
add_custom_target(thread_tests)
function(fsdpc_thread_tests)
  set_tests_properties(${ARGN} PROPERTIES LABELS threads)
  add_dependencies(thread_tests ${ARGN})
endfunction()

function(fsdpc_compile_options name)
  target_compile_options(${name} PRIVATE -Wall -Wextra
    "$<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings;-Xcompiler=-Werror,-Werror>")
  # g++ 12 warns about impossible overlaps in std::string (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  # clang reports std::stable_sort of libstdc++ 12 for a function that it calls.
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
  endif()
  foreach(sanitizer IN LISTS FSDPC_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
    target_link_options(${name} PUBLIC -fsanitize=${sanitizer})
  endforeach()
endfunction()
