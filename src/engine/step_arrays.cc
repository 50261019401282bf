#include "engine/step_arrays.h"

#include "base/math.h"

namespace minisgl {

StepArrays lay_out(std::byte* block, std::int64_t tokens, std::int64_t samples, std::int64_t decode,
                   Device device) {
  constexpr std::int64_t kAlignment = 64;
  StepArrays arrays;
  const auto place = [&](std::int64_t bytes) {
    std::byte* at = block + arrays.bytes;
    arrays.bytes += round_up(bytes, kAlignment);
    return at;
  };
  const auto ints = [&](std::int64_t count) {
    return TensorView(place(count * 4), {count}, DType::kI32, device);
  };
  arrays.token_ids = ints(tokens);
  arrays.positions = ints(tokens);
  arrays.out_locs = ints(tokens);
  arrays.logit_rows = ints(samples);
  arrays.sample_rows = ints(samples);
  arrays.decode_rows = ints(decode);
  arrays.sampling = reinterpret_cast<kernels::SamplingRow*>(
      place(samples * static_cast<std::int64_t>(sizeof(kernels::SamplingRow))));
  return arrays;
}

}  // namespace minisgl
