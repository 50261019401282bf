#include "kernels/cuda/flashinfer/ragged_prefill.cuh"

#include <algorithm>
#include <vector>

namespace minisgl::kernels::gpu {

void plan_prefill(const PlanInput& in, RaggedPlan& plan) {
  flashinfer::PrefillPlanInfo info;
  with_flashinfer("planning of a step", [&] {
    return flashinfer::PrefillPlan<std::int32_t>(
        unknown_workspace(), in.workspace_bytes, in.device, in.host, in.bytes, info, in.qo_indptr,
        in.kv_indptr, static_cast<std::uint32_t>(in.qo_indptr[in.num_rows]),
        static_cast<std::uint32_t>(in.num_rows), static_cast<std::uint32_t>(in.shape.num_heads),
        static_cast<std::uint32_t>(in.shape.num_kv_heads),
        static_cast<std::uint32_t>(in.shape.head_dim),
        static_cast<std::uint32_t>(in.shape.head_dim),
        static_cast<std::uint32_t>(in.shape.page_size), in.fixed, sizeof(PrefillNumber),
        /*window_left=*/-1, /*fixed_split_size=*/-1, /*disable_split_kv=*/false,
        /*num_colocated_ctas=*/0, in.stream);
  });
  const std::vector<std::int64_t> fields = info.ToVector();
  std::copy(fields.begin(), fields.end(), plan.fields.begin());
}

void run_ragged_prefill_128(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  run_ragged_prefill<128>(args, workspace, stream);
}

}  // namespace minisgl::kernels::gpu
