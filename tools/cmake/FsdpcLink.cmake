# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The folder of link inputs, lib/link: what a program is linked with beside its
# objects and the runtime. The start files and static libraries are copies of
# this machine's, the shared libraries are stubs of them. The compiler links
# with these alone, so a machine that compiles needs no C++ compiler.

# Returns in `variable` the path of a file that the C++ compiler links with.
function(fsdpc_link_file variable name)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name}
    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no file ${name}")
  endif()
  set(${variable} ${path} PARENT_SCOPE)
endfunction()

# fsdpc_link_folder(TARGET FOLDER COPIES … STUBS …): a target that makes such a
# folder. COPIES and STUBS name libraries in addition to the system's.
function(fsdpc_link_folder target folder)
  cmake_parse_arguments(ARG "" "" "COPIES;STUBS" ${ARGN})
  foreach(name Scrt1.o crti.o crtbeginS.o crtendS.o crtn.o libc_nonshared.a libgcc.a)
    fsdpc_link_file(path ${name})
    list(APPEND ARG_COPIES ${path})
  endforeach()
  foreach(name libc.so.6 libm.so.6 libstdc++.so.6 libgcc_s.so.1)
    fsdpc_link_file(path ${name})
    list(APPEND ARG_STUBS ${path})
  endforeach()
  set(commands "")
  foreach(path ${ARG_STUBS})
    string(REGEX REPLACE ".*/([^/]*\\.so)[.0-9]*$" "\\1" stub ${path})
    list(APPEND commands COMMAND ${CMAKE_SOURCE_DIR}/tools/link-stubs.py --compiler ${CMAKE_C_COMPILER}
      --readelf ${CMAKE_READELF} ${path} ${folder}/${stub})
  endforeach()
  # The list of the files comes last. By it fsdpc tells what an installation lacks.
  set(names "")
  foreach(path ${ARG_COPIES} ${ARG_STUBS})
    string(REGEX REPLACE ".*/([^/]*\\.so)[.0-9]*$" "\\1" name ${path})
    get_filename_component(name ${name} NAME)
    string(APPEND names "${name}\n")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.txt CONTENT "${names}")
  add_custom_command(OUTPUT ${folder}/complete
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${CMAKE_COMMAND} -E copy ${ARG_COPIES} ${folder}
    ${commands}
    COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_BINARY_DIR}/${target}.txt ${folder}/complete
    DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${target}.txt ${ARG_COPIES} ${ARG_STUBS} ${CMAKE_SOURCE_DIR}/tools/link-stubs.py
    COMMENT "Gathering what programs are linked with"
    VERBATIM)
  add_custom_target(${target} DEPENDS ${folder}/complete)
endfunction()

# A shared oneDNN is linked with the shared OpenMP, and a static one with the
# static one: a program with both would have two pools of threads.
find_library(FSDPC_ZLIB libz.a REQUIRED)
fsdpc_link_file(shared_gomp libgomp.so.1)
fsdpc_link_file(static_gomp libgomp.a)
fsdpc_link_folder(fsdpc_link ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/link
  COPIES ${FSDPC_ZLIB} STUBS ${FSDPC_DNNL} ${shared_gomp})
install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/link DESTINATION lib)
fsdpc_link_folder(fsdpc_link_standalone ${CMAKE_BINARY_DIR}/standalone/lib/link
  COPIES ${FSDPC_ZLIB} ${FSDPC_STATIC_DNNL} ${static_gomp})
