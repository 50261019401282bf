// Which files of a repository make a model that this engine can load.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::hub {

/// GGUF models among `files`: the name without "-00001-of-00003" -> its parts in order. Projectors
/// of images (mmproj*) and importance matrices are none.
std::map<std::string, std::vector<std::string>> gguf_models(const std::vector<std::string>& files);

/// The parts of the one GGUF model that `wanted` names: its path, the name of its file, or its
/// quantisation in any case ("q4_k_m" is a part of the name between other letters and digits); the
/// only one there is when `wanted` is empty. Throws Error listing what there is to choose from.
/// `repo` is for the error.
std::vector<std::string> choose_gguf(const std::vector<std::string>& files,
                                     const std::string& wanted, const std::string& repo);

/// What the engine reads of a checkpoint: safetensors files of the outermost folder (Mistral's
/// consolidated copy only when alone), configuration, vocabulary, chat template. Empty when there
/// are no such weights.
std::vector<std::string> checkpoint_files(const std::vector<std::string>& files);

/// The files of the model: choose_gguf() when `wanted` is given or there is no checkpoint, else
/// checkpoint_files(). Throws Error when neither is there, naming the weights that are.
std::vector<std::string> choose_files(const std::vector<std::string>& files,
                                      const std::string& wanted, const std::string& repo);

/// Files whose path, or whose name when `patterns` has no '/', is like one of `patterns` (as a
/// shell: * ? [...]). Throws Error when none is.
std::vector<std::string> matching_files(const std::vector<std::string>& files,
                                        const std::vector<std::string>& patterns,
                                        const std::string& repo);

}  // namespace minisgl::hub
