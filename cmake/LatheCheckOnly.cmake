# LATHE_CHECK_ONLY: the compiler checks every file and generates no code. Preset `clang` and
# tools/checks/thread_safety use it, since only clang checks lock annotations (ABSL_GUARDED_BY).
# Each step creates an empty output file, so that ninja repeats only the steps whose inputs changed.
option(LATHE_CHECK_ONLY "clang reads the files and reports; nothing can be run afterwards" OFF)

# lathe_skip_in_check(a.cc b.cc): skips files with GCC vector extensions that clang lacks.
function(lathe_skip_in_check)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ${LATHE_CHECK_ONLY})
endfunction()

if(NOT LATHE_CHECK_ONLY)
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "LATHE_CHECK_ONLY needs clang; tools/setup_check installs it")
endif()

# Later flags still produce precompiled headers; -Xclang -o sets their path.
set(_touch "${CMAKE_COMMAND} -E touch")
set(CMAKE_CXX_COMPILE_OBJECT
    "<CMAKE_CXX_COMPILER> -fsyntax-only -Xclang -o -Xclang <OBJECT> <DEFINES> <INCLUDES> <FLAGS> -c <SOURCE>"
    "${_touch} <OBJECT>")
set(CMAKE_CXX_ARCHIVE_CREATE "${_touch} <TARGET>")
set(CMAKE_CXX_ARCHIVE_FINISH "")
set(CMAKE_CXX_LINK_EXECUTABLE "${_touch} <TARGET>")
set(CMAKE_CXX_COMPILER_LAUNCHER "")

# Clang also receives GCC's warning options and pragmas. std::stable_sort of libstdc++ 12 calls a
# deprecated function.
add_compile_options(-Wthread-safety -Wno-unknown-warning-option -Wno-unknown-pragmas
                    -Wno-deprecated-declarations)
