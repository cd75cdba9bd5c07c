# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The build of the CUDA runtime, if a toolkit is available: nvcc compiles the
# runtime's own kernels; the headers of cuDNN and NCCL and those of
# cudnn_frontend, which builds cuDNN's graphs, come from PyPI. FSDPC_CUDA is true
# on success. Otherwise everything else is built and tested, but programs for
# GPUs cannot be linked.
set(FSDPC_CUDA_TOOLKIT /usr/local/cuda CACHE PATH "Folder of the CUDA toolkit, version 13 or newer")
set(FSDPC_CUDNN_FRONTEND "" CACHE PATH "Folder with cudnn_frontend.h (default: the pinned wheel's)")
# The last one is also kept as PTX, which newer GPUs compile.
set(FSDPC_CUDA_ARCHITECTURES 80-real 90-real 100 CACHE STRING "GPU architectures of the runtime's kernels")

# Unpacks `files` of a pinned wheel from PyPI to `folder`, once; says in `problem`
# what failed.
function(fsdpc_fetch_wheel name version sha256 files folder problem)
  set(${problem} "" PARENT_SCOPE)
  if(EXISTS ${folder}/done)
    return()
  endif()
  file(MAKE_DIRECTORY ${folder})
  file(WRITE ${folder}/requirements.txt "${name}==${version} --hash=sha256:${sha256}\n")
  execute_process(
    COMMAND python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes
            --python-version 3.11 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64
            --dest ${folder} --requirement ${folder}/requirements.txt
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said)
  file(GLOB wheel ${folder}/*.whl)
  if(failed OR NOT wheel)
    string(STRIP "${said}" said)
    set(${problem} "pip cannot download ${name} ${version}: ${said}" PARENT_SCOPE)
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${folder} PATTERNS ${files})
  file(REMOVE ${wheel})
  file(TOUCH ${folder}/done)
endfunction()

function(fsdpc_find_cuda problem)
  find_program(FSDPC_NVCC nvcc HINTS ${FSDPC_CUDA_TOOLKIT}/bin)
  find_path(FSDPC_CUDA_INCLUDE cuda_runtime_api.h HINTS ${FSDPC_CUDA_TOOLKIT}/include)
  find_path(FSDPC_CUDNN_INCLUDE cudnn.h HINTS ${FSDPC_CUDA_TOOLKIT}/include)
  find_path(FSDPC_NCCL_INCLUDE nccl.h HINTS ${FSDPC_CUDA_TOOLKIT}/include)
  foreach(library cudart cublasLt cudnn nccl)
    find_library(FSDPC_LIB_${library} ${library} HINTS ${FSDPC_CUDA_TOOLKIT}/lib64)
  endforeach()
  foreach(part NVCC CUDA_INCLUDE CUDNN_INCLUDE NCCL_INCLUDE LIB_cudart LIB_cublasLt LIB_cudnn LIB_nccl)
    if(NOT FSDPC_${part})
      set(${problem} "no ${part} in '${FSDPC_CUDA_TOOLKIT}' (-DFSDPC_CUDA_TOOLKIT)" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(frontend "${FSDPC_CUDNN_FRONTEND}")
  if(NOT frontend)
    fsdpc_fetch_wheel(nvidia-cudnn-frontend 1.18.0
      382ea063b92cbfd5b442cb75ff8422932d78276aecf139e46713ed1ad3d07af4
      include/* ${CMAKE_BINARY_DIR}/cudnn_frontend failed)
    if(failed)
      set(${problem} "${failed}" PARENT_SCOPE)
      return()
    endif()
    set(frontend ${CMAKE_BINARY_DIR}/cudnn_frontend/include)
  endif()
  set(FSDPC_CUDNN_FRONTEND_INCLUDE ${frontend} PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
endfunction()

fsdpc_find_cuda(fsdpc_cuda_problem)
if(fsdpc_cuda_problem)
  set(FSDPC_CUDA OFF)
  message(STATUS "CUDA runtime: not built; ${fsdpc_cuda_problem}")
else()
  set(FSDPC_CUDA ON)
  set(CMAKE_CUDA_COMPILER ${FSDPC_NVCC})
  # nvcc refuses a clang that is newer than itself.
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    find_program(FSDPC_CUDA_HOST_COMPILER g++ REQUIRED)
    set(CMAKE_CUDA_HOST_COMPILER ${FSDPC_CUDA_HOST_COMPILER})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${FSDPC_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 17)
  # The other CUDA libraries have this name too.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  message(STATUS "CUDA runtime: built, with ${FSDPC_NVCC}")
endif()
