#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// Writes the format as its specification has it, and as wrong as a test wants.
class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Bytes& u32(std::uint32_t value) { return number(value); }
  Bytes& u64(std::uint64_t value) { return number(value); }
  Bytes& raw(std::string_view text) {
    data_ += text;
    return *this;
  }
  Bytes& text(std::string_view text) { return u64(text.size()).raw(text); }
  Bytes& pad(std::size_t alignment) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  /// Magic, version and the two counts.
  Bytes& header(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(entries);
  }
  Bytes& tensor(std::string_view name, std::vector<std::uint64_t> ne, std::uint32_t type,
                std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(ne.size()));
    for (const std::uint64_t size : ne) u64(size);
    return u32(type).u64(offset);
  }
  const std::string& data() const { return data_; }

 private:
  std::string data_;
};

constexpr std::uint32_t kU32 = 4, kF32Value = 6, kBoolValue = 7, kText = 8, kArray = 9;

class GgufTest : public testing::Test {
 protected:
  GgufTest() { fs::create_directories(folder_); }
  ~GgufTest() override { fs::remove_all(folder_); }

  fs::path write(const Bytes& bytes) const {
    const fs::path path = folder_ / "x.gguf";
    std::ofstream(path, std::ios::binary) << bytes.data();
    return path;
  }
  std::string error_of(const Bytes& bytes) const {
    const fs::path path = write(bytes);
    try {
      const GgufFile file(path);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path.string()));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "no error";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_gguf_test_" + std::to_string(::getpid()));
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// Two entries and two tensors: f32 "a" with ne [3, 2], f16 "b" with ne [4].
Bytes small_file(std::uint32_t version = 3) {
  Bytes file;
  file.header(2, 2, version);
  file.text("general.architecture").u32(kText).text("llama");
  file.text("llama.block_count").u32(kU32).u32(7);
  file.tensor("a", {3, 2}, /*type=*/0, 0).tensor("b", {4}, /*type=*/1, 32);
  file.pad(32);
  for (int i = 0; i < 6; ++i) file.number(static_cast<float>(i));
  file.pad(32);
  for (int i = 0; i < 4; ++i) file.number(static_cast<std::uint16_t>(0x3C00 + i));
  return file;
}

TEST_F(GgufTest, ReadsTensorsOfVersions2And3WithTheSlowestDimensionFirst) {
  for (const std::uint32_t version : {2U, 3U}) {
    const GgufFile file(write(small_file(version)));
    EXPECT_EQ(file.version(), static_cast<int>(version));
    ASSERT_EQ(file.tensors().size(), 2U);
    const TensorView a = file.tensors().at("a");
    EXPECT_EQ(a.shape, (Shape{2, 3}));
    EXPECT_EQ(a.as<float>()[5], 5.0F);
    const TensorView b = file.tensors().at("b");
    EXPECT_EQ(b.dtype, DType::kF16);
    EXPECT_EQ(b.as<Half>()[3].bits, 0x3C03);
    file.drop(a);  // a dropped page is read again from the file
    EXPECT_EQ(a.as<float>()[5], 5.0F);
  }
}

// Oracle: the `gguf` Python package wrote the files, and its reader the index
// (tools/oracle/make_gguf_types.py).
TEST_F(GgufTest, FindsEveryTypeWhereTheGgufPackagePutIt) {
  const fs::path data = fs::path(MINISGL_TEST_DATA) / "gguf";
  const auto index = nlohmann::json::parse(std::ifstream(data / "types.json"));
  for (const int version : {2, 3}) {
    const fs::path path = data / ("types_v" + std::to_string(version) + ".gguf");
    const MappedFile raw(path);
    const GgufFile file(path);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.get_string("general.architecture"), "llama");
    EXPECT_THAT(file.get_strings("test.tokens"), ElementsAre("a", "\xC3\xA9", ""));
    EXPECT_THAT(file.get_ints("test.ids"), ElementsAre(1, -2, 3));
    EXPECT_EQ(file.get_float("test.float"), 0.5);
    EXPECT_EQ(file.find_bool("test.bool"), true);
    ASSERT_EQ(file.tensors().size(), index.size());
    for (const auto& entry : index) {
      const TensorView tensor = file.tensors().at(entry["name"]);
      EXPECT_EQ(tensor.shape, (Shape{entry["rows"], entry["cols"]})) << entry["name"];
      ASSERT_EQ(tensor.bytes(), entry["bytes"].get<std::int64_t>()) << entry["name"];
      EXPECT_EQ(
          std::memcmp(tensor.data, raw.bytes().data() + entry["file_offset"].get<std::size_t>(),
                      static_cast<std::size_t>(tensor.bytes())),
          0)
          << entry["name"];
    }
  }
}

