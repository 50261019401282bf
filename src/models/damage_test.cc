// A checkpoint folder with many kinds of damage: each is refused with one line that names the file
// and the cause, before any weight is taken.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "minisgl/error.h"
#include "models/model.h"
#include "testing/checkpoint.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const char* const kShard = "model-00002-of-00004.safetensors";
const char* const kIndex = "model.safetensors.index.json";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string out;
  testing_util::append_bytes(out, length);
  return out + rest;
}

/// Changes a JSON file.
void edit_json(const fs::path& path, const std::function<void(json&)>& change) {
  json root = json::parse(read_file(path));
  change(root);
  write_file(path, root.dump());
}

/// Changes the header of a shard and leaves its data.
void edit_header(const fs::path& path, const std::function<void(json&)>& change) {
  const std::string whole = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  json header = json::parse(whole.substr(8, length));
  change(header);
  const std::string text = header.dump();
  write_file(path, with_length(text.size(), text + whole.substr(8 + length)));
}

/// The entry of a header whose data comes first, or the one after it.
json& entry_at(json& header, std::size_t place) {
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__") order.emplace_back(value["data_offsets"][0], name);
  std::sort(order.begin(), order.end());
  return header[order.at(place).second];
}

struct Damage {
  const char* name;
  std::function<void(const fs::path& folder)> make;
  std::vector<std::string> says;  ///< the file, and the cause
};

