// Source: ggml's docs/gguf.md for the layout, ggml.h for the numbers of tensor types. The file is
// taken to be hostile: each length and count is compared with the bytes that are left before
// anything is read or allocated for it.

#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/math.h"
#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

constexpr std::string_view kMagic = "GGUF";
constexpr std::int64_t kDefaultAlignment = 32;
// Views are read as floats where they lie, so the format's own minimum of 8 suffices for all types.
constexpr std::int64_t kMinAlignment = 8;
constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 30;
// Smallest metadata entry: key length, key of one byte, type, value of one byte.
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
// Smallest directory entry: name length, name of one byte, rank, one dimension, type, offset.
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

enum class ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

/// A tensor type by its number in the file; `dtype` is meaningful when `supported`.
struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  bool supported = false;
  DType dtype = DType::kF32;
};

constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", true, DType::kF32},
    {1, "F16", true, DType::kF16},
    {2, "Q4_0", true, DType::kQ4_0},
    {3, "Q4_1", true, DType::kQ4_1},
    {6, "Q5_0", true, DType::kQ5_0},
    {7, "Q5_1", true, DType::kQ5_1},
    {8, "Q8_0", true, DType::kQ8_0},
    {9, "Q8_1"},
    {10, "Q2_K", true, DType::kQ2_K},
    {11, "Q3_K", true, DType::kQ3_K},
    {12, "Q4_K", true, DType::kQ4_K},
    {13, "Q5_K", true, DType::kQ5_K},
    {14, "Q6_K", true, DType::kQ6_K},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL", true, DType::kIQ4_NL},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS", true, DType::kIQ4_XS},
    {24, "I8", true, DType::kI8},
    {25, "I16", true, DType::kI16},
    {26, "I32", true, DType::kI32},
    {27, "I64", true, DType::kI64},
    {28, "F64"},
    {29, "IQ1_M"},
    {30, "BF16", true, DType::kBF16},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

std::string supported_types() {
  std::string list;
  for (const GgmlType& type : kGgmlTypes) {
    if (!type.supported) continue;
    if (!list.empty()) list += ", ";
    list += type.name;
  }
  return list;
}