TEST_F(GgufTest, ReadsEveryKindOfValue) {
  Bytes bytes;
  bytes.header(0, 20);
  bytes.text("u8").u32(0).number(std::uint8_t{200});
  bytes.text("i8").u32(1).number(std::int8_t{-100});
  bytes.text("u16").u32(2).number(std::uint16_t{60000});
  bytes.text("i16").u32(3).number(std::int16_t{-30000});
  bytes.text("u32").u32(4).number(std::uint32_t{4000000000U});
  bytes.text("i32").u32(5).number(std::int32_t{-2000000000});
  bytes.text("f32").u32(6).number(0.5F);
  bytes.text("yes").u32(7).number(std::uint8_t{1});
  bytes.text("text").u32(8).text("h\xC3\xA9");
  bytes.text("u64").u32(10).number(~std::uint64_t{0});
  bytes.text("i64").u32(11).number(std::int64_t{-5});
  bytes.text("f64").u32(12).number(1e300);
  bytes.text("u8s").u32(9).u32(0).u64(2).raw("\x01\xFF");
  bytes.text("i32s").u32(9).u32(5).u64(2).number(std::int32_t{-1}).number(std::int32_t{7});
  bytes.text("u32s").u32(9).u32(4).u64(1).number(~std::uint32_t{0});
  bytes.text("f32s").u32(9).u32(6).u64(2).number(1.5F).number(-2.0F);
  bytes.text("bools").u32(9).u32(7).u64(2).raw(std::string_view("\x01\x00", 2));
  bytes.text("texts").u32(9).u32(8).u64(2).text("").text("xy");
  bytes.text("none").u32(9).u32(8).u64(0);
  bytes.text("u64s").u32(9).u32(10).u64(1).number(~std::uint64_t{0});
  const GgufFile file(write(bytes));

  EXPECT_EQ(file.get_int("u8"), 200);
  EXPECT_EQ(file.get_int("i8"), -100);
  EXPECT_EQ(file.get_int("u16"), 60000);
  EXPECT_EQ(file.get_int("i16"), -30000);
  EXPECT_EQ(file.get_int("u32"), 4000000000);
  EXPECT_EQ(file.get_int("i32"), -2000000000);
  EXPECT_EQ(file.get_float("f32"), 0.5);
  EXPECT_EQ(file.get_float("u8"), 200.0) << "integers are floats where a float is asked for";
  EXPECT_EQ(file.find_bool("yes"), true);
  EXPECT_EQ(file.get_string("text"), "h\xC3\xA9");
  EXPECT_EQ(file.get_int("i64"), -5);
  EXPECT_EQ(file.get_float("f64"), 1e300);
  EXPECT_THAT(file.get_ints("u8s"), ElementsAre(1, 255));
  EXPECT_THAT(file.get_ints("i32s"), ElementsAre(-1, 7));
  EXPECT_THAT(file.get_ints("u32s"), ElementsAre(4294967295));
  EXPECT_THAT(file.get_floats("f32s"), ElementsAre(1.5, -2.0));
  EXPECT_EQ(std::get<std::vector<bool>>(*file.find("bools")), (std::vector<bool>{true, false}));
  EXPECT_THAT(file.get_strings("texts"), ElementsAre("", "xy"));
  EXPECT_TRUE(file.get_strings("none").empty());

  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(file.find_int("absent"), std::nullopt);
  EXPECT_EQ(file.find_strings("absent"), nullptr);
  EXPECT_THAT(message_of([&] { file.get_int("absent"); }),
              HasSubstr("x.gguf: metadata key 'absent' is missing"));
  EXPECT_THAT(message_of([&] { file.get_int("text"); }),
              HasSubstr("metadata key 'text' is a string, expected an integer"));
  EXPECT_THAT(message_of([&] { file.find_string("u8s"); }),
              HasSubstr("'u8s' is an array of integers, expected a string"));
  EXPECT_THAT(message_of([&] { file.get_strings("f32s"); }),
              HasSubstr("'f32s' is an array of floats, expected an array of strings"));
  EXPECT_THAT(message_of([&] { file.find_bool("u8"); }),
              HasSubstr("'u8' is an integer, expected a bool"));
  EXPECT_THAT(message_of([&] { file.get_int("u64"); }), HasSubstr("does not fit 63 bits"));
  EXPECT_THAT(message_of([&] { file.get_ints("u64s"); }), HasSubstr("does not fit 63 bits"));
}

