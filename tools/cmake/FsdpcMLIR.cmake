# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# MLIR 22 as Debian's packages install it: libraries, headers as system headers
# (generated code warns under -Wextra), no RTTI.
# Where several LLVMs are installed, -DMLIR_DIR chooses one.
find_program(FSDPC_LLVM_CONFIG NAMES llvm-config-22 llvm-config)
if(FSDPC_LLVM_CONFIG)
  execute_process(COMMAND ${FSDPC_LLVM_CONFIG} --cmakedir
    OUTPUT_VARIABLE fsdpc_llvm OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(MLIR 22.1 REQUIRED CONFIG HINTS ${fsdpc_llvm}/../mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
# Tools of that LLVM before others on PATH: tests and docs depend on its version.
find_program(FSDPC_MLIR_TBLGEN mlir-tblgen HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
find_program(FSDPC_LLVM_TBLGEN llvm-tblgen HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
find_program(FSDPC_LIT NAMES lit llvm-lit HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
find_program(FSDPC_FILECHECK FileCheck HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
# The linker of that LLVM, as a library, and what it compresses with.
find_library(FSDPC_LLD_ELF liblldELF.a HINTS ${LLVM_LIBRARY_DIR} REQUIRED)
find_library(FSDPC_LLD_COMMON liblldCommon.a HINTS ${LLVM_LIBRARY_DIR} REQUIRED)
find_library(FSDPC_ZSTD zstd REQUIRED)
fsdpc_linked(fsdpc_zstd SHARED ${FSDPC_ZSTD} STATIC -l:libzstd.a)
add_library(fsdpc_lld INTERFACE)
target_link_libraries(fsdpc_lld INTERFACE ${FSDPC_LLD_ELF} ${FSDPC_LLD_COMMON} fsdpc_zstd fsdpc_zlib)
# A linker takes what is needed from the archives.
file(GLOB fsdpc_archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
fsdpc_linked(fsdpc_llvm SHARED MLIR LLVM STATIC ${fsdpc_archives})

# fsdpc_tablegen(TARGET FILE.td  OUT.inc -gen-x [-dialect=y] …, one call per output)
# Outputs mirror the source's path in the build folder and are included as
# "compiler/dialects/nn/….inc". An output depends on the files that FILE.td
# includes and on no others. It is written only if it differs, so that an edit
# that leaves it as it was compiles nothing again.
function(fsdpc_tablegen target source output)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(out ${CMAKE_BINARY_DIR}/${folder}/${output})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  add_custom_command(OUTPUT ${out}
    COMMAND ${FSDPC_MLIR_TBLGEN} ${ARGN} -I ${CMAKE_SOURCE_DIR} -I ${MLIR_INCLUDE_DIRS}
            ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${out} -d ${out}.d --write-if-changed
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPFILE ${out}.d
    COMMENT "tblgen ${folder}/${output}")
  string(REPLACE "/" "_" step "${folder}_${output}")
  add_custom_target(${step} DEPENDS ${out})
  if(NOT TARGET ${target})
    add_custom_target(${target})
  endif()
  add_dependencies(${target} ${step})
endfunction()

# fsdpc_mlir_library(NAME SOURCES … [LIBS …] [DEPENDS tablegen targets])
function(fsdpc_mlir_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;DEPENDS" ${ARGN})
  fsdpc_static_library(${name} SOURCES ${ARG_SOURCES} LIBS ${ARG_LIBS})
  fsdpc_use_mlir(${name})
  fsdpc_group(${name})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

function(fsdpc_use_mlir name)
  target_include_directories(${name} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS}
    ${LLVM_INCLUDE_DIRS} ${CMAKE_BINARY_DIR})
  target_compile_options(${name} PRIVATE -fno-rtti -fno-exceptions)
  target_link_libraries(${name} PUBLIC fsdpc_llvm)
  get_target_property(type ${name} TYPE)
  # Executables are compiled with -fPIE, which does not match the headers' flags.
  if(FSDPC_PRECOMPILE AND type STREQUAL STATIC_LIBRARY AND NOT name MATCHES _headers$)
    target_precompile_headers(${name} REUSE_FROM fsdpc_mlir_headers)
  endif()
endfunction()

if(FSDPC_PRECOMPILE)
  set(headers
    <mlir/Dialect/Arith/IR/Arith.h> <mlir/Dialect/Func/IR/FuncOps.h>
    <mlir/Dialect/GPU/IR/GPUDialect.h> <mlir/Dialect/LLVMIR/LLVMDialect.h>
    <mlir/Dialect/Math/IR/Math.h> <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/Dialect/Vector/IR/VectorOps.h>
    <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h> <mlir/IR/BuiltinTypes.h>
    <mlir/IR/Dialect.h> <mlir/IR/Matchers.h> <mlir/IR/OpImplementation.h>
    <mlir/IR/PatternMatch.h> <mlir/IR/SymbolTable.h>
    <mlir/Interfaces/InferTypeOpInterface.h> <mlir/Interfaces/SideEffectInterfaces.h>
    <mlir/Pass/Pass.h> <mlir/Pass/PassManager.h>
    <mlir/Transforms/GreedyPatternRewriteDriver.h>
    <llvm/ADT/TypeSwitch.h> <llvm/Support/raw_ostream.h>)
  # A group pays four seconds for the headers of our ops. Not without groups: then
  # an edit of an op would compile every source again.
  if(FSDPC_GROUPED)
    list(APPEND headers
      ${CMAKE_SOURCE_DIR}/compiler/dialects/nn/NNOps.h
      ${CMAKE_SOURCE_DIR}/compiler/dialects/fsdp/FSDPDialect.h
      ${CMAKE_SOURCE_DIR}/compiler/dialects/rt/RTDialect.h)
  endif()
  set(libraries fsdpc_mlir_headers)
  fsdpc_header_library(fsdpc_mlir_headers)
  fsdpc_use_mlir(fsdpc_mlir_headers)
  fsdpc_precompile(fsdpc_mlir_headers ${headers})
  if(FSDPC_TESTS)
    fsdpc_precompile_for_tests(fsdpc_mlir_test_headers MLIR ${headers})
    list(APPEND libraries fsdpc_mlir_test_headers)
  endif()
  if(FSDPC_GROUPED)
    foreach(library IN LISTS libraries)
      add_dependencies(${library} nn_tablegen fsdp_tablegen rt_tablegen)
    endforeach()
  endif()
endif()

# fsdpc_passes(STAGE SOURCES … [LIBS …] [DEPENDS …]): the passes of one stage, in
# passes/STAGE: Passes.td, Passes.h and one file per pass.
function(fsdpc_passes stage)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;DEPENDS" ${ARGN})
  fsdpc_tablegen(${stage}_passes_tablegen Passes.td Passes.h.inc
    -gen-pass-decls -name=${stage})
  fsdpc_mlir_library(fsdpc_passes_${stage} SOURCES ${ARG_SOURCES}
    LIBS fsdpc_fsdp ${ARG_LIBS}
    DEPENDS ${stage}_passes_tablegen nn_tablegen fsdp_tablegen ${ARG_DEPENDS})
endfunction()
