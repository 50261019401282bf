// pull: a model from a hub into the cache.

#include <cstdio>
#include <memory>

#include "commands.h"
#include "minisgl/error.h"

#ifdef MINISGL_PULL
#include <atomic>
#include <csignal>

#include "base/env.h"
#include "hub/cache.h"
#include "pull/pull.h"
#include "pull_progress.h"
#endif

namespace minisgl::app {
namespace {

struct Options {
  std::string model;
  std::string revision;
  std::string source = "huggingface";
  std::vector<std::string> include;
};

#ifdef MINISGL_PULL

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

/// The first Ctrl-C ends the download where it can go on later, the second one the program.
void stop_on_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { stop_requested.store(true); };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

hub::ModelName name_of(const Options& options) {
  auto name = hub::parse_model_name(options.model);
  if (!name)
    throw Error("'" + options.model +
                "' is no name of a model; expected org/name, or org/name:Q4_K_M for a GGUF file");
  if (!options.revision.empty()) name->revision = options.revision;
  return *std::move(name);
}

/// Offline, what is in the cache has to do.
int find_offline(const hub::ModelName& name) {
  std::printf("%s\n", hub::find_model(name.text()).c_str());
  return 0;
}

int pull_model(const Options& options) {
  constexpr int kInterrupted = 130;  // as shells say it of SIGINT
  const hub::ModelName name = name_of(options);
  if (hub::is_offline()) return find_offline(name);
  stop_on_signals();
  pull::PullOptions how{.source = options.source, .include = options.include};
  how.retry.base = std::chrono::milliseconds(
      static_cast<std::int64_t>(env_double("MINISGL_PULL_RETRY_DELAY", 1.0) * 1000));
  try {
    PullProgress progress;
    const pull::PullResult result =
        pull::pull(name, how, progress, [] { return stop_requested.load(); });
    if (result.num_fetched == 0)
      std::fprintf(stderr, "%s is complete: %d %s\n", name.text().c_str(), result.num_files,
                   result.num_files == 1 ? "file" : "files");
    std::printf("%s\n", result.snapshot.c_str());
    return 0;
  } catch (const pull::Stopped&) {
    std::fprintf(stderr, "Stopped. The same command goes on from here.\n");
    return kInterrupted;
  }
}

#else

int pull_model(const Options&) {
  throw Error("this minisgl was built without downloads (CMake option MINISGL_PULL)");
}

#endif

}  // namespace

Command add_pull(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model,
                 "org/name; of a GGUF repository org/name:FILE.gguf or org/name:Q4_K_M")
      ->type_name("NAME")
      ->required();
  app.add_option("--revision", options->revision, "Branch, tag or commit; default: the main one")
      ->type_name("NAME");
  app.add_option("--model-source", options->source, "Hub: huggingface, modelscope")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--include", options->include,
                 "Files to take, as patterns (*.json); default: what minisgl needs")
      ->type_name("PATTERN");
  return [options] { return pull_model(*options); };
}

}  // namespace minisgl::app
