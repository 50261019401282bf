#include "kernels/cuda/flashinfer/xqa.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/math.h"
#include "kernels/cuda/flashinfer/xqa_variants.h"
#include "kernels/cuda/launch.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr std::int64_t kTile = 256;                 // keys that a block takes at a time
constexpr std::int64_t kMostMultiprocessors = 256;  // blocks are as many at most
constexpr std::int64_t kAlignment = 128;

/// Zeros that every launch leaves as it found them: one for each KV head of a sequence.
class XqaState {
 public:
  explicit XqaState(cuda::CudaStream& stream)
      : semaphores_(kCount * 4, {.device = stream.device()}) {}
  static constexpr std::int64_t kCount = 1 << 18;
  std::uint32_t* semaphores() const { return reinterpret_cast<std::uint32_t*>(semaphores_.data()); }

 private:
  Buffer semaphores_;
};

std::int32_t group_of(const XqaShape& shape) { return shape.num_heads / shape.num_kv_heads; }

XqaKernel kernel_for([[maybe_unused]] const XqaShape& shape) {
#ifdef MINISGL_HAS_FLASHINFER
#define MINISGL_XQA_CASE(dim, group)                     \
  if (shape.head_dim == dim && group_of(shape) == group) \
    return {prepare_xqa_d##dim##_g##group, launch_xqa_d##dim##_g##group};
  MINISGL_XQA_KERNELS(MINISGL_XQA_CASE)
#undef MINISGL_XQA_CASE
#endif
  return {};
}

XqaKernel checked_kernel(const XqaShape& shape) {
  check(xqa_built(), "this build has no XQA: it comes with FlashInfer");
  check(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, shape.num_heads,
        " query heads are no multiple of ", shape.num_kv_heads, " KV heads");
  const XqaKernel kernel = kernel_for(shape);
  check(kernel.launch != nullptr, "there is no XQA kernel for heads of ", shape.head_dim, " and ",
        group_of(shape), " query heads to a KV head");
  return kernel;
}

}  // namespace

bool xqa_built() {
#ifdef MINISGL_HAS_FLASHINFER
  return true;
#else
  return false;
#endif
}

void prepare_xqa(const XqaShape& shape, Device device) {
  const XqaKernel kernel = checked_kernel(shape);
  const cuda::DeviceScope scope(device);
  kernel.prepare();
}

std::int64_t xqa_workspace_bytes(const XqaShape& shape) {
  // For each block two numbers for each of 32 rows, and the group's parts in bf16. The array of
  // those begins at a multiple of a part's size.
  const std::int64_t each = 2 * 32 * 4 + std::int64_t{group_of(shape)} * shape.head_dim * 2;
  return (kMostMultiprocessors + 1) * each;
}

void xqa_decode(const PagedAttentionArgs& args, TensorView workspace, Stream& stream) {
  const KvView& kv = args.kv;
  check_tensor(args.q, {-1, -1, kv.head_dim}, DType::kBF16, "q");
  check_tensor(args.out, args.q.shape, DType::kBF16, "out");
  check(kv.dtype == DType::kBF16, "XQA is built for bf16 keys and values, not ", name(kv.dtype));
  check(kv.page_size == kXqaPageSize, "XQA reads tables of pages of ", kXqaPageSize,
        " tokens, not of ", kv.page_size);
  const XqaShape shape{static_cast<std::int32_t>(args.q.dim(1)), kv.num_heads, kv.head_dim};
  const XqaKernel kernel = checked_kernel(shape);
  const std::int64_t seqs = args.q.dim(0);
  check_tensor(args.cache_seqlens, {seqs}, DType::kI32, "cache_seqlens");
  check_tensor(args.page_table, {seqs, -1}, DType::kI32, "page_table");
  for (const TensorView& view : {args.q, args.out})
    check(view.stride(2) == 1 && view.stride(1) == view.dim(2) &&
              view.stride(0) == view.dim(1) * view.dim(2),
          "XQA needs contiguous queries and results");
  check(args.page_table.stride(1) == 1, "page_table must be contiguous in its last dimension");
  check(kv.slot_stride % kv.head_dim == 0 && kv.head_stride % kv.head_dim == 0,
        "XQA needs heads of keys and values at multiples of their size");
  check(args.window_tokens == 0 && args.softcap == 0, "XQA has no windows and caps no scores");
  check(args.scale > 0 && args.max_seqlen_k > 0, "XQA needs a positive scale and max_seqlen_k");
  check(seqs * kv.num_heads <= XqaState::kCount, "attention to ", seqs,
        " sequences is too much at once");
  check_tensor(workspace, {-1}, DType::kU8, "workspace");
  const std::int64_t needed = xqa_workspace_bytes(shape);
  check(workspace.numel() >= needed, "workspace has ", workspace.numel(), " bytes, needs ", needed);
  check(reinterpret_cast<std::uintptr_t>(workspace.data) % kAlignment == 0,
        "workspace is not aligned to ", kAlignment, " bytes");
  if (stream.dry() || seqs == 0) return;
  cuda::CudaStream& gpu = as_cuda(stream);
  const std::int64_t multiprocessors =
      std::min<std::int64_t>(gpu.num_multiprocessors(), kMostMultiprocessors);
  const std::int64_t blocks =
      std::min(std::max<std::int64_t>(1, multiprocessors / (seqs * kv.num_heads)),
               ceil_div<std::int64_t>(args.max_seqlen_k, kTile));
  const auto in_heads = [&](std::int64_t elements) {
    return static_cast<std::uint32_t>(elements / kv.head_dim);
  };
  kernel.launch({.q = args.q.data,
                 .k = kv.k,
                 .v = kv.v,
                 .out = args.out.data,
                 .page_table = args.page_table.as<std::int32_t>(),
                 .cache_seqlens = args.cache_seqlens.as<std::int32_t>(),
                 .num_seqs = static_cast<std::uint32_t>(seqs),
                 .kv_heads = static_cast<std::uint32_t>(kv.num_heads),
                 .pages_per_seq = static_cast<std::uint32_t>(args.page_table.stride(0)),
                 .blocks_per_seq = static_cast<std::uint32_t>(blocks),
                 .page_stride = in_heads(kv.slot_stride * kv.page_size),
                 .slot_stride = in_heads(kv.slot_stride),
                 .head_stride = in_heads(kv.head_stride),
                 .q_scale = args.scale * std::sqrt(static_cast<float>(kv.head_dim)),
                 .semaphores = gpu.state<XqaState>().semaphores(),
                 .scratch = workspace.data,
                 .stream = gpu.handle()});
}

}  // namespace minisgl::kernels::gpu
