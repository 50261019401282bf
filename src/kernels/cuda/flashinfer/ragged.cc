#include "kernels/cuda/flashinfer/ragged.h"

#include <algorithm>

#include "base/math.h"
#include "kernels/cuda/flashinfer/ragged_impl.h"

namespace minisgl::kernels::gpu {
namespace {

/// Blocks among which FlashInfer's plans share work out: at most 32 of 160 multiprocessors.
constexpr std::int64_t kMostBlocks = 32 * 160;
/// Two of a multiprocessor, of up to 160: those of a prefill plan that cuts sequences.
constexpr std::int64_t kMostPrefillBlocks = 2 * 160;

std::int64_t group_of(const RaggedShape& shape) { return shape.num_heads / shape.num_kv_heads; }

bool is_for_decode_kernel(const RaggedShape& shape) { return group_of(shape) <= 3; }

/// Tiles of queries at most, and what else a plan may have an entry for.
std::int64_t most_tiles(const RaggedShape& shape, std::int64_t rows, std::int64_t tokens) {
  const std::int64_t tiles = 2 * rows + tokens * group_of(shape) / 128;
  const std::int64_t blocks = is_for_decode_kernel(shape) ? kMostBlocks : kMostPrefillBlocks;
  return std::max(tiles, blocks / shape.num_kv_heads);
}

}  // namespace

std::int64_t ragged_plan_ints(const RaggedShape& shape, std::int64_t rows, std::int64_t tokens) {
  // Three arrays of tiles, one of bytes, two prefix sums, two numbers, each aligned to 4. The
  // second sum is over the tokens, if sequences are cut, and they are only where tiles are few.
  const std::int64_t tiles = most_tiles(shape, rows, tokens);
  const std::int64_t cut = std::max(rows, 128 * (kMostPrefillBlocks / shape.num_kv_heads + 1));
  return 3 * tiles + tiles / 4 + rows + std::min(tokens, cut) + 8 * 4 + 4;
}

std::int64_t ragged_workspace_bytes(const RaggedShape& shape, std::int64_t rows) {
  const std::int64_t group = group_of(shape);
  // Tiles of 16 rows, whatever the number of sequences, or of 128 that are as many as blocks.
  std::int64_t tile_rows = 16 * std::max(ceil_div<std::int64_t>(rows * group, 16) + rows,
                                         kMostPrefillBlocks / shape.num_kv_heads + 1);
  tile_rows = std::max(tile_rows, 128 * (kMostPrefillBlocks / shape.num_kv_heads + 1));
  if (group > 16)
    tile_rows = std::max(tile_rows, 64 * (ceil_div<std::int64_t>(rows * group, 64) + rows));
  if (is_for_decode_kernel(shape))
    tile_rows = std::max(tile_rows, kMostBlocks / shape.num_kv_heads);
  return shape.num_heads * tile_rows * (shape.head_dim + 1) * std::int64_t{sizeof(float)} + 1024;
}

#ifdef MINISGL_HAS_FLASHINFER

bool ragged_attention_built() { return true; }

RaggedPlan plan_ragged_attention(const RaggedShape& shape, std::span<std::int32_t> qo_indptr,
                                 std::span<std::int32_t> kv_indptr, bool fixed,
                                 std::span<std::int32_t> host, TensorView device, Stream& stream) {
  RaggedPlan plan;
  plan.num_rows = static_cast<std::int32_t>(qo_indptr.size()) - 1;
  check(shape.head_dim == 64 || shape.head_dim == 128,
        "FlashInfer's attention is built for heads of 64 and 128, not of ", shape.head_dim);
  check(kv_indptr.size() == qo_indptr.size() &&
            host.size() == static_cast<std::size_t>(device.numel()),
        "the arrays of a plan differ in length");
  const std::int32_t queries = qo_indptr.back();
  check(!fixed || queries == plan.num_rows, "a fixed plan is for one query each");
  const PlanInput input{
      .shape = shape,
      .qo_indptr = qo_indptr.data(),
      .kv_indptr = kv_indptr.data(),
      .num_rows = plan.num_rows,
      .fixed = fixed,
      .host = host.data(),
      .device = device.data,
      .bytes = host.size_bytes(),
      .workspace_bytes = static_cast<std::size_t>(ragged_workspace_bytes(shape, plan.num_rows)),
      .stream = cuda::as_cuda(stream).handle()};
  if (queries == plan.num_rows && is_for_decode_kernel(shape)) {
    plan.kernel = RaggedPlan::Kernel::kDecode;
    (shape.head_dim == 64 ? plan_decode_64 : plan_decode_128)(input, plan);
  } else {
    plan.kernel = RaggedPlan::Kernel::kPrefill;
    plan_prefill(input, plan);
  }
  return plan;
}

void ragged_attention(const RaggedArgs& args, TensorView workspace, Stream& stream) {
  const std::int32_t dim = args.kv.head_dim;
  check_tensor(args.q, {-1, -1, dim}, DType::kBF16, "q");
  check_tensor(args.out, args.q.shape, DType::kBF16, "out");
  check(dim == 64 || dim == 128, "FlashInfer's attention is built for heads of 64 and 128, not of ",
        dim);
  check(args.kv.dtype == DType::kBF16, "FlashInfer's attention is built for bf16 keys and values");
  check(args.q.stride(2) == 1 && args.out.stride(2) == 1 && args.out.stride(1) == dim &&
            args.out.stride(0) == args.out.dim(1) * dim,
        "FlashInfer's attention needs a contiguous output");
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  if (stream.dry() || args.q.dim(0) == 0) return;
  const std::int64_t rows = args.plan.num_rows;
  check_tensor(args.qo_indptr, {rows + 1}, DType::kI32, "qo_indptr");
  check_tensor(args.kv_indptr, {rows + 1}, DType::kI32, "kv_indptr");
  check_tensor(args.kv_last_page_len, {rows}, DType::kI32, "kv_last_page_len");
  const std::int64_t needed = ragged_workspace_bytes(
      {static_cast<std::int32_t>(args.q.dim(1)), args.kv.num_heads, dim, args.kv.page_size}, rows);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  check(reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment == 0,
        "workspace is not aligned to ", kWorkspaceAlignment, " bytes");
  const cudaStream_t handle = cuda::as_cuda(stream).handle();
  if (args.plan.kernel == RaggedPlan::Kernel::kDecode) {
    (dim == 64 ? run_ragged_decode_64 : run_ragged_decode_128)(args, workspace.data, handle);
  } else {
    check(args.plan.kernel == RaggedPlan::Kernel::kPrefill, "attention without a plan");
    (dim == 64 ? run_ragged_prefill_64 : run_ragged_prefill_128)(args, workspace.data, handle);
  }
}

#else

bool ragged_attention_built() { return false; }

RaggedPlan plan_ragged_attention(const RaggedShape& /*shape*/,
                                 std::span<std::int32_t> /*qo_indptr*/,
                                 std::span<std::int32_t> /*kv_indptr*/, bool /*fixed*/,
                                 std::span<std::int32_t> /*host*/, TensorView /*device*/,
                                 Stream& /*stream*/) {
  throw Error("this build has no code of FlashInfer's");
}

void ragged_attention(const RaggedArgs& /*args*/, TensorView /*workspace*/, Stream& /*stream*/) {
  throw Error("this build has no code of FlashInfer's");
}

#endif

}  // namespace minisgl::kernels::gpu
