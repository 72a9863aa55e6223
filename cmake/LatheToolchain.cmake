# Global compiler settings that all presets share. No setting here is specific to a target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Set for all targets: a precompiled header is usable only by files compiled with the same flags.
add_compile_options(-pthread)

# Avoids repeated garbage collections in GCC, each of which would scan a whole precompiled header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=4000000 --param=ggc-min-expand=1000)
endif()

find_program(LATHE_CCACHE ccache)
if(LATHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT LATHE_CHECK_ONLY)
  # ccache can cache a precompiled header only if it may ignore time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=--param=ggc* ${LATHE_CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

# Position-independent programs (ASLR), and relocated data that becomes read-only.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)

find_program(LATHE_MOLD mold)
if(LATHE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(LATHE_SANITIZER "" CACHE STRING "address (with undefined) or thread; torch-free targets only")
if(LATHE_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(LATHE_SANITIZER STREQUAL "thread")
  # Asio also uses memory fences, which the sanitizer does not support (-Wno-tsan).
  add_compile_options(-fsanitize=thread -Wno-tsan)
  add_link_options(-fsanitize=thread)
endif()
