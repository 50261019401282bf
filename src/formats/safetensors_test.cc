#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "minisgl/error.h"
#include "testing/random.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// The bytes of a file: length, header, data.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}
std::string file_of(const json& header, const std::string& data) {
  return file_of(header.dump(), data);
}
json entry(const char* type, const json& shape, std::uint64_t begin, std::uint64_t end) {
  return {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, end}}};
}
std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

/// A file need not align its tensors to their types.
template <class T>
T element(const TensorView& tensor, std::int64_t index) {
  EXPECT_EQ(tensor.dtype, DTypeOf<T>::value);
  T value;
  std::memcpy(&value, tensor.data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() { fs::create_directories(folder_); }
  ~SafetensorsTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  /// A file with one f32 tensor of one element.
  void write_scalar(const std::string& file, const std::string& tensor, float value) const {
    write(file, file_of(json{{tensor, entry("F32", {1}, 0, 4)}}, floats({value})));
  }
  std::string file_error(const std::string& content) const {
    const fs::path path = write("x.safetensors", content);
    try {
      const SafetensorsFile file(path);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path.string()));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "no error";
  }
  std::string folder_error() const {
    try {
      const SafetensorsFolder folder(folder_);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  static float value_of(const SafetensorsFolder& folder, const std::string& tensor) {
    return element<float>(folder.tensors().at(tensor), 0);
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_safetensors_test_" + std::to_string(::getpid()));
};

const json kTwoTensors = {{"__metadata__", {{"format", "pt"}}},
                          {"a", entry("F32", {2, 2}, 0, 16)},
                          {"b", entry("F16", {2}, 16, 20)}};
const std::string kTwoTensorsData = floats({1, 2, 3, 4}) + std::string("\x00\x3C\x00\xC0", 4);

TEST_F(SafetensorsTest, ViewsTheTensorsOfAFile) {
  const SafetensorsFile file(write("x.safetensors", file_of(kTwoTensors, kTwoTensorsData)));
  ASSERT_EQ(file.tensors().size(), 2U);
  const TensorView a = file.tensors().at("a");
  EXPECT_EQ(a.shape, (Shape{2, 2}));
  EXPECT_EQ(element<float>(a, 3), 4.0F);
  EXPECT_EQ(element<Half>(file.tensors().at("b"), 1).bits, 0xC000);
  file.drop(a);
  EXPECT_EQ(element<float>(a, 3), 4.0F) << "a dropped page is read again from the file";
}

TEST_F(SafetensorsTest, ASharedTensorOutlivesTheFileObjectAndTheFile) {
  const fs::path path = write("x.safetensors", file_of(kTwoTensors, kTwoTensorsData));
  std::shared_ptr<const void> owner;
  TensorView a;
  {
    const SafetensorsFile file(path);
    a = file.tensors().at("a");
    owner = file.share(a);
    const float elsewhere[4] = {};
    const TensorView foreign(const_cast<float*>(elsewhere), {4}, DType::kF32);
    EXPECT_EQ(file.share(foreign), nullptr);
  }
  fs::remove(path);
  ASSERT_NE(owner, nullptr);
  EXPECT_EQ(element<float>(a, 3), 4.0F);
}

TEST_F(SafetensorsTest, ReadsWhatTheOfficialLibraryWrote) {
  const fs::path model = testing_util::tiny_model("qwen3");
  const SafetensorsFolder folder(model);
  const TensorView embed = folder.tensors().at("model.embed_tokens.weight");
  EXPECT_EQ(embed.dtype, DType::kBF16);
  const auto config = json::parse(std::ifstream(model / "config.json"));
  EXPECT_EQ(embed.shape, (Shape{config["vocab_size"], config["hidden_size"]}));
}

TEST_F(SafetensorsTest, TensorsOutOfLineWithTheirTypeAreViewsOfTheFileToo) {
  const json header = {{"byte", entry("U8", {1}, 0, 1)}, {"f", entry("F32", {2}, 1, 9)}};
  for (std::size_t spaces = 0; spaces < 8; ++spaces) {
    const std::string padded = header.dump() + std::string(spaces, ' ');
    const SafetensorsFile file(
        write("x.safetensors", file_of(padded, std::string("z").append(floats({5, 6})))));
    const TensorView f = file.tensors().at("f");
    EXPECT_NE(file.share(f), nullptr) << "a copy is not of the file, and stays beside it";
    file.drop(f);
    EXPECT_EQ(element<float>(f, 1), 6.0F);
  }
}

TEST(ExtentTest, OfAPartIsFromItsFirstElementToItsLast) {
  const Tensor t({4, 6}, DType::kI32);
  EXPECT_EQ(extent(t).size(), 4U * 6 * 4);
  // Columns 1 and 2 of rows 1 to 3: two whole rows, then two elements.
  const std::span<const std::byte> part = extent(t.view().slice(1, 4).columns(1, 3));
  EXPECT_EQ(part.data() - t.view().data, (6 + 1) * 4);
  EXPECT_EQ(part.size(), (2U * 6 + 2) * 4);
  EXPECT_TRUE(extent(t.view().slice(2, 2)).empty());
  EXPECT_TRUE(extent(TensorView()).empty());
  const Tensor blocks({3, 64}, DType::kQ8_0);
  EXPECT_EQ(extent(blocks.view().columns(32, 64)).size(), (2U * 2 + 1) * 34);
}

TEST_F(SafetensorsTest, ScalarsAndEmptyTensorsAreTensors) {
  const json header = {{"s", entry("F32", json::array(), 0, 4)}, {"e", entry("F32", {0, 3}, 4, 4)}};
  const SafetensorsFile file(write("x.safetensors", file_of(header, floats({7}))));
  EXPECT_EQ(file.tensors().at("s").shape, (Shape{1}));
  EXPECT_EQ(file.tensors().at("e").numel(), 0);
}

TEST_F(SafetensorsTest, TypesThatNobodyCanViewAreListedByName) {
  const json header = {{"f8", entry("F8_E4M3", {4}, 0, 4)},
                       {"new", entry("F4", {8}, 4, 8)},
                       {"deep", entry("F32", {1, 1, 1, 1, 1}, 8, 12)},
                       {"ok", entry("I8", {4}, 12, 16)}};
  const SafetensorsFile file(write("x.safetensors", file_of(header, std::string(16, 'x'))));
  EXPECT_EQ(file.tensors().size(), 1U);
  EXPECT_EQ(file.unsupported().at("f8"), "type 'F8_E4M3'");
  EXPECT_EQ(file.unsupported().at("new"), "type 'F4'");
  EXPECT_EQ(file.unsupported().at("deep"), "5 dimensions");
}

TEST_F(SafetensorsTest, SaysWhatIsWrongWithAFalseFile) {
  EXPECT_THAT(file_error(""), HasSubstr("expected at least 8 bytes, found 0 (an empty file)"));
  EXPECT_THAT(file_error("7 bytes"), HasSubstr("expected at least 8 bytes, found 7 (a text file)"));
  EXPECT_THAT(
      file_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
      HasSubstr("it looks like a Git LFS pointer and not the file itself (run: git lfs pull)"));
  EXPECT_THAT(
      file_error(std::string("\0\0\0\0\0\1\0\0{}", 10)),
      HasSubstr("its header would have 1099511627776 bytes, at most 100000000 are allowed"));
  EXPECT_THAT(file_error("PK\x03\x04 a checkpoint of PyTorch"), HasSubstr("a zip archive"));
  EXPECT_THAT(file_error(file_of(std::string("{\"a\": nope}"), "")),
              HasSubstr("header: not valid JSON (at byte 8)"));
  EXPECT_THAT(file_error(file_of(std::string("[1]"), "")),
              HasSubstr("header: expected a JSON object, found a JSON array"));
  EXPECT_THAT(file_error(file_of(std::string("{\"a\":[[[[]]]]}"), "")),
              HasSubstr("nested more than 3 deep"));
  EXPECT_THAT(
      file_error(file_of(std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})"),
                         "x")),
      HasSubstr("key 'a' is there twice"));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnErrorThatTellsBytesExpectedAndFound) {
  const std::string whole = file_of(kTwoTensors, kTwoTensorsData);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(file_error(whole.substr(0, size)),
                testing::ContainsRegex("expected .*[0-9]+ bytes.*, found [0-9]+"))
        << size;
  EXPECT_THAT(file_error(whole.substr(0, whole.size() - 10)),
              HasSubstr("truncated: expected 20 bytes of data after the header, found 10"));
  EXPECT_THAT(file_error(whole.substr(0, 50)), HasSubstr("truncated: expected at least"));
  EXPECT_THAT(file_error(whole + "more"),
              HasSubstr("damaged: expected 20 bytes of data after the header, found 24"));
}

TEST_F(SafetensorsTest, RefusesEntriesThatDoNotFitTheirPlace) {
  const auto with = [this](const json& header) {
    return file_error(file_of(header, std::string(16, 'x')));
  };
  EXPECT_EQ(with({{"a", entry("F32", {4}, 0, 16)}}), "no error");
  EXPECT_THAT(with({{"a", entry("F32", {5}, 0, 20)}}),
              HasSubstr("expected 20 bytes of data after the header, found 16"));
  EXPECT_THAT(with({{"a", entry("F32", {3}, 0, 16)}}),
              HasSubstr("tensor 'a' has 16 bytes, which is not F32 [3]"));
  EXPECT_THAT(with({{"a", entry("F32", {4, 0}, 0, 16)}}), HasSubstr("is not F32 [4, 0]"));
  EXPECT_THAT(with({{"a", entry("F32", {1ULL << 63, 8}, 0, 16)}}), HasSubstr("'a' has 16 bytes"))
      << "a product that overflows to 0";
  EXPECT_THAT(with({{"a", entry("F32", {(1ULL << 62) + 1, 4}, 0, 16)}}), HasSubstr("not F32"))
      << "a product that overflows to the right size";
  EXPECT_THAT(with({{"a", entry("F32", {2}, 0, 8)}, {"b", entry("F32", {3}, 4, 16)}}),
              HasSubstr("tensor 'b' overlaps the one before it: it begins at 4, expected 8"));
  EXPECT_THAT(with({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {2}, 8, 16)}}),
              HasSubstr("tensor 'b' follows a hole: it begins at 8, expected 4"));
  EXPECT_THAT(with({{"a", entry("F32", {4}, 16, 0)}}), HasSubstr("no ascending pair"));
  EXPECT_THAT(with({{"a", {{"shape", {4}}, {"data_offsets", {0, 16}}}}}),
              HasSubstr("'a' has no dtype"));
  EXPECT_THAT(with({{"a", 1}}), HasSubstr("'a' has no dtype"));
  EXPECT_THAT(with({{"a", entry("F32", {-4}, 0, 16)}}), HasSubstr("no shape of whole numbers"));
  EXPECT_THAT(with({{"a", entry("F32", "4", 0, 16)}}), HasSubstr("no shape of whole numbers"));
  EXPECT_THAT(with({{"a", {{"dtype", "F32"}, {"shape", {4}}, {"data_offsets", {0, 16, 3}}}}}),
              HasSubstr("no ascending pair of data_offsets"));
}

