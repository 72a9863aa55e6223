# What `cmake --install` copies, as components that images, .deb packages and the wheel combine.
#   cli       `lathe`, which every package has
#   control   gateway and engine; no torch
#   worker    worker and export; they find libtorch in ../lib/lathe
#   torch     libtorch for CPUs out of the wheel, for packages without a Python environment
#   control_units, worker_units   systemd

# The folder of libtorch beside the folder of the programs. A Python wheel adds that of its torch.
set(LATHE_PRIVATE_LIBDIR lib/lathe)
set_target_properties(lathe-worker lathe-export PROPERTIES
                      INSTALL_RPATH "$ORIGIN/../${LATHE_PRIVATE_LIBDIR}")

install(TARGETS lathe RUNTIME DESTINATION bin COMPONENT cli)
install(TARGETS lathe-engine lathe-gateway RUNTIME DESTINATION bin COMPONENT control)
install(TARGETS lathe-worker lathe-export RUNTIME DESTINATION bin COMPONENT worker)

# A wheel for GPUs needs NVIDIA's wheels too: deploy/images/Dockerfile.cuda copies them.
if(NOT LATHE_HAS_CUDA)
  install(FILES ${LATHE_TORCH_DIR}/lib/libtorch_cpu.so ${LATHE_TORCH_DIR}/lib/libc10.so ${_torch_gomp}
          DESTINATION ${LATHE_PRIVATE_LIBDIR} COMPONENT torch)
endif()

set(_units ${CMAKE_SOURCE_DIR}/deploy/systemd)
install(FILES ${_units}/lathe.service ${_units}/lathe-engine.service ${_units}/lathe-gateway.service
        DESTINATION lib/systemd/system COMPONENT control_units)
install(FILES ${_units}/lathe-worker@.service DESTINATION lib/systemd/system COMPONENT worker_units)