/// A position in the file that cannot run past its end.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  [[noreturn]] void fail(const std::string& fault) const {
    throw Error(file_.path().string() + ": " + fault);
  }

  std::size_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  /// `what` completes "... for <what>".
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left())
      fail("truncated or damaged: " + std::to_string(count) + " bytes are needed at byte " +
           std::to_string(position_) + " for " + std::string(what) + ", found " +
           std::to_string(left()));
    const auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  bool boolean(std::string_view what) {
    const auto byte = number<std::uint8_t>(what);
    if (byte > 1)
      fail("damaged: " + std::string(what) + " is a bool with the value " + std::to_string(byte) +
           ", expected 0 or 1");
    return byte == 1;
  }

  std::string text(std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    const auto part = take(length, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  const MappedFile& file_;
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

/// `count` numbers stored as Stored, kept as Kept.
template <class Stored, class Kept>
std::vector<Kept> read_numbers(Reader& in, std::uint64_t count, std::string_view what) {
  if (count > in.left() / sizeof(Stored))
    in.fail("truncated or damaged: " + std::string(what) + " has " + std::to_string(count) +
            " elements of " + std::to_string(sizeof(Stored)) + " bytes, but only " +
            std::to_string(in.left()) + " bytes are left");
  const auto part = in.take(count * sizeof(Stored), what);
  std::vector<Kept> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, part.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<Kept>(value);
  }
  return values;
}

GgufValue read_array(Reader& in, const std::string& what) {
  const auto type = static_cast<ValueType>(in.number<std::uint32_t>(what));
  const auto count = in.number<std::uint64_t>(what);
  switch (type) {
    case ValueType::kU8: return read_numbers<std::uint8_t, std::uint64_t>(in, count, what);
    case ValueType::kI8: return read_numbers<std::int8_t, std::int64_t>(in, count, what);
    case ValueType::kU16: return read_numbers<std::uint16_t, std::uint64_t>(in, count, what);
    case ValueType::kI16: return read_numbers<std::int16_t, std::int64_t>(in, count, what);
    case ValueType::kU32: return read_numbers<std::uint32_t, std::uint64_t>(in, count, what);
    case ValueType::kI32: return read_numbers<std::int32_t, std::int64_t>(in, count, what);
    case ValueType::kU64: return read_numbers<std::uint64_t, std::uint64_t>(in, count, what);
    case ValueType::kI64: return read_numbers<std::int64_t, std::int64_t>(in, count, what);
    case ValueType::kF32: return read_numbers<float, double>(in, count, what);
    case ValueType::kF64: return read_numbers<double, double>(in, count, what);
    case ValueType::kBool: {
      std::vector<bool> values;
      for (std::uint64_t i = 0; i < count; ++i) values.push_back(in.boolean(what));
      return values;
    }
    case ValueType::kString: {
      if (count > in.left() / sizeof(std::uint64_t))
        in.fail("truncated or damaged: " + what + " has " + std::to_string(count) +
                " strings, but only " + std::to_string(in.left()) + " bytes are left");
      std::vector<std::string> values;
      for (std::uint64_t i = 0; i < count; ++i) values.push_back(in.text(what));
      return values;
    }
    case ValueType::kArray: in.fail(what + " is an array of arrays, which is not supported");
  }
  in.fail("damaged: " + what + " is an array of the unknown value type " +
          std::to_string(static_cast<std::uint32_t>(type)));
}

GgufValue read_value(Reader& in, const std::string& what) {
  const auto type = static_cast<ValueType>(in.number<std::uint32_t>(what));
  switch (type) {
    case ValueType::kU8: return std::uint64_t{in.number<std::uint8_t>(what)};
    case ValueType::kI8: return std::int64_t{in.number<std::int8_t>(what)};
    case ValueType::kU16: return std::uint64_t{in.number<std::uint16_t>(what)};
    case ValueType::kI16: return std::int64_t{in.number<std::int16_t>(what)};
    case ValueType::kU32: return std::uint64_t{in.number<std::uint32_t>(what)};
    case ValueType::kI32: return std::int64_t{in.number<std::int32_t>(what)};
    case ValueType::kU64: return in.number<std::uint64_t>(what);
    case ValueType::kI64: return in.number<std::int64_t>(what);
    case ValueType::kF32: return double{in.number<float>(what)};
    case ValueType::kF64: return in.number<double>(what);
    case ValueType::kBool: return in.boolean(what);
    case ValueType::kString: return in.text(what);
    case ValueType::kArray: return read_array(in, what);
  }
  in.fail("damaged: " + what + " has the unknown value type " +
          std::to_string(static_cast<std::uint32_t>(type)));
}

bool has_magic(const MappedFile& file) {
  const auto bytes = file.bytes();
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

/// A directory entry before the place of the data is known.
struct TensorEntry {
  std::string name;
  Shape shape;  // row-major
  DType dtype = DType::kF32;
  std::uint64_t offset = 0;  // from the start of the data
  std::uint64_t bytes = 0;
};

DType read_dtype(Reader& in, const std::string& what) {
  const auto number = in.number<std::uint32_t>(what);
  const auto known = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                  [number](const GgmlType& t) { return t.number == number; });
  if (known != std::end(kGgmlTypes) && known->supported) return known->dtype;
  in.fail(what + " has the type " +
          (known == std::end(kGgmlTypes) ? "number " + std::to_string(number)
                                         : std::string(known->name)) +
          ", which is not supported; supported are " + supported_types());
}

TensorEntry read_tensor_entry(Reader& in) {
  TensorEntry entry;
  entry.name = in.text("the name of a tensor");
  if (entry.name.empty()) in.fail("damaged: a tensor has no name");
  const std::string what = "tensor " + in_quotes(entry.name);
  const auto rank = in.number<std::uint32_t>(what);
  if (rank < 1 || rank > kMaxRank)
    in.fail(what + " has " + std::to_string(rank) + " dimensions, expected 1 to 4");

  // Bounded so that neither the count nor the bytes of it can overflow below.
  constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;
  entry.shape.rank = static_cast<int>(rank);
  std::uint64_t count = 1;
  for (int i = entry.shape.rank - 1; i >= 0; --i) {  // the file has the fastest dimension first
    const auto size = in.number<std::uint64_t>(what);
    if (size == 0) in.fail(what + " has a dimension of size 0");
    if (size > kMaxElements / count) in.fail("damaged: " + what + " has more than 2^48 elements");
    count *= size;
    entry.shape.dims[i] = static_cast<std::int64_t>(size);
  }
  entry.dtype = read_dtype(in, what);
  const DTypeInfo type = info(entry.dtype);
  if (entry.shape[-1] % type.block_elems != 0)
    in.fail(what + " has rows of " + std::to_string(entry.shape[-1]) + " elements, but " +
            std::string(type.name) + " stores whole blocks of " + std::to_string(type.block_elems));
  entry.bytes = static_cast<std::uint64_t>(bytes_of(entry.dtype, static_cast<std::int64_t>(count)));
  entry.offset = in.number<std::uint64_t>(what);
  return entry;
}

int read_version(Reader& in, const MappedFile& file) {
  if (!has_magic(file)) in.fail("not a GGUF file: it is " + describe_content(file.bytes()));
  in.take(kMagic.size(), "the magic");
  const auto version = in.number<std::uint32_t>("the version");
  if (version == 2 || version == 3) return static_cast<int>(version);
  // Read in the wrong order a small version number has its low half empty.
  if (version != 0 && (version & 0xFFFFU) == 0)
    in.fail("a big-endian GGUF file, only little-endian ones are supported");
  in.fail("GGUF version " + std::to_string(version) + ", supported are 2 and 3");
}

std::int64_t alignment_of(const GgufFile& file) {
  const std::int64_t alignment = file.find_int("general.alignment").value_or(kDefaultAlignment);
  if (alignment < kMinAlignment || alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    throw Error(file.path().string() + ": general.alignment is " + std::to_string(alignment) +
                ", expected a power of two from 8 to 2^30");
  return alignment;
}

/// Entries against the file: aligned, within it, apart from each other.
void check_layout(const Reader& in, std::vector<TensorEntry>& entries, std::uint64_t alignment,
                  std::uint64_t data_start, std::uint64_t file_bytes) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.offset % alignment != 0)
      in.fail("damaged: tensor " + in_quotes(entry.name) + " is misaligned: its offset " +
              std::to_string(entry.offset) + " is not a multiple of " + std::to_string(alignment));
    if (previous != nullptr && entry.offset - previous->offset < previous->bytes)
      in.fail("damaged: tensors " + in_quotes(previous->name) + " and " + in_quotes(entry.name) +
              " overlap");
    previous = &entry;
  }
  // The last tensor first: it tells how long the whole file should be.
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->offset > std::numeric_limits<std::int64_t>::max() - data_start - entry->bytes)
      in.fail("damaged: tensor " + in_quotes(entry->name) + " has the offset " +
              std::to_string(entry->offset));
    const std::uint64_t end = data_start + entry->offset + entry->bytes;
    if (end > file_bytes)
      in.fail("truncated: expected at least " + std::to_string(end) + " bytes (the end of tensor " +
              in_quotes(entry->name) + "), found " + std::to_string(file_bytes));
  }
}