TEST_F(SafetensorsTest, ADamagedFileIsReadOrRefusedButNeverReadPastItsEnd) {
  const std::string whole = file_of(kTwoTensors, kTwoTensorsData);
  testing_util::Random random(2);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = whole;
    const auto size = static_cast<std::int64_t>(whole.size());
    damaged[static_cast<std::size_t>(random.below(size))] = static_cast<char>(random.next());
    damaged[static_cast<std::size_t>(random.below(size))] = "0123456789[]{},:\""[random.below(17)];
    try {
      const SafetensorsFile file(write("x.safetensors", damaged));
      unsigned sum = 0;
      for (const auto& [name, tensor] : file.tensors())
        for (std::int64_t i = 0; i < tensor.bytes(); ++i)
          sum += static_cast<unsigned>(tensor.data[i]);
      EXPECT_GE(sum, 0U);
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.what(), HasSubstr("x.safetensors"));
    }
  }
  EXPECT_GT(refused, 500);
}

TEST_F(SafetensorsTest, OnlyTheFilesThatTheIndexNamesCount) {
  write_scalar("model-1.safetensors", "a", 1);
  write_scalar("model-2.safetensors", "b", 2);
  write_scalar("model-old.safetensors", "a", 99);
  write_scalar("consolidated.safetensors", "other.name", 98);
  write("broken.safetensors", "not read at all");
  write("model.safetensors.index.json",
        R"({"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.tensors().size(), 2U);
  EXPECT_EQ(value_of(folder, "a"), 1.0F);
  EXPECT_EQ(value_of(folder, "b"), 2.0F);
  folder.drop(folder.tensors().at("b"));
  EXPECT_EQ(value_of(folder, "b"), 2.0F);
}