Damage in_header(const char* name, const std::function<void(json&)>& change,
                 std::vector<std::string> says) {
  says.insert(says.begin(), kShard);
  return {name, [change](const fs::path& f) { edit_header(f / kShard, change); }, std::move(says)};
}
Damage in_shard(const char* name, const std::string& bytes, std::vector<std::string> says) {
  says.insert(says.begin(), kShard);
  return {name, [bytes](const fs::path& f) { write_file(f / kShard, bytes); }, std::move(says)};
}
Damage in_config(const char* name, const std::function<void(json&)>& change,
                 std::vector<std::string> says) {
  says.insert(says.begin(), "config.json");
  return {name, [change](const fs::path& f) { edit_json(f / "config.json", change); },
          std::move(says)};
}

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all{
      in_shard("GitLfsPointer",
               "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
               {"a Git LFS pointer and not the file itself"}),
      in_shard("EmptyFile", "", {"expected at least 8 bytes, found 0 (an empty file)"}),
      in_shard("SevenBytes", "7 bytes", {"expected at least 8 bytes, found 7"}),
      in_shard("HeaderOfATerabyte", with_length(std::uint64_t{1} << 40, "{}"),
               {"1099511627776 bytes, at most 100000000 are allowed"}),
      in_shard("HeaderLongerThanTheFile", with_length(5000, "{}"),
               {"truncated: expected at least 5008 bytes (the end of the header), found 10"}),
      in_shard("HeaderIsNotJson", with_length(9, "{\"a\":nope"), {"header: not valid JSON"}),
      {"CutOff",
       [](const fs::path& f) { fs::resize_file(f / kShard, fs::file_size(f / kShard) - 100); },
       {kShard, "truncated: expected ", " bytes of data after the header, found ",
        "(cut off: 'model."}},
      {"LongerThanItsTensors",
       [](const fs::path& f) { write_file(f / kShard, read_file(f / kShard) + "more"); },
       {kShard, "damaged: expected ", " bytes of data after the header, found "}},
      in_header("OffsetsOverlap",
                [](json& h) {
                  json& second = entry_at(h, 1)["data_offsets"];
                  second[0] = second[0].get<std::int64_t>() - 2;
                },
                {"overlaps the one before it"}),
      in_header("OffsetsLeaveAHole",
                [](json& h) {
                  json& second = entry_at(h, 1)["data_offsets"];
                  second[0] = second[0].get<std::int64_t>() + 2;
                },
                {"follows a hole"}),
      in_header("OffsetsBeyondTheFile",
                [](json& h) { entry_at(h, 1)["data_offsets"][1] = std::uint64_t{1} << 50; },
                {"truncated: expected 1125899906842624 bytes of data"}),
      in_header("SizeIsNotTypeTimesShape", [](json& h) { entry_at(h, 0)["shape"][0] = 7; },
                {"bytes, which is not BF16 [7"}),
      in_header("UnknownDtype", [](json& h) { entry_at(h, 0)["dtype"] = "F4_NEW"; },
                {"type 'F4_NEW' of tensor 'model.", "is not supported"}),
      in_header("QuantisedDtype",
                [](json& h) {
                  json& entry = entry_at(h, 0);
                  entry["dtype"] = "F8_E4M3";
                  entry["shape"][0] = entry["shape"][0].get<std::int64_t>() * 2;
                },
                {"type 'F8_E4M3' of tensor 'model.", "weights may be F32, F16 or BF16"}),
      {"ShapeOfAnotherModel",
       [](const fs::path& f) {
         edit_header(f / kShard, [](json& h) {
           for (auto& [name, value] : h.items())
             if (name.ends_with("mlp.up_proj.weight"))
               std::swap(value["shape"][0], value["shape"][1]);
         });
       },
       {"tensor has another shape than the model's configuration says: model.layers.",
        "mlp.up_proj.weight is [", "], expected ["}},
      {"ShardIsMissing",
       [](const fs::path& f) { fs::remove(f / kShard); },
       {kIndex, "names the file 'model-00002-of-00004.safetensors', which is missing"}},
      {"ShardIsAFolder",
       [](const fs::path& f) {
         fs::remove(f / kShard);
         fs::create_directory(f / kShard);
       },
       {kShard, "it is a folder, expected a file"}},
      {"IndexNamesATensorThatItsShardLacks",
       [](const fs::path& f) {
         edit_json(f / kIndex, [](json& i) { i["weight_map"]["model.norm.weight"] = kShard; });
       },
       {kShard, "tensor 'model.norm.weight' is missing, which the index says is in this file"}},
      {"IndexWithoutAMap",
       [](const fs::path& f) { edit_json(f / kIndex, [](json& i) { i.erase("weight_map"); }); },
       {kIndex, "expected an object \"weight_map\""}},
      {"IndexThatLeavesTheFolder",
       [](const fs::path& f) {
         edit_json(f / kIndex,
                   [](json& i) { i["weight_map"]["model.norm.weight"] = "../x.safetensors"; });
       },
       {kIndex, "tensor 'model.norm.weight' is not mapped to the name of a file"}},
      {"TensorIsNowhere",
       [](const fs::path& f) {
         edit_json(f / kIndex, [](json& i) { i["weight_map"].erase("model.norm.weight"); });
       },
       {"1 tensor is missing: model.norm.weight ["}},
      {"TensorThatNobodyExpects",
       [](const fs::path& f) {
         edit_json(f / kIndex, [](json& i) {
           i["weight_map"]["model.layers.0.self_attn.sinks"] = "extra.safetensors";
         });
         testing_util::SafetensorsWriter()
             .tensor("model.layers.0.self_attn.sinks", "F32", {1}, "1234")
             .write(f / "extra.safetensors");
       },
       {"1 tensor that the model's architecture does not have: 'model.layers.0.self_attn.sinks'"}},
      {"TheSameTensorTwiceWithoutAnIndex",
       [](const fs::path& f) {
         fs::remove(f / kIndex);
         fs::copy_file(f / kShard, f / "model-copy.safetensors");
       },
       {"model-copy.safetensors: tensor 'model.", "is also in", "there is no index"}},
      {"NoWeightsAtAll",
       [](const fs::path& f) {
         std::vector<fs::path> files;
         for (const auto& entry : fs::directory_iterator(f)) files.push_back(entry.path());
         for (const fs::path& file : files)
           if (file.string().find("safetensors") != std::string::npos) fs::remove(file);
       },
       {"no *.safetensors file"}},
      {"ConfigIsMissing",
       [](const fs::path& f) { fs::remove(f / "config.json"); },
       {"config.json", "has no config.json"}},
      {"ConfigIsNotJson",
       [](const fs::path& f) { write_file(f / "config.json", "{\"hidden_size\": 64,"); },
       {"config.json: not valid JSON (at byte "}},
      {"ConfigIsALfsPointer",
       [](const fs::path& f) {
         write_file(f / "config.json", "version https://git-lfs.github.com/spec/v1\n");
       },
       {"config.json: expected JSON, found a Git LFS pointer"}},
      in_config("ConfigWithoutHiddenSize", [](json& c) { c.erase("hidden_size"); },
                {"hidden_size is missing"}),
      in_config("ZeroHeads", [](json& c) { c["num_attention_heads"] = 0; },
                {"num_attention_heads is 0, expected a whole number from 1"}),
      in_config("HeadsThatDoNotDivide", [](json& c) { c["num_key_value_heads"] = 3; },
                {"8 query heads are not a multiple of 3 key heads"}),
      in_config("UnknownArchitecture", [](json& c) { c["architectures"] = {"BloomForCausalLM"}; },
                {"architecture 'BloomForCausalLM' is not supported; supported are Llama"}),
      in_config("QuantisationThatWeDoNotHave",
                [](json& c) { c["quantization_config"] = {{"quant_method", "awq"}}; },
                {"quantization_config has the quant_method \"awq\", which is not supported"}),
      {"TwiceTheVocabulary",
       [](const fs::path& f) {
         edit_json(f / "config.json",
                   [](json& c) { c["vocab_size"] = c["vocab_size"].get<int>() * 2; });
       },
       {"2 tensors have another shape than the model's configuration says: "
        "model.embed_tokens.weight is [640, 64], expected [1280, 64]"}},
      {"GenerationConfigOutOfRange",
       [](const fs::path& f) { write_file(f / "generation_config.json", R"({"temperature": 7})"); },
       {"generation_config.json: temperature is 7, expected a number from 0 to 2"}},
  };
  return all;
}

