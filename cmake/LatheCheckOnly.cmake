# LATHE_CHECK_ONLY: the compiler reads every file and reports, and writes no code. Only clang knows the
# lock annotations (ABSL_GUARDED_BY and its kin); preset `clang` and tools/checks/thread_safety use this.
# Each step leaves an empty file where its output would be, so ninja repeats only what has changed.
option(LATHE_CHECK_ONLY "clang reads the files and reports; nothing can be run afterwards" OFF)

# lathe_skip_in_check(a.cc b.cc): files in terms of GCC's vector extensions, which clang lacks in part.
function(lathe_skip_in_check)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ${LATHE_CHECK_ONLY})
endfunction()

if(NOT LATHE_CHECK_ONLY)
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "LATHE_CHECK_ONLY needs clang; tools/setup_check installs it")
endif()

# Flags that come later still make precompiled headers; -Xclang tells where to.
set(_touch "${CMAKE_COMMAND} -E touch")
set(CMAKE_CXX_COMPILE_OBJECT
    "<CMAKE_CXX_COMPILER> -fsyntax-only -Xclang -o -Xclang <OBJECT> <DEFINES> <INCLUDES> <FLAGS> -c <SOURCE>"
    "${_touch} <OBJECT>")
set(CMAKE_CXX_ARCHIVE_CREATE "${_touch} <TARGET>")
set(CMAKE_CXX_ARCHIVE_FINISH "")
set(CMAKE_CXX_LINK_EXECUTABLE "${_touch} <TARGET>")
set(CMAKE_CXX_COMPILER_LAUNCHER "")

# GCC's warnings and pragmas are given to clang as well. In libstdc++ 12 std::stable_sort itself calls
# a deprecated function.
add_compile_options(-Wthread-safety -Wno-unknown-warning-option -Wno-unknown-pragmas
                    -Wno-deprecated-declarations)
