// bench sums: how long ranks take to add up.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "comm/cuda/nccl_communicator.h"
#include "commands.h"
#include "minisgl/error.h"
#include "ranks.h"
#include "tensor/cuda/device.h"
#include "tensor/half.h"

namespace minisgl::app {
namespace {

struct Options {
  RankFlags ranks{.size = 2};
  std::string device = "auto";
  std::int64_t most_bytes = 16 << 20;
  bool json = false;
};

Device device_for(const Options& options, const RankGroup& group) {
  int gpus = 0;
  if constexpr (cuda::kBuilt)
    if (options.device != "cpu") gpus = cuda::num_devices();
  if (gpus == 0 && options.device == "cuda") throw Error("there is no GPU");
  if (gpus == 0) return kCpu;
  return {DeviceKind::kCuda, static_cast<std::int8_t>(group.rank_on_host() % gpus)};
}

std::unique_ptr<Stream> stream_of(Device device) {
  if constexpr (cuda::kBuilt)
    if (!device.is_cpu()) return cuda::make_stream(device);
  return std::make_unique<CpuStream>(1);
}

/// Small whole numbers: exact in every type, whatever the order.
float value_of(int rank, std::int64_t i) { return static_cast<float>(i % 13 + rank); }

/// Throws Error if a sum of `bytes` bytes is wrong, in any of some turns.
void check_sums(Communicator& tensors, Stream& stream, DType dtype, std::int64_t bytes) {
  const std::int64_t count = bytes / bytes_of(dtype, 1);
  const int size = tensors.size();
  for (int turn = 0; turn < 4; ++turn) {
    const Tensor host({count}, dtype);
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = value_of(tensors.rank() + turn, i);
      if (dtype == DType::kF32) {
        host.view().as<float>()[i] = value;
      } else {
        host.view().as<BFloat16>()[i] = to_bf16(value);
      }
    }
    const Tensor x = copied_to(host, stream.device());
    tensors.all_reduce(x, stream);
    stream.synchronize();
    const Tensor sum = copied_to(x, kCpu);
    for (std::int64_t i = 0; i < count; ++i) {
      const float actual =
          dtype == DType::kF32 ? sum.view().as<float>()[i] : to_f32(sum.view().as<BFloat16>()[i]);
      const float expected =
          static_cast<float>(size) * value_of(turn, i) + static_cast<float>(size * (size - 1) / 2);
      if (actual != expected)
        throw Error(fmt::format("a sum of {} bytes is wrong at {}: {} in place of {}", bytes, i,
                                actual, expected));
    }
  }
}

std::vector<SumTime> measure_on_cpu(Communicator& tensors, Stream& stream, HostGroup& host,
                                    std::int64_t most_bytes) {
  constexpr int kCalls = 100;
  constexpr std::int64_t kFirstBytes = 8 << 10;
  const Tensor memory({most_bytes / 4}, DType::kF32);
  std::vector<SumTime> times;
  for (std::int64_t bytes = kFirstBytes; bytes <= most_bytes; bytes *= 2) {
    const TensorView x = memory.view().slice(0, bytes / 4);
    host.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) tensors.all_reduce(x, stream);
    stream.synchronize();
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
    times.push_back({.bytes = bytes, .nccl_us = us.count() / kCalls});
  }
  return times;
}

void print(const Options& options, bool cpu, int ranks, std::int64_t one_shot_bytes,
           const std::vector<SumTime>& times) {
  const char* const library = cpu ? "gloo" : "nccl";
  if (options.json) {
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const SumTime& time : times)
      lines.push_back({{"bytes", time.bytes},
                       {std::string(library) + "_us", time.nccl_us},
                       {"one_shot_us", time.one_shot_us}});
    std::puts(nlohmann::ordered_json{
        {"ranks", ranks}, {"one_shot_up_to_bytes", one_shot_bytes}, {"sums", lines}}
                  .dump()
                  .c_str());
    return;
  }
  fmt::print(
      "Sums over {} ranks, microseconds{}\n", ranks,
      cpu ? "" : fmt::format(" in a graph; up to {} KB by our own kernel", one_shot_bytes >> 10));
  fmt::print("{:>10} {:>10} {:>10}\n", "KB", library, cpu ? "" : "one-shot");
  for (const SumTime& time : times)
    fmt::print("{:>10} {:>10.1f} {:>10}\n", time.bytes >> 10, time.nccl_us,
               time.one_shot_us > 0 ? fmt::format("{:.1f}", time.one_shot_us) : "");
}

int bench_sums(const Options& options, const RankSetup& ranks) {
  RankGroup& group = *ranks.group;
  const Device device = device_for(options, group);
  group.connect_devices(device);
  const RankLinks links = group.links();
  const std::unique_ptr<Stream> stream = stream_of(device);
  for (const std::int64_t bytes : {16, 1040, 10'240, 100'000, 1'000'000, 4'000'000}) {
    check_sums(*links.tensors, *stream, DType::kF32, bytes);
    if (!device.is_cpu()) check_sums(*links.tensors, *stream, DType::kBF16, bytes);
  }
  std::int64_t one_shot_bytes = 0;
  std::vector<SumTime> times;
  if (auto* const gpus = dynamic_cast<GpuCommunicator*>(links.tensors)) {
    one_shot_bytes = gpus->one_shot_bytes();
    times = gpus->measure(options.most_bytes);
  } else {
    times = measure_on_cpu(*links.tensors, *stream, *links.host, options.most_bytes);
  }
  if (group.rank() == 0) print(options, device.is_cpu(), group.size(), one_shot_bytes, times);
  links.host->barrier();
  return 0;
}

}  // namespace

Command add_bench_sums(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_rank_flags(app, options->ranks);
  app.add_option("--device", options->device, "auto, cpu, cuda")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--most", options->most_bytes, "Largest sum, bytes; from 8 KB on")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false).description(""))
      ->type_name("SIZE")
      ->default_str("16MB");
  app.add_flag("--json", options->json, "Print one JSON object");
  return [options] {
    const OnRank run = [&](const RankSetup& ranks) { return bench_sums(*options, ranks); };
    return on_ranks(options->ranks, run, run);
  };
}

}  // namespace minisgl::app