class DamageTest : public testing::TestWithParam<std::size_t> {
 protected:
  DamageTest() {
    fs::remove_all(folder_);
    fs::copy(testing_util::tiny_model("llama-sharded"), folder_);
  }
  ~DamageTest() override { fs::remove_all(folder_); }
  std::string error() const {
    std::int64_t taken = 0;
    try {
      load_model(folder_, {.on_progress = [&](std::int64_t done, std::int64_t) { taken = done; }});
    } catch (const Error& e) {
      EXPECT_EQ(taken, 0) << "weights were taken before the fault was found";
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "no error";
  }
  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_damage_test_" + std::to_string(::getpid()));
};

TEST_P(DamageTest, IsRefusedWithItsFileAndCause) {
  const Damage& damage = damages()[GetParam()];
  damage.make(folder_);
  const std::string line = error();
  for (const std::string& part : damage.says) EXPECT_THAT(line, HasSubstr(part));
  EXPECT_THAT(line, HasSubstr(folder_.string()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamageTest, testing::Range<std::size_t>(0, damages().size()),
                         [](const auto& info) { return damages()[info.param].name; });

class WholeFolderTest : public DamageTest {};

TEST_F(WholeFolderTest, LoadsWithoutDamage) { EXPECT_EQ(error(), "no error"); }

TEST_F(WholeFolderTest, Fil1EveryCutOfAShardIsRefusedWithBytesExpectedAndFound) {
  const std::uint64_t size = fs::file_size(folder_ / kShard);
  for (const std::uint64_t left : {size - 1, size - 100, size / 2, std::uint64_t{200}}) {
    fs::resize_file(folder_ / kShard, left);
    EXPECT_THAT(error(), testing::ContainsRegex(std::string(kShard) +
                                                ": truncated: expected .*[0-9]+ bytes.*, found "));
  }
}

TEST_F(WholeFolderTest, Fil2TheIndexDecidesWhichFilesCount) {
  write_file(folder_ / "consolidated.safetensors", "not read at all");
  fs::copy_file(folder_ / kShard, folder_ / "model-old.safetensors");
  write_file(folder_ / "model.safetensors", "nor this");
  EXPECT_EQ(error(), "no error");
  // Without the index all shards are read, and a second copy would be mixed weights.
  fs::remove(folder_ / kIndex);
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("is also in"));
  fs::remove(folder_ / "model-old.safetensors");
  fs::remove(folder_ / "golden.safetensors");
  EXPECT_EQ(error(), "no error");
}

TEST_F(WholeFolderTest, AllFaultsAreInOneError) {
  fs::resize_file(folder_ / kShard, fs::file_size(folder_ / kShard) - 100);
  fs::remove(folder_ / "model-00003-of-00004.safetensors");
  edit_json(folder_ / kIndex, [](json& i) {
    i["weight_map"].erase("model.embed_tokens.weight");
    for (int layer = 0; layer < 12; ++layer)
      i["weight_map"]["model.layers." + std::to_string(layer) + ".x"] = "extra.safetensors";
  });
  testing_util::SafetensorsWriter extra;
  for (int layer = 0; layer < 12; ++layer)
    extra.tensor("model.layers." + std::to_string(layer) + ".x", "F32", {1}, "1234");
  extra.write(folder_ / "extra.safetensors");
  edit_json(folder_ / "config.json", [](json& c) { c["intermediate_size"] = 8; });

  const std::string line = error();
  EXPECT_THAT(line, HasSubstr("model-00002-of-00004.safetensors: truncated: expected "));
  EXPECT_THAT(line,
              HasSubstr("names the file 'model-00003-of-00004.safetensors', which is missing"));
  EXPECT_THAT(line, HasSubstr("1 tensor is missing: model.embed_tokens.weight ["));
  EXPECT_THAT(line, HasSubstr("another shape than the model's configuration says: model.layers."));
  EXPECT_THAT(line, HasSubstr("12 tensors that the model's architecture does not have: "
                              "'model.layers.0.x', 'model.layers.1.x', "));
  EXPECT_THAT(line, HasSubstr(" and 4 more"));
}

}  // namespace
}  // namespace minisgl::models
