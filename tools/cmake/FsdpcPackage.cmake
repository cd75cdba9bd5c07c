# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A Debian package of what `cmake --install` installs: `cpack -G DEB` in the build
# folder. All lies in /usr/lib/fsdpc, since fsdpc finds its parts from its own
# place, and FsdpcPackageFiles.cmake links it from where a system looks.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fsdpc)
set(CPACK_PACKAGE_VENDOR "The fsdpc authors")
set(FSDPC_PACKAGE_CONTACT "The fsdpc authors <fsdpc@localhost>" CACHE STRING "Who maintains the Debian package, with an address")
set(CPACK_PACKAGE_CONTACT ${FSDPC_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler of ONNX training graphs to sharded programs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr/lib/fsdpc)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/tools/cmake/FsdpcPackageFiles.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The shared libraries' packages, of the versions that were linked, and the Python of scripts.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3, python3-numpy")
# LLVM's library is linked by way of a link that another package owns, and
# dpkg-shlibdeps takes either package for it, as the order of a hash has it.
find_program(FSDPC_DPKG_QUERY dpkg-query)
if(FSDPC_DPKG_QUERY)
  file(REAL_PATH ${LLVM_LIBRARY_DIR}/libLLVM.so library)
  execute_process(COMMAND ${FSDPC_DPKG_QUERY} --search ${library} OUTPUT_VARIABLE owner ERROR_QUIET)
  if(owner MATCHES "^([a-z0-9.+-]+):")
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", ${CMAKE_MATCH_1}")
  endif()
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "fsdpc compiles an ONNX training graph, exported from PyTorch, into one
 executable that trains the model on any number of ranks. Parameters,
 gradients and optimizer states are sharded, as in FSDP and ZeRO.")
include(CPack)
