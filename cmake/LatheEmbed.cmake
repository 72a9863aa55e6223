# lathe_embed(NAME gateway_docs_files FUNCTION DocsFiles DIRECTORY docs_page DEPENDS docs_page/index.html ...)
#   Library lathe::NAME with lathe::gateway::FUNCTION(), which returns all files of the directory. It is
#   read at build time, so another command may make it; DEPENDS names what to wait for.
#
# The build runs this file as a script too. It then writes a .cc whose assembler part includes the
# bytes (.incbin) and whose table describes them.

# Types of files, and those of them that gzip makes smaller.
set(_embed_types html=text/html|charset=utf-8 css=text/css|charset=utf-8
                 js=text/javascript|charset=utf-8 json=application/json svg=image/svg+xml
                 txt=text/plain|charset=utf-8 woff2=font/woff2)
set(_embed_compressed html css js json svg txt)

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(LATHE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  find_program(LATHE_GZIP gzip)

  function(lathe_embed)
    cmake_parse_arguments(ARG "" "NAME;FUNCTION;DIRECTORY" "DEPENDS" ${ARGN})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}.cc)
    add_custom_command(
      OUTPUT ${source}
      COMMAND ${CMAKE_COMMAND} -D NAME=${ARG_NAME} -D FUNCTION=${ARG_FUNCTION} -D DIRECTORY=${ARG_DIRECTORY}
              -D OUT=${source} -D GZIP=$<$<BOOL:${LATHE_GZIP}>:${LATHE_GZIP}> -P ${LATHE_EMBED_SCRIPT}
      DEPENDS ${ARG_DEPENDS} ${LATHE_EMBED_SCRIPT}
      COMMENT "Embedding ${ARG_NAME}" VERBATIM)
    lathe_library(NAME ${ARG_NAME} NO_UNITY PCH none SOURCES ${source})
  endfunction()
  return()
endif()

cmake_minimum_required(VERSION 3.25)

# Writes a variant compressed by gzip and sets `variable` to its path, or to "" if there is none.
function(compress path number variable)
  set(${variable} "" PARENT_SCOPE)
  get_filename_component(extension ${path} LAST_EXT)
  string(SUBSTRING ${extension} 1 -1 extension)
  if(NOT GZIP OR NOT extension IN_LIST _embed_compressed)
    return()
  endif()
  set(compressed ${OUT}.${number}.gz)
  execute_process(COMMAND ${GZIP} -9 -n -c ${path} OUTPUT_FILE ${compressed} COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} ${compressed} PARENT_SCOPE)
endfunction()

function(type_of path variable)
  get_filename_component(extension ${path} LAST_EXT)
  foreach(entry IN LISTS _embed_types)
    if(".${entry}" MATCHES "^${extension}=(.*)$")
      string(REPLACE "|" "; " type "${CMAKE_MATCH_1}")
      set(${variable} "${type}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${path}: LatheEmbed.cmake has no type for ${extension}")
endfunction()

# Appends the bytes of `path` under `symbol`.
macro(include_bytes path symbol)
  string(APPEND assembler ".global ${symbol}\n.hidden ${symbol}\n${symbol}:\n.incbin \"${path}\"\n"
                          ".global ${symbol}_end\n.hidden ${symbol}_end\n${symbol}_end:\n.byte 0\n")
  string(APPEND declared "extern const char ${symbol}[];\nextern const char ${symbol}_end[];\n")
endmacro()

file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${DIRECTORY} ${DIRECTORY}/*)
list(SORT files)
set(number 0)
foreach(file IN LISTS files)
  set(path ${DIRECTORY}/${file})
  set(symbol lathe_${NAME}_${number})
  type_of(${path} type)
  file(SHA256 ${path} digest)
  include_bytes(${path} ${symbol})
  compress(${path} ${number} compressed)
  set(variant "{}")
  if(compressed)
    include_bytes(${compressed} ${symbol}_gzip)
    set(variant "Bytes(${symbol}_gzip, ${symbol}_gzip_end)")
  endif()
  string(APPEND table "      {\"${file}\", \"${type}\", \"${digest}\", Bytes(${symbol}, ${symbol}_end), ${variant}},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE ${OUT} "// Written by LatheEmbed.cmake.
#include \"services/api-gateway/assets/embedded_file.h\"

asm(R\"(.section .rodata
${assembler}.previous
)\");

extern \"C\" {
${declared}}

namespace lathe::gateway {
namespace {

std::string_view Bytes(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() {
  static const EmbeddedFile kFiles[] = {
${table}  };
  return kFiles;
}

}  // namespace lathe::gateway
")