std::string kind_of(const GgufValue& value) {
  constexpr std::string_view kKinds[] = {"an integer",
                                         "an integer",
                                         "a float",
                                         "a bool",
                                         "a string",
                                         "an array of integers",
                                         "an array of integers",
                                         "an array of floats",
                                         "an array of bools",
                                         "an array of strings"};
  static_assert(std::size(kKinds) == std::variant_size_v<GgufValue>);
  return std::string(kKinds[value.index()]);
}

[[noreturn]] void wrong_kind(const GgufFile& file, std::string_view key, const GgufValue& value,
                             std::string_view expected) {
  throw Error(file.path().string() + ": metadata key " + in_quotes(key) + " is " + kind_of(value) +
              ", expected " + std::string(expected));
}

[[noreturn]] void missing(const GgufFile& file, std::string_view key) {
  throw Error(file.path().string() + ": metadata key " + in_quotes(key) + " is missing");
}

template <class T>
T required(const GgufFile& file, std::string_view key, std::optional<T> value) {
  if (!value) missing(file, key);
  return *std::move(value);
}

std::int64_t to_int64(const GgufFile& file, std::string_view key, std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw Error(file.path().string() + ": metadata key " + in_quotes(key) + " is " +
                std::to_string(value) + ", which does not fit 63 bits");
  return static_cast<std::int64_t>(value);
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  Reader in(file_);
  version_ = read_version(in, file_);
  const auto num_tensors = in.number<std::uint64_t>("the number of tensors");
  const auto num_entries = in.number<std::uint64_t>("the number of metadata entries");
  if (num_entries > in.left() / kMinEntryBytes || num_tensors > in.left() / kMinTensorBytes)
    in.fail("truncated or damaged: " + std::to_string(num_entries) + " metadata entries and " +
            std::to_string(num_tensors) + " tensors do not fit a file of " +
            std::to_string(file_.bytes().size()) + " bytes");

  for (std::uint64_t i = 0; i < num_entries; ++i) {
    std::string key = in.text("a metadata key");
    if (key.empty()) in.fail("damaged: a metadata key is empty");
    const std::string what = "metadata key " + in_quotes(key);
    GgufValue value = read_value(in, what);
    if (!metadata_.emplace(std::move(key), std::move(value)).second)
      in.fail("damaged: " + what + " is there twice");
  }

  std::vector<TensorEntry> entries;
  for (std::uint64_t i = 0; i < num_tensors; ++i) entries.push_back(read_tensor_entry(in));
  const auto alignment = static_cast<std::uint64_t>(alignment_of(*this));
  const std::uint64_t data_start = round_up<std::uint64_t>(in.position(), alignment);
  check_layout(in, entries, alignment, data_start, file_.bytes().size());
  for (const TensorEntry& entry : entries) {
    // Views are not const, mappings are: writing through one ends the program.
    auto* data = const_cast<std::byte*>(file_.bytes().data()) + data_start + entry.offset;
    if (!tensors_.emplace(entry.name, TensorView(data, entry.shape, entry.dtype)).second)
      in.fail("damaged: tensor " + in_quotes(entry.name) + " is there twice");
  }
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  wrong_kind(*this, key, *value, "a string");
}

