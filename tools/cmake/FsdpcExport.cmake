# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what passes need that are built elsewhere (tests/packages/pass_plugin
# is an example): the headers of the compiler, those that TableGen makes, and
# fsdpcConfig.cmake, which finds them.
include(CMakePackageConfigHelpers)

set(headers include/fsdpc)
install(DIRECTORY compiler passes DESTINATION ${headers} FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
foreach(part abi support)
  install(DIRECTORY runtime/${part} DESTINATION ${headers}/runtime FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
endforeach()
foreach(part compiler passes)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/${part} DESTINATION ${headers} FILES_MATCHING PATTERN "*.h.inc"
    PATTERN CMakeFiles EXCLUDE)
endforeach()

set(INCLUDE_INSTALL_DIR ${headers})
set(OPT_INSTALL_PATH bin/fsdpc-opt)
set(fsdpc_mlir ${MLIR_VERSION})
configure_package_config_file(tools/cmake/fsdpcConfig.cmake.in ${CMAKE_BINARY_DIR}/fsdpcConfig.cmake
  INSTALL_DESTINATION lib/cmake/fsdpc PATH_VARS INCLUDE_INSTALL_DIR OPT_INSTALL_PATH)
# Passes share C++ types with fsdpc-opt, so only the same version fits.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/fsdpcConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${CMAKE_BINARY_DIR}/fsdpcConfig.cmake ${CMAKE_BINARY_DIR}/fsdpcConfigVersion.cmake
  DESTINATION lib/cmake/fsdpc)
