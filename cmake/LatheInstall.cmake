# What `cmake --install` copies, as components that images, .deb packages and the wheel combine.
#   cli       `lathe`, which every package has
#   control   gateway and engine; no torch
#   worker    worker and export; they find libtorch in ../lib/lathe
#   torch     libtorch out of its wheel, for packages without a Python environment; for GPUs also
#             the libraries of NVIDIA's wheels
#   control_units, worker_units   systemd

# Folders of libtorch beside the folder of the programs. The programs of a Python wheel find that of
# its environment (tools/packaging_steps/wheel.py).
set(_lib lib/lathe)
set(_torch_rpath $ORIGIN/../${_lib})
if(LATHE_HAS_CUDA)
  set(_torch_rpath $ORIGIN/../${_lib}/torch/lib $ORIGIN/../${_lib}/nvidia/nccl/lib)
endif()
set_target_properties(lathe-worker lathe-export PROPERTIES INSTALL_RPATH "${_torch_rpath}")

install(TARGETS lathe RUNTIME DESTINATION bin COMPONENT cli)
install(TARGETS lathe-engine lathe-gateway RUNTIME DESTINATION bin COMPONENT control)
install(TARGETS lathe-worker lathe-export RUNTIME DESTINATION bin COMPONENT worker)

if(LATHE_HAS_CUDA)
  # The wheels' own layout, in which libtorch finds NVIDIA's libraries. Needs tools/setup_cuda --runtime.
  install(DIRECTORY ${LATHE_TORCH_DIR}/lib DESTINATION ${_lib}/torch COMPONENT torch
          FILES_MATCHING PATTERN "*.so*" PATTERN "libtorch_python*" EXCLUDE PATTERN "*_test.so" EXCLUDE)
  install(DIRECTORY ${_cuda_packages}/nvidia DESTINATION ${_lib} COMPONENT torch
          FILES_MATCHING PATTERN "lib/*.so*" PATTERN "include" EXCLUDE PATTERN "nvvm" EXCLUDE)
else()
  install(FILES ${LATHE_TORCH_DIR}/lib/libtorch_cpu.so ${LATHE_TORCH_DIR}/lib/libc10.so ${_torch_gomp}
          DESTINATION ${_lib} COMPONENT torch)
endif()

set(_units ${CMAKE_SOURCE_DIR}/deploy/systemd)
install(FILES ${_units}/lathe.service ${_units}/lathe-engine.service ${_units}/lathe-gateway.service
        DESTINATION lib/systemd/system COMPONENT control_units)
install(FILES ${_units}/lathe-worker@.service DESTINATION lib/systemd/system COMPONENT worker_units)
