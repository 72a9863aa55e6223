# Defines a target for libtorch from the PyPI wheel. TorchConfig.cmake is not used: that of a CUDA
# wheel fails without a CUDA toolkit, and adds its protobuf headers to every target.
set(LATHE_TORCH_DIR "" CACHE PATH "folder `torch` of an installed wheel; empty: the one in .venv")
if(NOT LATHE_TORCH_DIR)
  file(GLOB _torch_dirs ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(GET _torch_dirs 0 LATHE_TORCH_DIR)
endif()
if(NOT EXISTS ${LATHE_TORCH_DIR}/include/ATen/ATen.h)
  message(FATAL_ERROR "libtorch not found in '${LATHE_TORCH_DIR}': run tools/setup, or pass "
                      "-DLATHE_TORCH_DIR=<site-packages>/torch")
endif()

add_library(lathe_torch INTERFACE)
add_library(lathe::torch ALIAS lathe_torch)
target_include_directories(lathe_torch SYSTEM INTERFACE ${LATHE_TORCH_DIR}/include)
# Full paths, so that CMake finds libtorch at run time and takes that path out of installed programs.
target_link_libraries(lathe_torch INTERFACE ${LATHE_TORCH_DIR}/lib/libtorch_cpu.so ${LATHE_TORCH_DIR}/lib/libc10.so)
target_link_options(lathe_torch INTERFACE -Wl,--no-as-needed)
# AT_PER_OPERATOR_HEADERS: headers include only the operators that they need.
target_compile_definitions(lathe_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 AT_PER_OPERATOR_HEADERS)

# at::parallel_for is a template: without -fopenmp, Lathe's instances silently run on one thread.
# The OpenMP runtime must be torch's own, so that both share one thread pool and
# at::set_num_threads applies to both.
file(GLOB _torch_gomp ${LATHE_TORCH_DIR}/lib/libgomp*.so* ${LATHE_TORCH_DIR}/../torch.libs/libgomp*.so*)
if(NOT _torch_gomp)
  message(FATAL_ERROR "no libgomp beside libtorch in '${LATHE_TORCH_DIR}'")
endif()
list(GET _torch_gomp 0 _torch_gomp)
target_compile_options(lathe_torch INTERFACE $<IF:$<BOOL:${LATHE_CHECK_ONLY}>,-fopenmp-simd,-fopenmp>)
target_link_libraries(lathe_torch INTERFACE ${_torch_gomp})

# With a wheel for GPUs, loading libtorch_cuda.so registers the device. CUDA's own libraries are not
# needed to link; the wheel finds them in its own folder at run time.
if(EXISTS ${LATHE_TORCH_DIR}/lib/libtorch_cuda.so)
  target_link_libraries(lathe_torch INTERFACE ${LATHE_TORCH_DIR}/lib/libtorch_cuda.so ${LATHE_TORCH_DIR}/lib/libc10_cuda.so)
  target_link_options(lathe_torch INTERFACE "LINKER:--allow-shlib-undefined")
endif()

# One precompiled header for all torch code: a file takes 3 s with it and 8 to 20 s without.
file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cc.in "\n")
configure_file(${CMAKE_BINARY_DIR}/torch_pch.cc.in ${CMAKE_BINARY_DIR}/torch_pch.cc COPYONLY)
add_library(lathe_torch_pch STATIC ${CMAKE_BINARY_DIR}/torch_pch.cc)
lathe_compile_options(lathe_torch_pch)
target_link_libraries(lathe_torch_pch PUBLIC lathe_torch)
# aten.h is a Lathe header that includes only ATen.
target_precompile_headers(lathe_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/services/worker/torch/aten.h <absl/status/statusor.h>
                          <absl/strings/str_format.h> <map> <memory> <string> <vector>)
target_link_libraries(lathe_torch_pch PUBLIC absl::statusor absl::str_format)
