// cuBLASLt, opened while the program runs. For files below cuda/.

#pragma once

#include <cublasLt.h>

namespace minisgl::kernels::gpu {

/// The functions that we call, by their own names.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
};

/// Null, after one warning that says why, where the library cannot be opened. It is looked for as
/// the dynamic loader does (LD_LIBRARY_PATH, ldconfig) and in /usr/local/cuda/lib64.
const CublasLt* cublas_lt();

/// Throws Error with cuBLAS's words for `status` and what was done, unless it is success.
void check_cublas(cublasStatus_t status, const char* what);

}  // namespace minisgl::kernels::gpu