TEST_F(GgufTest, SaysWhatAFileOfAnotherKindLooksLike) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"", "it is an empty file"},
      {"GG", "it is a text file"},
      {"PK\x03\x04 and more", "it is a zip archive"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"},
      {std::string_view("\x10\0\0\0\0\0\0\0{\"a\":{}}", 16), "it is a safetensors file"},
      {"\x7F\x45LF\x02", "it is a program"},
      {"<!DOCTYPE html>", "it is an HTML page"},
      {"tjgg\x03", "it is a GGJT file"},
      {"\x80\x02}q", "it is a Python pickle"},
      {std::string_view("\0\0\0\0\0", 5), "it is a file of zeros"},
      {"{\"model_type\": \"llama\"}", "it is a JSON file"},
      {"\x01\x02\x03\x04\x05", "it is a file that begins with the bytes 01 02 03 04"},
  };
  for (const auto& [content, expected] : kCases) {
    EXPECT_THAT(error_of(Bytes().raw(content)), HasSubstr("not a GGUF file")) << expected;
    EXPECT_THAT(error_of(Bytes().raw(content)), HasSubstr(expected));
  }
  EXPECT_THAT(message_of([&] { GgufFile file(folder_); }), HasSubstr("it is a folder"));
  EXPECT_THAT(message_of([&] { GgufFile file(folder_ / "no"); }),
              HasSubstr("No such file or directory"));
}

TEST_F(GgufTest, NamesTheVersionThatItCannotRead) {
  EXPECT_THAT(error_of(Bytes().header(0, 0, 1)),
              HasSubstr("GGUF version 1, supported are 2 and 3"));
  EXPECT_THAT(error_of(Bytes().header(0, 0, 4)), HasSubstr("GGUF version 4"));
  EXPECT_THAT(error_of(Bytes().header(0, 0, 0x03000000)), HasSubstr("big-endian"));
}

TEST_F(GgufTest, EveryTruncationIsAnErrorThatTellsBytesNeededAndFound) {
  const std::string whole = small_file().data();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string message = error_of(Bytes().raw(whole.substr(0, size)));
    EXPECT_NE(message, "no error") << size << " of " << whole.size() << " bytes";
    EXPECT_THAT(message, HasSubstr(size < 4 ? "not a GGUF file" : "truncated")) << size;
  }
  const std::size_t data = (whole.size() - 8) / 32 * 32 - 32;
  EXPECT_THAT(error_of(Bytes().raw(whole.substr(0, data + 30))),
              HasSubstr("truncated: expected at least " + std::to_string(whole.size()) +
                        " bytes (the end of tensor 'b'), found " + std::to_string(data + 30)));
  EXPECT_THAT(error_of(Bytes().raw(whole.substr(0, 6))),
              HasSubstr("4 bytes are needed at byte 4 for the version, found 2"));
}

