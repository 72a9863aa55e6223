# Runs nvcc for builds with a torch wheel for GPUs. It uses custom commands: CMake's CUDA support
# would link every program with nvcc, which does not accept Lathe's linker flags.
#
# lathe_cuda_library(NAME worker_kernels_cuda SOURCES a.cu [FLASHINFER])
#   One static library of device code for LATHE_CUDA_ARCHITECTURES. FLASHINFER adds its headers.
# lathe_use_cuda(target): adds CUDA's headers, for files that use torch's CUDA API.
# lathe_use_nccl(target): links NCCL (the library that torch itself loads) and CUDA's runtime.
set(LATHE_HAS_CUDA OFF)
if(NOT EXISTS ${LATHE_TORCH_DIR}/lib/libtorch_cuda.so)
  return()
endif()
set(LATHE_HAS_CUDA ON)
# As CMAKE_CUDA_ARCHITECTURES: 90 is machine code and PTX, 90-real and 90-virtual are one of them. A
# GPU of a later generation compiles the PTX when the worker starts.
set(LATHE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "compute capabilities of the GPUs to build for")

get_filename_component(_cuda_packages ${LATHE_TORCH_DIR}/.. ABSOLUTE)
find_program(LATHE_NVCC nvcc HINTS ${_cuda_packages}/nvidia/cu13/bin)
if(NOT LATHE_NVCC)
  message(FATAL_ERROR "nvcc not found: run tools/setup_cuda, or pass -DLATHE_NVCC=<path>")
endif()
execute_process(COMMAND ${LATHE_NVCC} --dryrun -x cu -c /dev/null ERROR_VARIABLE _nvcc_settings OUTPUT_QUIET)
string(REGEX MATCH "TOP=([^\n]+)" _ "${_nvcc_settings}")
get_filename_component(LATHE_CUDA_DIR "${CMAKE_MATCH_1}" ABSOLUTE)
# Link the static runtime, so that programs need not find the shared one of torch's wheel.
find_library(LATHE_CUDART cudart_static HINTS ${LATHE_CUDA_DIR} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH REQUIRED)

set(_flashinfer ${_cuda_packages}/flashinfer/data)
set(LATHE_FLASHINFER_INCLUDES ${_flashinfer}/include ${_flashinfer}/cccl/libcudacxx/include
    ${_flashinfer}/cccl/cub ${_flashinfer}/cccl/thrust)

# Hides the runtime's symbols, so that torch's libraries use their own runtime.
function(lathe_link_cudart target)
  target_link_options(${target} INTERFACE LINKER:--exclude-libs,libcudart_static.a)
  target_link_libraries(${target} PUBLIC ${LATHE_CUDART} ${CMAKE_DL_LIBS} rt)
endfunction()

function(lathe_use_cuda target)
  target_include_directories(${target} SYSTEM PRIVATE ${LATHE_CUDA_DIR}/include)
endfunction()

function(lathe_use_nccl target)
  set(_nccl_dir ${_cuda_packages}/nvidia/nccl)
  if(NOT EXISTS ${_nccl_dir}/include/nccl.h)
    message(FATAL_ERROR "NCCL not found in '${_nccl_dir}': run tools/setup_cuda")
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${_nccl_dir}/include)
  target_link_libraries(${target} PUBLIC ${_nccl_dir}/lib/libnccl.so.2)
  lathe_link_cudart(${target})
endfunction()

function(lathe_cuda_library)
  cmake_parse_arguments(ARG "FLASHINFER" "NAME" "SOURCES" ${ARGN})
  set(_flags -std=c++20 -O3 --expt-relaxed-constexpr -Werror all-warnings -ccbin ${CMAKE_CXX_COMPILER}
      -Xcompiler -fPIC,-pthread,-Wall,-Wextra,-Wno-unknown-pragmas -I ${CMAKE_SOURCE_DIR})
  foreach(_arch ${LATHE_CUDA_ARCHITECTURES})
    string(REGEX MATCH "^([0-9]+[af]?)(-real|-virtual)?$" _ "${_arch}")
    set(_name ${CMAKE_MATCH_1})
    set(_kind "${CMAKE_MATCH_2}")
    if(NOT _name)
      message(FATAL_ERROR "LATHE_CUDA_ARCHITECTURES: '${_arch}' is none of 90, 90a, 90-real, 90-virtual and the like")
    endif()
    if(NOT _kind STREQUAL "-virtual")
      list(APPEND _flags -gencode arch=compute_${_name},code=sm_${_name})
    endif()
    if(NOT _kind STREQUAL "-real")
      list(APPEND _flags -gencode arch=compute_${_name},code=compute_${_name})
    endif()
  endforeach()
  if(ARG_FLASHINFER)
    if(NOT EXISTS ${_flashinfer}/include/flashinfer/page.cuh)
      message(FATAL_ERROR "FlashInfer's headers not found in '${_flashinfer}': run tools/setup_cuda")
    endif()
    foreach(_folder ${LATHE_FLASHINFER_INCLUDES})
      list(APPEND _flags -isystem ${_folder})
    endforeach()
  endif()
  foreach(_source ${ARG_SOURCES})
    set(_object ${CMAKE_CURRENT_BINARY_DIR}/${_source}.o)
    add_custom_command(
      OUTPUT ${_object}
      COMMAND ${LATHE_NVCC} ${_flags} -MD -MF ${_object}.d -MT ${_object} -c ${CMAKE_CURRENT_SOURCE_DIR}/${_source} -o ${_object}
      DEPENDS ${_source} DEPFILE ${_object}.d
      COMMENT "Building CUDA object ${_source}.o" VERBATIM)
    list(APPEND _objects ${_object})
  endforeach()
  set_source_files_properties(${_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(lathe_${ARG_NAME} STATIC ${_objects})
  add_library(lathe::${ARG_NAME} ALIAS lathe_${ARG_NAME})
  set_target_properties(lathe_${ARG_NAME} PROPERTIES LINKER_LANGUAGE CXX)
  lathe_link_cudart(lathe_${ARG_NAME})
endfunction()
