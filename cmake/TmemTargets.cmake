# SPDX-License-Identifier: GPL-2.0-only
# How every target of the project is built: warnings, sanitizers, include root, test registration.
#
#   tmem_library(name [SRCS a.cc ...] [DEPS lib ...])        static; header-only without SRCS
#   tmem_binary(name SRCS main.cc ... [DEPS lib ...])        program, lands in <build>/bin
#   tmem_test(name SRCS a_test.cc ... [DEPS lib ...]         Google Test program, known to ctest
#             [LABELS threads ...] [TIMEOUT_S n] [ARGS ...] [SERIAL] [NO_GTEST])
#   tmem_benchmark(name SRCS b_bench.cc ... [DEPS lib ...])  Google Benchmark program, not a test
#   tmem_add_folders(folder ...)                             add_subdirectory for each
#
# Tests labelled `threads` also run under ThreadSanitizer. NO_GTEST is for a test that has its own
# main and reports by exit code. SERIAL keeps a test from running beside another.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_SKIP_BUILD_RPATH ON)

set(TMEM_SANITIZE "" CACHE STRING "address (with undefined), thread, or nothing")
set_property(CACHE TMEM_SANITIZE PROPERTY STRINGS "" address thread)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Assertions stay on in every build: the daemon prefers to stop over going on with broken state.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

find_program(TMEM_CCACHE ccache)
if(TMEM_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${TMEM_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TMEM_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

# Flags of every target live in one interface library, so that nothing is built without them.
add_library(tmem_flags INTERFACE)
target_include_directories(tmem_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(tmem_flags INTERFACE Threads::Threads)
target_compile_options(tmem_flags INTERFACE
  -Wall -Wextra -Werror
  $<$<COMPILE_LANGUAGE:CXX>:-Wpedantic>
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety-beta>)

if(TMEM_SANITIZE STREQUAL "address")
  # -g1: reports need lines, not variables; builds are much smaller.
  set(tmem_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all
      -fno-omit-frame-pointer -O1 -g1)
elseif(TMEM_SANITIZE STREQUAL "thread")
  set(tmem_sanitize_flags -fsanitize=thread -fno-omit-frame-pointer -O1 -g1)
elseif(NOT TMEM_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TMEM_SANITIZE is '${TMEM_SANITIZE}': want address, thread or nothing")
endif()
if(TMEM_SANITIZE)
  target_compile_options(tmem_flags INTERFACE ${tmem_sanitize_flags})
  target_link_options(tmem_flags INTERFACE ${tmem_sanitize_flags})
  target_compile_definitions(tmem_flags INTERFACE TMEM_SANITIZED=1)
endif()

# libFuzzer exists only with Clang; it runs together with the address sanitizer.
if(TMEM_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(TMEM_FUZZ ON)
else()
  set(TMEM_FUZZ OFF)
endif()

function(tmem_add_folders)
  foreach(folder IN LISTS ARGN)
    add_subdirectory(${folder})
  endforeach()
endfunction()

function(tmem_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC tmem_flags ${arg_DEPS})
    if(TMEM_FUZZ)
      # Coverage that the fuzz targets steer by; counters only, since comparisons would slow tests.
      target_compile_options(${name} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize-coverage=inline-8bit-counters,pc-table>)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE tmem_flags ${arg_DEPS})
  endif()
endfunction()

function(tmem_binary name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE tmem_flags ${arg_DEPS})
endfunction()

function(tmem_test name)
  cmake_parse_arguments(arg "SERIAL;NO_GTEST" "TIMEOUT_S" "SRCS;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT_S)
    set(arg_TIMEOUT_S 300)  # generous: the machine may be shared, sanitizers cost 2-15x
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE tmem_flags ${arg_DEPS})
  if(NOT arg_NO_GTEST)
    target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT_S})
  if(arg_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
  endif()
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(tmem_benchmark name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE tmem_flags benchmark::benchmark_main ${arg_DEPS})
endfunction()