TEST_F(SafetensorsTest, AnIndexThatDoesNotMatchTheFilesIsAnError) {
  write_scalar("model-1.safetensors", "a", 1);
  const auto with = [this](const std::string& weight_map) {
    write("model.safetensors.index.json", "{\"weight_map\":" + weight_map + "}");
    return folder_error();
  };
  EXPECT_EQ(with(R"({"a":"model-1.safetensors"})"), "no error");
  EXPECT_THAT(with(R"({"a":"model-1.safetensors","b":"model-3.safetensors"})"),
              HasSubstr("names the file 'model-3.safetensors', which is missing from the folder"));
  EXPECT_THAT(with(R"({"a":"model-1.safetensors","b":"model-1.safetensors"})"),
              HasSubstr("model-1.safetensors: tensor 'b' is missing, which the index says"));
  EXPECT_THAT(with(R"({"a":"../model-1.safetensors"})"),
              HasSubstr("not mapped to the name of a file"));
  EXPECT_THAT(with(R"({"a":7})"), HasSubstr("not mapped to the name of a file"));
  EXPECT_THAT(with("[]"), HasSubstr("expected an object \"weight_map\""));
  write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(folder_error(), HasSubstr("expected JSON, found a Git LFS pointer"));
}

TEST_F(SafetensorsTest, ABrokenShardIsNamed) {
  write_scalar("model-1.safetensors", "a", 1);
  write("model-2.safetensors",
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n");
  write("model.safetensors.index.json",
        R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  EXPECT_THAT(folder_error(), HasSubstr("model-2.safetensors: not a safetensors file"));
  EXPECT_THAT(folder_error(), HasSubstr("Git LFS pointer"));
}

TEST_F(SafetensorsTest, WithoutAnIndexAllFilesCountExceptTheConsolidatedCopy) {
  write_scalar("consolidated.safetensors", "a", 9);
  EXPECT_EQ(value_of(SafetensorsFolder(folder_), "a"), 9.0F) << "alone it counts";
  write_scalar("model-1.safetensors", "a", 1);
  EXPECT_EQ(value_of(SafetensorsFolder(folder_), "a"), 1.0F);
  write_scalar("model-2.safetensors", "b", 2);
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.tensors().size(), 2U);
  EXPECT_EQ(value_of(folder, "b"), 2.0F);
  write_scalar("model-3.safetensors", "a", 3);
  EXPECT_THAT(folder_error(), HasSubstr("model-3.safetensors: tensor 'a' is also in"));
}

TEST_F(SafetensorsTest, WithoutAnIndexNothingBesideTheSingleFileCounts) {
  write_scalar("model.safetensors", "a", 1);
  write_scalar("model-old.safetensors", "a", 99);
  write("golden.safetensors", "not read at all");
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.tensors().size(), 1U);
  EXPECT_EQ(value_of(folder, "a"), 1.0F);
}

TEST_F(SafetensorsTest, AFolderWithoutWeightsTellsWhatItHas) {
  EXPECT_THAT(folder_error(), HasSubstr("no *.safetensors file (a GGUF file is given"));
  write("pytorch_model.bin", "x");
  EXPECT_THAT(folder_error(), HasSubstr("no *.safetensors file; it has pytorch_model.bin"));
  EXPECT_THROW(SafetensorsFolder(folder_ / "absent"), Error);
}

}  // namespace
}  // namespace minisgl