TEST_F(GgufTest, RefusesLengthsAndCountsThatDoNotFitTheFile) {
  constexpr auto kHuge = ~std::uint64_t{0};
  EXPECT_THAT(error_of(Bytes().header(0, kHuge)),
              HasSubstr("18446744073709551615 metadata entries and 0 tensors do not fit"));
  EXPECT_THAT(error_of(Bytes().header(1U << 20, 0)), HasSubstr("1048576 tensors do not fit"));
  const auto entry = [](std::uint32_t type) {
    Bytes bytes;
    bytes.header(0, 1).text("k").u32(type);
    return bytes;
  };
  EXPECT_THAT(error_of(Bytes().header(0, 1).u64(kHuge).raw(std::string(99, 'x'))),
              HasSubstr("18446744073709551615 bytes are needed at byte 32 for a metadata key"));
  EXPECT_THAT(error_of(entry(kText).u64(1000)), HasSubstr("for metadata key 'k', found 0"));
  EXPECT_THAT(error_of(entry(kArray).u32(kU32).u64(kHuge / 2)),
              HasSubstr("'k' has 9223372036854775807 elements of 4 bytes, but only 0 bytes"));
  EXPECT_THAT(error_of(entry(kArray).u32(kText).u64(1000).u64(0)),
              HasSubstr("'k' has 1000 strings, but only 8 bytes are left"));
  EXPECT_THAT(error_of(entry(kArray).u32(kBoolValue).u64(kHuge).raw("\x01")),
              HasSubstr("for metadata key 'k', found 0"));
}

TEST_F(GgufTest, RefusesDamagedMetadata) {
  const auto entries = [](std::uint64_t count) {
    Bytes bytes;
    bytes.header(0, count);
    return bytes;
  };
  EXPECT_THAT(error_of(entries(1).text("k").u32(kArray).u32(kArray).u64(1).u32(kU32).u64(0)),
              HasSubstr("'k' is an array of arrays, which is not supported"));
  EXPECT_THAT(error_of(entries(1).text("k").u32(13).u32(0)),
              HasSubstr("'k' has the unknown value type 13"));
  EXPECT_THAT(error_of(entries(1).text("k").u32(kArray).u32(99).u64(0)),
              HasSubstr("'k' is an array of the unknown value type 99"));
  EXPECT_THAT(error_of(entries(1).text("k").u32(kBoolValue).number(std::uint8_t{2})),
              HasSubstr("'k' is a bool with the value 2"));
  EXPECT_THAT(error_of(entries(1).text("").u32(kU32).u32(0)), HasSubstr("key is empty"));
  EXPECT_THAT(error_of(entries(2).text("k").u32(kU32).u32(1).text("k").u32(kU32).u32(1)),
              HasSubstr("metadata key 'k' is there twice"));
  EXPECT_THAT(error_of(entries(1).text(std::string(500, 'k')).u32(13).u32(0)),
              HasSubstr(" '" + std::string(80, 'k') + "...' "));
  EXPECT_THAT(error_of(entries(1).text("a\nb\x1B").u32(13).u32(0)), HasSubstr("'a\\x0ab\\x1b'"));
}

TEST_F(GgufTest, RefusesAnAlignmentThatIsNoPowerOfTwo) {
  for (const std::uint32_t alignment : {0U, 1U, 4U, 24U, 1U << 31}) {
    Bytes bytes;
    bytes.header(0, 1).text("general.alignment").u32(kU32).u32(alignment);
    EXPECT_THAT(error_of(bytes), HasSubstr("general.alignment is " + std::to_string(alignment)));
  }
  Bytes text;
  text.header(0, 1).text("general.alignment").u32(kF32Value).number(32.0F);
  EXPECT_THAT(error_of(text), HasSubstr("'general.alignment' is a float, expected an integer"));
}

TEST_F(GgufTest, TheAlignmentOfTheFilePlacesTheData) {
  Bytes bytes;
  bytes.header(1, 1).text("general.alignment").u32(kU32).u32(128);
  bytes.tensor("a", {1}, 0, 0).pad(128).number(42.0F);
  EXPECT_EQ(GgufFile(write(bytes)).tensors().at("a").as<float>()[0], 42.0F);
}

