# lathe_library(NAME engine_core SOURCES a.cc b.cc DEPS lathe::common_time PRIVATE_DEPS SQLiteCpp [TORCH])
#   One static library per folder: target lathe_engine_core, alias lathe::engine_core.
# lathe_test(NAME ledger_test SOURCES ledger_test.cc DEPS lathe::engine_ledger [LABELS unit] [LAUNCHER a b] [TORCH])
#   One Catch2 binary, registered with ctest under NAME. LAUNCHER: a command that runs it.
# lathe_binary(NAME lathe-engine SOURCES main.cc DEPS ...)
#
# Options:
#   TORCH links libtorch and uses its precompiled header.
#   PCH grpc|web|none uses that precompiled header (LatheHeaders.cmake) instead of `base`.
#   NO_UNITY compiles each file alone, for files that set macros or include each other.
#   COLD compiles at -O1, for code that mostly calls other code. Tests are always COLD.

option(LATHE_UNITY "compile the files of a target together: a whole build is faster, one changed file slower" ON)
set(LATHE_UNITY_BATCH 48 CACHE STRING "files compiled together at most")

# Compiles a target's files together, because most of a file's compile time is spent in headers.
function(lathe_use_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LATHE_UNITY} UNITY_BUILD_BATCH_SIZE ${LATHE_UNITY_BATCH})
  if(LATHE_UNITY)
    # A unity file includes the .cc files, so the compiler warns about local types as in headers.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

function(lathe_is_cold target)
  if(LATHE_CHECK_ONLY)
    return()  # clang accepts a precompiled header only at the same optimisation level
  endif()
  # At -O1, -Wmaybe-uninitialized gives false warnings.
  target_compile_options(${target} PRIVATE -O1 -Wno-maybe-uninitialized)
endfunction()

# Excludes generated code from the address sanitizer, which would triple its compile time.
function(lathe_is_generated target)
  if(LATHE_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
endfunction()

function(lathe_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                           -Woverloaded-virtual
                         # fields that designated initializers omit get their defaults
                         -Wno-missing-field-initializers)
  # In instrumented builds, the compiler warns about code of the standard library.
  if(NOT LATHE_SANITIZER)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

function(lathe_use_torch target)
  target_link_libraries(${target} PUBLIC lathe::torch)
  lathe_use_pch(${target} torch)
endfunction()

# Executables also need -fPIC, because the precompiled header was compiled with it.
function(lathe_use_pch target name)
  target_precompile_headers(${target} REUSE_FROM lathe_${name}_pch)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# Applies the options that libraries, programs and tests share. Reads the caller's ARG_* variables.
macro(lathe_compile target)
  lathe_compile_options(${target})
  if(NOT ARG_NO_UNITY)
    lathe_use_unity(${target})
  endif()
  if(ARG_COLD)
    lathe_is_cold(${target})
  endif()
  if(ARG_TORCH)
    lathe_use_torch(${target})
  elseif(NOT ARG_PCH)
    lathe_use_pch(${target} base)
  elseif(NOT ARG_PCH STREQUAL "none")
    lathe_use_pch(${target} ${ARG_PCH})
  endif()
endmacro()

function(lathe_library)
  cmake_parse_arguments(ARG "TORCH;NO_UNITY;COLD" "NAME;PCH" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(lathe_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(lathe::${ARG_NAME} ALIAS lathe_${ARG_NAME})
  target_link_libraries(lathe_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  lathe_compile(lathe_${ARG_NAME})
endfunction()

# Defines an INTERFACE target for a folder that has only headers.
function(lathe_header_library)
  cmake_parse_arguments(ARG "" "NAME" "DEPS" ${ARGN})
  add_library(lathe_${ARG_NAME} INTERFACE)
  add_library(lathe::${ARG_NAME} ALIAS lathe_${ARG_NAME})
  target_include_directories(lathe_${ARG_NAME} INTERFACE ${CMAKE_SOURCE_DIR})
  target_link_libraries(lathe_${ARG_NAME} INTERFACE ${ARG_DEPS})
endfunction()

function(lathe_binary)
  cmake_parse_arguments(ARG "TORCH;NO_UNITY;COLD" "NAME;PCH" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  lathe_compile(${ARG_NAME})
endfunction()

function(lathe_test)
  cmake_parse_arguments(ARG "TORCH;NO_UNITY" "NAME;PCH" "SOURCES;DEPS;LABELS;LAUNCHER" ${ARGN})
  set(ARG_COLD ON)
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE lathe::catch_main ${ARG_DEPS})
  lathe_compile(${ARG_NAME})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_LAUNCHER} $<TARGET_FILE:${ARG_NAME}>)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT $<IF:$<BOOL:${LATHE_SANITIZER}>,3000,600>)
endfunction()
