# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Defines the project's targets, with their warnings, sanitizers and tests.

# fsdpc_library(NAME SOURCES … [LIBS …]): a static library, compiled without warnings.
function(fsdpc_library name)
  fsdpc_static_library(${name} ${ARGN})
  if(FSDPC_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM fsdpc_standard_headers)
  endif()
endfunction()

# The same without precompiled headers.
function(fsdpc_static_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  fsdpc_compile_options(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
endfunction()

# fsdpc_fast(NAME): compiles a library with -O3 in every kind of build, unless it
# takes a precompiled header of another level.
function(fsdpc_fast name)
  if(NOT FSDPC_PRECOMPILE OR (CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT FSDPC_SANITIZE))
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O3>)
  endif()
endfunction()

# fsdpc_group(NAME): compiles a library's sources in groups of sixteen, with
# FSDPC_GROUPED. Most of a source's compile time is for the headers of ops, for
# which a group pays once: a build from nothing takes half as long, but an edit
# compiles its group again. Not for the runtime, of whose archive programs take
# single objects.
option(FSDPC_GROUPED "Compile the compiler's sources in groups (for builds from nothing)" OFF)
function(fsdpc_group name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${FSDPC_GROUPED} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# fsdpc_executable(NAME SOURCES … [LIBS …])
function(fsdpc_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  fsdpc_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
endfunction()

# fsdpc_test(NAME [MLIR] SOURCES … [LIBS …]): a GoogleTest program, one CTest test.
# MLIR: its sources include MLIR's headers.
function(fsdpc_test name)
  fsdpc_test_program(${name} ${ARGN})
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# fsdpc_test_program(NAME [MLIR] SOURCES … [LIBS …]): the same without a CTest.
function(fsdpc_test_program name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LIBS" ${ARGN})
  fsdpc_executable(${name} SOURCES ${ARG_SOURCES} LIBS ${ARG_LIBS} GTest::gtest_main)
  fsdpc_test_options(${name} ${ARG_MLIR})
  if(FSDPC_PRECOMPILE AND ARG_MLIR)
    target_precompile_headers(${name} REUSE_FROM fsdpc_mlir_test_headers)
  elseif(FSDPC_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM fsdpc_test_headers)
  endif()
endfunction()

# A test runs for less time than an optimiser takes for it.
function(fsdpc_test_options name mlir)
  target_compile_options(${name} PRIVATE -O1)
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock)
  if(mlir)
    fsdpc_use_mlir(${name})
  endif()
endfunction()

# Headers that many sources include and that cost a compiler seconds per file, such
# as MLIR's and GoogleTest's, are precompiled once with FSDPC_PRECOMPILE. Off by
# default: g++ writes 1 GB for it, clang 90 MB.
option(FSDPC_PRECOMPILE "Precompile MLIR's and GoogleTest's headers (for builds with clang)" OFF)

# fsdpc_header_library(NAME): a library to precompile headers in.
function(fsdpc_header_library name)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "")
  fsdpc_static_library(${name} SOURCES ${CMAKE_BINARY_DIR}/${name}.cpp)
endfunction()

# fsdpc_precompile(NAME HEADER…): precompiles headers in such a library. A target
# with the same options reuses them.
function(fsdpc_precompile name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    target_compile_options(${name} PRIVATE -Xclang -fno-pch-timestamp)
  endif()
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# fsdpc_precompile_for_tests(NAME MLIR HEADER…): GoogleTest's headers and others.
function(fsdpc_precompile_for_tests name mlir)
  fsdpc_header_library(${name})
  fsdpc_test_options(${name} ${mlir})
  # As executables are compiled.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)
  fsdpc_precompile(${name} ${ARGN} <gmock/gmock.h> <gtest/gtest.h>)
endfunction()

# fsdpc_drawn_tests(NAME…): tests that take long, most of which vary what
# others always test. tools/test.sh draws some with each commit, and --all runs each.
function(fsdpc_drawn_tests)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS drawn)
endfunction()

# fsdpc_long_tests(NAME…): tests of some twenty seconds and more, which
# tools/test.sh --quick leaves out. Those that are not built are passed over.
function(fsdpc_long_tests)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS long)
    endif()
  endforeach()
endfunction()

# fsdpc_thread_tests(NAME…): tests that the thread sanitizer runs too (tools/test.sh).
# The target thread_tests builds them, and they have the label threads.
add_custom_target(thread_tests)
function(fsdpc_thread_tests)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS threads)
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
  fsdpc_harden(${name})
  foreach(sanitizer IN LISTS FSDPC_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
    target_link_options(${name} PUBLIC -fsanitize=${sanitizer})
  endforeach()
  if(undefined IN_LIST FSDPC_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    target_compile_options(${name} PRIVATE -fsanitize-ignorelist=${CMAKE_SOURCE_DIR}/tools/cmake/unchecked-headers.txt)
  endif()
endfunction()

# fsdpc_harden(NAME): as distributions harden what they build. Functions with
# arrays check their stack, calls of the C library check sizes that are known,
# and tables of addresses are read-only before a program begins. Sanitizers
# check more.
function(fsdpc_harden name)
  if(FSDPC_SANITIZE)
    return()
  endif()
  set(plain $<COMPILE_LANGUAGE:C,CXX>)
  target_compile_options(${name} PRIVATE $<${plain}:-fstack-protector-strong>
    "$<$<AND:${plain},$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  target_link_options(${name} PRIVATE LINKER:-z,relro,-z,now)
endfunction()
