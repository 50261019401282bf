#include "kernels/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <optional>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace minisgl::kernels::gpu {
namespace {

/// Of the version whose header this was built with: another one may have other structures.
std::string library_name() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

std::optional<CublasLt> open_library() {
  const std::string name = library_name();
  void* library = nullptr;
  std::string why;
  for (const std::string& path : {name, "/usr/local/cuda/lib64/" + name}) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (why.empty()) why = dlerror();
  }
  if (library == nullptr) {
    log::warning(
        "large matrix products will be slow: {} cannot be opened ({}); install cuBLAS {} or "
        "name its folder in LD_LIBRARY_PATH",
        name, why, CUBLAS_VER_MAJOR);
    return std::nullopt;
  }
  CublasLt functions;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    check(function != nullptr, name, " has no function ", symbol);
  };
  find(functions.create, "cublasLtCreate");
  find(functions.destroy, "cublasLtDestroy");
  find(functions.matmul, "cublasLtMatmul");
  find(functions.desc_create, "cublasLtMatmulDescCreate");
  find(functions.desc_destroy, "cublasLtMatmulDescDestroy");
  find(functions.desc_set, "cublasLtMatmulDescSetAttribute");
  find(functions.layout_create, "cublasLtMatrixLayoutCreate");
  find(functions.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(functions.preference_create, "cublasLtMatmulPreferenceCreate");
  find(functions.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(functions.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(functions.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(functions.check_algorithm, "cublasLtMatmulAlgoCheck");
  find(functions.status_string, "cublasLtGetStatusString");
  return functions;
}

}  // namespace

const CublasLt* cublas_lt() {
  static const std::optional<CublasLt> functions = open_library();
  return functions ? &*functions : nullptr;
}

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  check(false, what, ": cuBLASLt says ", cublas_lt()->status_string(status));
}

}  // namespace minisgl::kernels::gpu
