#include "comm/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>

#include "base/check.h"

namespace minisgl::gpu {
namespace {

Nccl open_library() {
  // Sums in the switch need multicast memory, which not every machine gives to its containers: NCCL
  // then fails when it first runs, and not where it is set up.
  ::setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/0);
  const std::string name = "libnccl.so." + std::to_string(NCCL_MAJOR);
  void* library = nullptr;
  std::string why;
  for (const std::string& path :
       {name, "/usr/local/cuda/lib64/" + name, "/usr/local/cuda/lib/" + name}) {
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (why.empty()) why = ::dlerror();
  }
  if (library == nullptr)
    throw Error("several GPUs need " + name + ", which cannot be opened (" + why +
                "): install NCCL or name its folder in LD_LIBRARY_PATH");
  Nccl functions;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    check(function != nullptr, name, " has no function ", symbol);
  };
  find(functions.get_unique_id, "ncclGetUniqueId");
  find(functions.init_rank, "ncclCommInitRank");
  find(functions.destroy, "ncclCommDestroy");
  find(functions.abort, "ncclCommAbort");
  find(functions.all_reduce, "ncclAllReduce");
  find(functions.all_gather, "ncclAllGather");
  find(functions.error_string, "ncclGetErrorString");
  return functions;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl functions = open_library();
  return functions;
}

void check_nccl(ncclResult_t status, const char* what) {
  if (status == ncclSuccess) [[likely]]
    return;
  check(false, what, ": NCCL says ", nccl().error_string(status));
}

}  // namespace minisgl::gpu
