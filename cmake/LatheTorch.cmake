# libtorch from the PyPI wheel, as our own imported target: TorchConfig.cmake of a CUDA wheel stops
# when no CUDA toolkit is installed, and adds its protobuf headers to every target.
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
target_link_directories(lathe_torch INTERFACE ${LATHE_TORCH_DIR}/lib)
target_link_libraries(lathe_torch INTERFACE torch_cpu c10)
target_link_options(lathe_torch INTERFACE "LINKER:-rpath,${LATHE_TORCH_DIR}/lib" -Wl,--no-as-needed)
# Per operator: a header that needs some of the operators includes those, not all.
target_compile_definitions(lathe_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 AT_PER_OPERATOR_HEADERS)

# at::parallel_for is a template: without -fopenmp our copies of it run on one thread, silently. The
# runtime is the one torch itself uses, so that there is one pool of threads and at::set_num_threads
# holds for both.
file(GLOB _torch_gomp ${LATHE_TORCH_DIR}/lib/libgomp*.so* ${LATHE_TORCH_DIR}/../torch.libs/libgomp*.so*)
if(NOT _torch_gomp)
  message(FATAL_ERROR "no libgomp beside libtorch in '${LATHE_TORCH_DIR}'")
endif()
list(GET _torch_gomp 0 _torch_gomp)
target_compile_options(lathe_torch INTERFACE $<IF:$<BOOL:${LATHE_CHECK_ONLY}>,-fopenmp-simd,-fopenmp>)
target_link_libraries(lathe_torch INTERFACE ${_torch_gomp})

# A wheel for GPUs: what libtorch_cuda.so registers when it is loaded makes the device known. CUDA's
# own libraries need not be here to link; the wheel looks for them beside itself.
if(EXISTS ${LATHE_TORCH_DIR}/lib/libtorch_cuda.so)
  target_link_libraries(lathe_torch INTERFACE torch_cuda c10_cuda)
  target_link_options(lathe_torch INTERFACE "LINKER:--allow-shlib-undefined")
endif()

# One precompiled header for all torch code: a file takes 3 s with it and 8 to 20 s without.
file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cc.in "\n")
configure_file(${CMAKE_BINARY_DIR}/torch_pch.cc.in ${CMAKE_BINARY_DIR}/torch_pch.cc COPYONLY)
add_library(lathe_torch_pch STATIC ${CMAKE_BINARY_DIR}/torch_pch.cc)
lathe_compile_options(lathe_torch_pch)
target_link_libraries(lathe_torch_pch PUBLIC lathe_torch)
# The header is ours, and lists nothing but ATen.
target_precompile_headers(lathe_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/services/worker/aten.h <absl/status/statusor.h>
                          <absl/strings/str_format.h> <map> <memory> <string> <vector>)
target_link_libraries(lathe_torch_pch PUBLIC absl::statusor absl::str_format)
