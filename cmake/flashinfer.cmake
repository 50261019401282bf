# FlashInfer's headers (Apache-2.0) and the CUTLASS headers (BSD-3-Clause) that its package carries:
# attention on GPUs is built from them, and from the sources of XQA, TensorRT-LLM's kernel for decode
# steps, which it carries as well (Apache-2.0). Nothing of the package runs.
#
# The package is downloaded once into MINISGL_DOWNLOADS and checked against its hash; pip takes index,
# proxy and certificates from the user's own configuration. A checkout without network needs that one
# file there. MINISGL_FLASHINFER_DIR names an unpacked package instead.
set(MINISGL_FLASHINFER AUTO CACHE STRING "Build with FlashInfer's attention: AUTO (if it can be had), ON or OFF")
set_property(CACHE MINISGL_FLASHINFER PROPERTY STRINGS AUTO ON OFF)
set(MINISGL_FLASHINFER_DIR "" CACHE PATH "An unpacked flashinfer-python 0.5.3 (nothing is downloaded)")
set(MINISGL_DOWNLOADS ${CMAKE_SOURCE_DIR}/.cache/downloads CACHE PATH "Where downloads are kept")

set(MINISGL_HAS_FLASHINFER OFF)
set(flashinfer_wheel flashinfer_python-0.5.3-py3-none-any.whl)
set(flashinfer_sha256 b601293b72f9138bad173edc28df84b9f239a013be974e2e79d4ba98aeb38cf5)

# Sets flashinfer_problem to why there is no such file afterwards, or to nothing.
function(minisgl_download_flashinfer file)
  set(flashinfer_problem "" PARENT_SCOPE)
  if(NOT EXISTS ${file})
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(NOT Python3_FOUND)
      set(flashinfer_problem "there is no python3 to download it with" PARENT_SCOPE)
      return()
    endif()
    set(folder ${CMAKE_BINARY_DIR}/_deps/download)
    file(WRITE ${folder}/requirements.txt "flashinfer-python==0.5.3 --hash=sha256:${flashinfer_sha256}\n")
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --disable-pip-version-check --no-deps
              --only-binary :all: --require-hashes --requirement ${folder}/requirements.txt --dest ${folder}
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
    if(NOT status EQUAL 0)
      string(STRIP "${output}" output)
      string(REGEX REPLACE ".*\n" "" output "${output}")
      set(flashinfer_problem "the download failed: ${output}" PARENT_SCOPE)
      return()
    endif()
    file(COPY ${folder}/${flashinfer_wheel} DESTINATION ${MINISGL_DOWNLOADS})
  endif()
  file(SHA256 ${file} found)
  if(NOT found STREQUAL flashinfer_sha256)
    set(flashinfer_problem "${file} has the SHA-256 ${found}, not ${flashinfer_sha256}: delete it" PARENT_SCOPE)
  endif()
endfunction()

if(MINISGL_HAS_CUDA AND MINISGL_FLASHINFER)
  set(flashinfer_problem "")
  set(flashinfer_dir ${MINISGL_FLASHINFER_DIR})
  if(NOT flashinfer_dir)
    set(flashinfer_dir ${CMAKE_BINARY_DIR}/_deps/flashinfer-0.5.3)
    if(NOT EXISTS ${flashinfer_dir}/complete-with-xqa)
      minisgl_download_flashinfer(${MINISGL_DOWNLOADS}/${flashinfer_wheel})
      if(NOT flashinfer_problem)
        file(ARCHIVE_EXTRACT INPUT ${MINISGL_DOWNLOADS}/${flashinfer_wheel} DESTINATION ${flashinfer_dir} PATTERNS
          "flashinfer/data/include/*" "flashinfer/data/cutlass/include/*"
          "flashinfer/data/cutlass/tools/util/include/*" "flashinfer/data/csrc/xqa/*" "*dist-info/*")
        file(TOUCH ${flashinfer_dir}/complete-with-xqa)
      endif()
    endif()
  elseif(NOT EXISTS ${flashinfer_dir}/flashinfer/data/include/flashinfer
         OR NOT EXISTS ${flashinfer_dir}/flashinfer/data/csrc/xqa/mha.cu)
    set(flashinfer_problem "MINISGL_FLASHINFER_DIR has no flashinfer/data/include/flashinfer or no "
                           "flashinfer/data/csrc/xqa/mha.cu")
  endif()
  if(NOT flashinfer_problem)
    set(MINISGL_HAS_FLASHINFER ON)
    set(MINISGL_HAS_HOPPER 0)  # Hopper's own instructions are in the code for 90a alone
    if("90a" IN_LIST MINISGL_CUDA_ARCHITECTURES)
      set(MINISGL_HAS_HOPPER 1)
    endif()
    add_library(flashinfer_headers INTERFACE)
    target_include_directories(flashinfer_headers SYSTEM INTERFACE
      ${flashinfer_dir}/flashinfer/data/include ${flashinfer_dir}/flashinfer/data/cutlass/include
      ${flashinfer_dir}/flashinfer/data/cutlass/tools/util/include)
    set_property(GLOBAL APPEND PROPERTY JOB_POOLS flashinfer=1)  # some of its files take 3.5 GB to compile
    message(STATUS "FlashInfer: 0.5.3")
  elseif(MINISGL_FLASHINFER STREQUAL "AUTO")
    message(WARNING "FlashInfer: off, ${flashinfer_problem}. Attention to prompts on GPUs is slower without it, and "
                    "the attention backend fi does not run there")
  else()
    message(FATAL_ERROR "MINISGL_FLASHINFER is ${MINISGL_FLASHINFER}, but ${flashinfer_problem}")
  endif()
endif()

# Adds XQA's kernels to `target`: each is a translation unit of its own (3 s of processor time), as its
# parameters are macros. The same lists as in src/kernels/cuda/flashinfer/xqa_variants.h.
function(minisgl_add_xqa target)
  if(NOT MINISGL_HAS_FLASHINFER)
    return()
  endif()
  set(sources "")
  foreach(dim IN ITEMS 64 128)
    foreach(group RANGE 1 8)
      set(file ${CMAKE_BINARY_DIR}/generated/xqa/xqa_d${dim}_g${group}.cu)
      file(CONFIGURE OUTPUT ${file} CONTENT
"#define HEAD_ELEMS @dim@
#define HEAD_GRP_SIZE @group@
#include \"kernels/cuda/flashinfer/xqa_variant.cuh\"
" @ONLY)
      list(APPEND sources ${file})
    endforeach()
  endforeach()
  add_library(minisgl_xqa OBJECT ${sources})
  target_include_directories(minisgl_xqa PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(minisgl_xqa SYSTEM PRIVATE ${flashinfer_dir}/flashinfer/data/csrc/xqa)
  target_link_libraries(minisgl_xqa PRIVATE minisgl_tensor CUDA::cudart_static)
  target_compile_options(minisgl_xqa PRIVATE --expt-relaxed-constexpr -w)
  set_target_properties(minisgl_xqa PROPERTIES JOB_POOL_COMPILE cuda)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:minisgl_xqa>)
endfunction()