TEST_F(GgufTest, RefusesTensorsThatTheFileCannotHold) {
  const auto with = [](std::vector<std::uint64_t> ne, std::uint32_t type, std::uint64_t offset) {
    Bytes bytes;
    bytes.header(1, 0).tensor("w", std::move(ne), type, offset).pad(32).raw(std::string(64, 0));
    return bytes;
  };
  EXPECT_EQ(error_of(with({16}, 0, 0)), "no error");
  EXPECT_THAT(error_of(with({17}, 0, 0)), HasSubstr("truncated: expected at least"));
  EXPECT_THAT(error_of(with({8}, 0, 64)), HasSubstr("(the end of tensor 'w')"));
  EXPECT_THAT(error_of(with({8}, 0, 4)),
              HasSubstr("'w' is misaligned: its offset 4 is not a multiple of 32"));
  EXPECT_THAT(error_of(with({8}, 0, ~std::uint64_t{31})), HasSubstr("'w' has the offset"));
  EXPECT_THAT(error_of(with({}, 0, 0)), HasSubstr("'w' has 0 dimensions, expected 1 to 4"));
  EXPECT_THAT(error_of(with({1, 1, 1, 1, 1}, 0, 0)), HasSubstr("'w' has 5 dimensions"));
  EXPECT_THAT(error_of(with({4, 0}, 0, 0)), HasSubstr("'w' has a dimension of size 0"));
  EXPECT_THAT(error_of(with({1U << 31, 1U << 31}, 0, 0)), HasSubstr("more than 2^48 elements"));
  EXPECT_THAT(error_of(with({~std::uint64_t{0}, 2}, 0, 0)), HasSubstr("more than 2^48"));
  EXPECT_THAT(error_of(with({33}, 2, 0)),
              HasSubstr("'w' has rows of 33 elements, but Q4_0 stores whole blocks of 32"));
  EXPECT_THAT(
      error_of(with({256}, 16, 0)),
      HasSubstr("'w' has the type IQ2_XXS, which is not supported; supported are F32, F16"));
  EXPECT_THAT(error_of(with({256}, 4, 0)), HasSubstr("'w' has the type number 4"));
  EXPECT_THAT(error_of(Bytes().header(1, 0).tensor("", {8}, 0, 0).pad(128)), HasSubstr("no name"));
}

TEST_F(GgufTest, RefusesTensorsThatOverlapOrHaveOneName) {
  const auto pair = [](std::string_view second, std::uint64_t offset) {
    Bytes bytes;
    bytes.header(2, 0).tensor(second, {8}, 0, offset).tensor("a", {16}, 0, 0);
    bytes.pad(32).raw(std::string(128, 0));
    return bytes;
  };
  EXPECT_EQ(error_of(pair("b", 64)), "no error");
  EXPECT_THAT(error_of(pair("b", 32)), HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(error_of(pair("b", 0)), HasSubstr("overlap"));
  EXPECT_THAT(error_of(pair("a", 64)), HasSubstr("tensor 'a' is there twice"));
}

TEST_F(GgufTest, ADamagedFileIsReadOrRefusedButNeverReadPastItsEnd) {
  const std::string whole = small_file().data();
  testing_util::Random random(1);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = whole;
    for (std::int64_t n = random.between(1, 3); n > 0; --n) {
      const auto at =
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(whole.size())));
      const char kValues[] = {0, 1, '\x7F', '\xFF', static_cast<char>(random.next())};
      damaged[at] = kValues[random.below(5)];
    }
    const fs::path path = write(Bytes().raw(damaged));
    try {
      const GgufFile file(path);
      unsigned sum = 0;  // sanitizers and the mapping's end would stop a read that goes astray
      for (const auto& [name, tensor] : file.tensors())
        for (std::int64_t i = 0; i < tensor.bytes(); ++i)
          sum += static_cast<unsigned>(tensor.data[i]);
      EXPECT_GE(sum, 0U);
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.what(), HasSubstr("x.gguf"));
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(GgufTest, IsGgufLooksAtTheMagicOnly) {
  EXPECT_TRUE(is_gguf(write(Bytes().raw("GGUF"))));
  EXPECT_FALSE(is_gguf(write(Bytes().raw("GGU"))));
  EXPECT_FALSE(is_gguf(folder_));
  EXPECT_FALSE(is_gguf(folder_ / "absent"));
}

}  // namespace
}  // namespace minisgl
