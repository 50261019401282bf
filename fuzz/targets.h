// Fuzz targets: what a hostile file or template must not be able to do to the program.

#pragma once

#include <cstddef>
#include <span>

namespace minisgl::fuzz {

/// Each reads `input` as its reader would read a file. A reader may refuse it with an Error of one
/// line; anything else it does wrong (a memory fault, another exception, an error that blames our
/// own code, a broken promise about the result) ends the program through abort(), which libFuzzer
/// and the unit test report.
using Target = void (*)(std::span<const std::byte> input);

/// A GGUF file: metadata, directory of tensors, model configuration and vocabulary out of it.
void gguf(std::span<const std::byte> input);
/// A safetensors file.
void safetensors(std::span<const std::byte> input);
/// model.safetensors.index.json beside a valid shard, model-1.safetensors with the tensors a and b.
void safetensors_index(std::span<const std::byte> input);
/// config.json; behind kSeparator generation_config.json.
void config(std::span<const std::byte> input);
/// tokenizer.json; behind one kSeparator tokenizer_config.json, behind two a text to encode.
void tokenizer_json(std::span<const std::byte> input);
/// A template; behind kSeparator the JSON object of its variables.
void jinja(std::span<const std::byte> input);
/// A vocabulary and a word, written as bpe_target.cc says; against the plain algorithm.
void bpe(std::span<const std::byte> input);

inline constexpr Target kTargets[] = {gguf,  safetensors, safetensors_index, config, tokenizer_json,
                                      jinja, bpe};
inline constexpr const char* kTargetNames[] = {
    "gguf", "safetensors", "safetensors_index", "config", "tokenizer_json", "jinja", "bpe"};

}  // namespace minisgl::fuzz
