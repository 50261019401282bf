# Constrained output: the library xgrammar, from its source distribution. Only its C++ core is built;
# it has no dependency beyond two headers that come with it (dlpack, picojson).
option(MINISGL_GRAMMAR "Constrained output (JSON schemas, grammars); needs xgrammar's sources" ON)
if(NOT MINISGL_GRAMMAR)
  message(STATUS "Constrained output: off")
  return()
endif()

set(xgrammar_version 0.2.9)
set(xgrammar_sha256 87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90)
set(MINISGL_DOWNLOADS ${CMAKE_SOURCE_DIR}/.cache/downloads CACHE PATH "Where downloads are kept")
set(xgrammar_dir ${CMAKE_SOURCE_DIR}/.cache/xgrammar-${xgrammar_version})
if(NOT EXISTS ${xgrammar_dir}/cpp)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  message(STATUS "Constrained output: fetching xgrammar ${xgrammar_version}")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/fetch_sdist.py xgrammar ${xgrammar_version}
      ${xgrammar_sha256} ${MINISGL_DOWNLOADS} ${xgrammar_dir} cpp include LICENSE NOTICE
      3rdparty/dlpack/include 3rdparty/dlpack/LICENSE 3rdparty/picojson/picojson.h
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "xgrammar ${xgrammar_version} could not be fetched. Put its source distribution, "
      "xgrammar-${xgrammar_version}.tar.gz, into ${MINISGL_DOWNLOADS}, or build without constrained output: "
      "MINISGL_GRAMMAR=OFF")
  endif()
endif()

# Corrects a fault of this version: `right` in place of `wrong` in a source file.
function(xgrammar_correct file wrong right)
  file(READ ${xgrammar_dir}/${file} source)
  string(FIND "${source}" "${right}" found)
  if(NOT found EQUAL -1)
    return()
  endif()
  string(REPLACE "${wrong}" "${right}" corrected "${source}")
  if(corrected STREQUAL source)
    message(FATAL_ERROR "${xgrammar_dir}/${file} is not that of xgrammar ${xgrammar_version}; delete ${xgrammar_dir}")
  endif()
  file(WRITE ${xgrammar_dir}/${file} "${corrected}")
endfunction()

# "X?" could be entered in the middle if X can repeat at its end: "(a[0-9]+)?" accepted "1". The empty
# match gets a state of its own.
xgrammar_correct(cpp/fsm.cc [=[
  if (!ends_.empty()) {
    fsm.AddEpsilonEdge(start_, ends_.front());
  }
  return FSMWithStartEnd(fsm, start_, ends_);
]=] [=[
  const auto start = fsm.AddState();
  fsm.AddEpsilonEdge(start, start_);
  auto ends = ends_;
  ends.push_back(start);
  return FSMWithStartEnd(fsm, start, ends);
]=])
# States were merged with each other that had only been merged with the same third one: "a-?|a"
# accepted "a--".
xgrammar_correct(cpp/fsm.cc [=[
      if (outgoing_count == 0) {
        if (result.IsEndState(i)) {
]=] [=[
      if (outgoing_count == 0) {
        if (union_find_set.Count(i)) continue;
        if (result.IsEndState(i)) {
]=])
# The repetition of "X{n,}" was entered in the middle if X can repeat at its end: "(a|ba*){1,}c" let
# further letters in. It is n - 1 times X, then X one or more times.
xgrammar_correct(cpp/fsm_builder.cc [=[
  // Handling {n,}
  if (!has_upper_bound) {
    for (int i = 2;]=] [=[
  // Handling {n,}
  if (!has_upper_bound) {
    std::vector<FSMWithStartEnd> parts(std::max(0, state.lower_bound - 1), child);
    parts.push_back(state.lower_bound == 0 ? child.Star() : child.Plus());
    return ResultOk(FSMWithStartEnd::Concat(parts));
    for (int i = 2;]=])
# Strings of bounded length could hold control characters, which JSON does not allow.
xgrammar_correct(cpp/json_schema_converter.cc [=[
          builder_.AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);
]=] [=[
          builder_.AddCharacterClass({{0x00, 0x1F}, {'"', '"'}, {'\\', '\\'}}, true);
]=])
message(STATUS "Constrained output: xgrammar ${xgrammar_version}")
# Fetched again when somebody has deleted it.
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${xgrammar_dir}/include/xgrammar/xgrammar.h)

file(GLOB xgrammar_sources ${xgrammar_dir}/cpp/*.cc
  ${xgrammar_dir}/cpp/converter_ext/*.cc ${xgrammar_dir}/cpp/support/*.cc)
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
target_include_directories(xgrammar SYSTEM PUBLIC ${xgrammar_dir}/include
  ${xgrammar_dir}/3rdparty/dlpack/include)
target_include_directories(xgrammar SYSTEM PRIVATE ${xgrammar_dir}/3rdparty/picojson)
# What it warns of (a keyword that it ignores, say) must reach the request: src/grammar/ takes its log.
set(xgrammar_definitions XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
target_compile_definitions(xgrammar PRIVATE ${xgrammar_definitions})
# Compiling a grammar is slow without optimisation, and not ours to debug.
target_compile_options(xgrammar PRIVATE -w -O2)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 EXPORT_COMPILE_COMMANDS OFF)

# For src/grammar/, which also looks at what has no public header.
add_library(xgrammar_sources INTERFACE)
target_include_directories(xgrammar_sources SYSTEM INTERFACE ${xgrammar_dir}/cpp
  ${xgrammar_dir}/3rdparty/picojson)
target_compile_definitions(xgrammar_sources INTERFACE ${xgrammar_definitions} MINISGL_HAS_GRAMMAR=1)
target_link_libraries(xgrammar_sources INTERFACE xgrammar)
