# MINISGL_CUDA decides whether the code for NVIDIA GPUs is built. It needs nvcc, but no GPU and no
# driver: cudart is linked statically and all other libraries are opened when a GPU is first used, so
# that one binary serves both kinds of machine.
set(MINISGL_CUDA AUTO CACHE STRING "Build for NVIDIA GPUs: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE MINISGL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MINISGL_CUDA_ARCHITECTURES 90a CACHE STRING "GPU architectures to build for, as CMake names them")

set(MINISGL_HAS_CUDA OFF)
if(MINISGL_CUDA STREQUAL "AUTO" AND MINISGL_SANITIZE)
  message(STATUS "CUDA: off (sanitizers)")
elseif(MINISGL_CUDA)
  find_program(MINISGL_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(MINISGL_NVCC)
    set(MINISGL_HAS_CUDA ON)
  elseif(MINISGL_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: off (no nvcc)")
  else()
    message(FATAL_ERROR "MINISGL_CUDA is ${MINISGL_CUDA}, but there is no nvcc: install the CUDA toolkit, "
                        "set MINISGL_NVCC, or set MINISGL_CUDA=OFF")
  endif()
else()
  message(STATUS "CUDA: off")
endif()

if(MINISGL_HAS_CUDA)
  # Both before the language is enabled: CMake tries the compiler, with an architecture that new
  # versions of nvcc do not know unless it is told another.
  set(CMAKE_CUDA_COMPILER ${MINISGL_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${MINISGL_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: 12.8 or newer is needed, or MINISGL_CUDA=OFF")
  endif()
  find_package(CUDAToolkit REQUIRED)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc knows C++20 since 12.0, CMake's table since 3.26
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(MINISGL_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${MINISGL_CCACHE})
  endif()
  # So that programs run from a folder with copies of their libraries (scripts/package_gpu).
  # DT_RPATH, not DT_RUNPATH: the latter does not count for what a library needs in its turn.
  set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
  add_link_options(-Wl,--disable-new-dtags)
  # Each compiler of device code may take some gigabytes.
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS cuda=2)
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${MINISGL_CUDA_ARCHITECTURES}")
endif()