std::optional<std::int64_t> GgufFile::find_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(value)) return to_int64(*this, key, *number);
  wrong_kind(*this, key, *value, "an integer");
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(value)) return static_cast<double>(*number);
  wrong_kind(*this, key, *value, "a float");
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  wrong_kind(*this, key, *value, "a bool");
}

std::string GgufFile::get_string(std::string_view key) const {
  return required(*this, key, find_string(key));
}
std::int64_t GgufFile::get_int(std::string_view key) const {
  return required(*this, key, find_int(key));
}
double GgufFile::get_float(std::string_view key) const {
  return required(*this, key, find_float(key));
}

const std::vector<std::string>* GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* texts = std::get_if<std::vector<std::string>>(value)) return texts;
  wrong_kind(*this, key, *value, "an array of strings");
}

const std::vector<std::string>& GgufFile::get_strings(std::string_view key) const {
  const std::vector<std::string>* texts = find_strings(key);
  if (texts == nullptr) missing(*this, key);
  return *texts;
}

std::vector<std::int64_t> GgufFile::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) missing(*this, key);
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(value)) return *numbers;
  if (const auto* numbers = std::get_if<std::vector<std::uint64_t>>(value)) {
    std::vector<std::int64_t> result;
    result.reserve(numbers->size());
    for (const std::uint64_t number : *numbers) result.push_back(to_int64(*this, key, number));
    return result;
  }
  wrong_kind(*this, key, *value, "an array of integers");
}

std::vector<double> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) missing(*this, key);
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) return *numbers;
  wrong_kind(*this, key, *value, "an array of floats");
}

void GgufFile::drop(const TensorView& tensor) const { file_.drop(extent(tensor)); }

std::shared_ptr<const void> GgufFile::share(const TensorView& tensor) const {
  return file_.share(extent(tensor));
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  return has_magic(MappedFile(path));
}

}  // namespace minisgl
