#include "comm/gloo_module.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "comm/gloo/module.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

ConnectGloo* open_module() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::string why = "it is not there; a build with gloo (package libgloo-dev) makes it";
  for (const fs::path& place : {folder, folder.parent_path() / "lib",
                                folder.parent_path() / "lib" / "minisgl", folder.parent_path()}) {
    const fs::path file = place / kGlooModuleName;
    if (!fs::exists(file, ignored)) continue;
    void* module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      why = ::dlerror();
      continue;
    }
    if (void* symbol = ::dlsym(module, kConnectGlooSymbol); symbol != nullptr)
      return reinterpret_cast<ConnectGloo*>(symbol);
    why = file.string() + " is no module of this program";
  }
  throw Error("several ranks need " + std::string(kGlooModuleName) + " beside the program or in " +
              (folder.parent_path() / "lib").string() + ": " + why);
}

}  // namespace

std::unique_ptr<Transport> connect_with_gloo(Rendezvous& rendezvous,
                                             std::chrono::milliseconds timeout) {
  static ConnectGloo* const connect = open_module();
  return std::unique_ptr<Transport>(connect(rendezvous, timeout));
}

}  // namespace minisgl
