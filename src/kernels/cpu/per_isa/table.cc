#include "kernels/cpu/table.h"

#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {

extern const CpuKernels kTable;
const CpuKernels kTable = {
    .norm = norm_rows,
    .silu = silu_rows,
    .gelu_tanh = gelu_tanh_rows,
    .rope = rope_heads,
    .attention = attention_item,
    .attention_merge = attention_merge,
    .scan_logits = scan_logits,
    .softmax_weights = softmax_weights,
    .exp = exp_all,
    .softcap = softcap_scores,
    .lanes = kW,
    .fused = kFusedFma,
};

}  // namespace minisgl::kernels::MINISGL_ISA
