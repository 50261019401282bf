// NCCL, opened while the program runs. For files below cuda/.

#pragma once

#include <nccl.h>

namespace minisgl::gpu {

/// The functions that we call, by their own names.
struct Nccl {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
};

/// Looked for as the dynamic loader does (LD_LIBRARY_PATH, ldconfig) and in /usr/local/cuda. Throws
/// Error saying what to install if it is not there.
const Nccl& nccl();

/// Throws Error with NCCL's words for `status` and what was done, unless it is success.
void check_nccl(ncclResult_t status, const char* what);

}  // namespace minisgl::gpu
