#pragma once

#include <cstdint>
#include <string>

namespace minisgl {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::int8_t index = 0;
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
};

constexpr Device kCpu{};
constexpr Device kGpu{DeviceKind::kCuda, 0};  ///< the first one

inline std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace minisgl
