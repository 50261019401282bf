// The functions of one copy of the table; see kernels/cpu/table.h.

#pragma once

#include "kernels/cpu/table.h"

namespace minisgl::kernels::MINISGL_ISA {

void norm_rows(const NormRows& job);
void silu_rows(const GatedRows& job);
void gelu_tanh_rows(const GatedRows& job);
void rope_heads(const RopeHeads& job);
void attention_item(const AttentionItem& item, float* scratch);
void attention_merge(const AttentionMerge& job);
void softcap_scores(float* scores, std::int64_t n, float cap);
LogitScan scan_logits(const float* logits, std::int64_t n);
void softmax_weights(const float* logits, std::int64_t n, float max, float temperature,
                     float min_weight, float* weights);
void exp_all(const float* x, std::int64_t n, float* y);

}  // namespace minisgl::kernels::MINISGL_ISA
