#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "formats/file_kind.h"
#include "formats/json_file.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie in memory");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
// An entry is an object in an object, with arrays in it.
constexpr int kMaxHeaderDepth = 3;

/// A type by its name in the header; sizes of those without a DType serve to check the layout.
struct SafetensorsType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype = std::nullopt;
};

constexpr SafetensorsType kTypes[] = {
    {"F32", 4, DType::kF32},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"I8", 1, DType::kI8},
    {"I16", 2, DType::kI16},
    {"I32", 4, DType::kI32},
    {"I64", 8, DType::kI64},
    {"U8", 1, DType::kU8},
    {"BOOL", 1, DType::kBool},
    {"F64", 8},
    {"U16", 2},
    {"U32", 4},
    {"U64", 8},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
    {"C64", 8},
};

/// One entry of the header, as it claims to be.
struct Entry {
  std::string name;
  std::string type;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // from the start of the data
  std::uint64_t end = 0;
};

/// The header's faults, each with the file's name.
class HeaderReader {
 public:
  explicit HeaderReader(const MappedFile& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& fault) const {
    throw Error(file_.path().string() + ": " + fault);
  }

  /// The header's bytes, after which the data begins.
  std::span<const std::byte> header() const {
    const auto bytes = file_.bytes();
    std::uint64_t length = 0;
    if (bytes.size() < sizeof(length))
      fail("not a safetensors file: expected at least 8 bytes, found " +
           std::to_string(bytes.size()) + " (" + describe_content(bytes) + ")");
    std::memcpy(&length, bytes.data(), sizeof(length));
    if (length > kMaxHeaderBytes)
      fail("not a safetensors file: its header would have " + std::to_string(length) +
           " bytes, at most " + std::to_string(kMaxHeaderBytes) + " are allowed; it looks like " +
           describe_content(bytes));
    if (length > bytes.size() - sizeof(length))
      fail("truncated: expected at least " + std::to_string(sizeof(length) + length) +
           " bytes (the end of the header), found " + std::to_string(bytes.size()));
    return bytes.subspan(sizeof(length), length);
  }

  Entry entry(const std::string& name, const nlohmann::json& value) const {
    const std::string what = "tensor " + in_quotes(name);
    const auto type = value.is_object() ? value.find("dtype") : value.end();
    if (!value.is_object() || type == value.end() || !type->is_string())
      fail("damaged: " + what + " has no dtype");
    const auto shape = value.find("shape");
    const auto offsets = value.find("data_offsets");
    const auto is_list = [&value](auto it) {
      return it != value.end() && it->is_array() &&
             std::all_of(it->begin(), it->end(),
                         [](const auto& n) { return n.is_number_unsigned(); });
    };
    if (!is_list(shape)) fail("damaged: " + what + " has no shape of whole numbers");
    if (!is_list(offsets) || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
      fail("damaged: " + what + " has no ascending pair of data_offsets");
    return {name, type->get<std::string>(), shape->get<std::vector<std::uint64_t>>(),
            (*offsets)[0].get<std::uint64_t>(), (*offsets)[1].get<std::uint64_t>()};
  }

  /// The entries in order of place cover the data exactly: no overlap, no hole, no more, no less.
  void check_layout(std::vector<Entry>& entries, std::uint64_t data_start) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    const std::uint64_t data_bytes = file_.bytes().size() - data_start;
    std::uint64_t expected_bytes = 0;
    for (const Entry& entry : entries) expected_bytes = std::max(expected_bytes, entry.end);
    if (expected_bytes != data_bytes) {
      std::vector<std::string> cut_off;
      for (const Entry& entry : entries)
        if (entry.end > data_bytes) cut_off.push_back(entry.name);
      fail(std::string(expected_bytes > data_bytes ? "truncated" : "damaged") + ": expected " +
           std::to_string(expected_bytes) + " bytes of data after the header, found " +
           std::to_string(data_bytes) +
           (cut_off.empty() ? "" : " (cut off: " + in_quotes_list(cut_off) + ")"));
    }
    std::uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != position)
        fail("damaged: tensor " + in_quotes(entry.name) +
             (entry.begin < position ? " overlaps the one before it" : " follows a hole") +
             ": it begins at " + std::to_string(entry.begin) + ", expected " +
             std::to_string(position));
      position = entry.end;
    }
  }

  /// dtype * shape against the place. Types of unknown size pass: they are never viewed.
  void check_size(const Entry& entry, const SafetensorsType* type) const {
    if (type == nullptr) return;
    const std::uint64_t found = entry.end - entry.begin;
    // Division instead of multiplication: the product of a hostile shape may overflow.
    std::uint64_t rest = found / type->bytes;
    bool fits = found % type->bytes == 0;
    const bool has_zero = std::count(entry.shape.begin(), entry.shape.end(), 0U) > 0;
    if (has_zero) fits = found == 0;
    for (std::size_t i = 0; fits && !has_zero && i < entry.shape.size(); ++i) {
      fits = rest % entry.shape[i] == 0;
      rest /= entry.shape[i];
    }
    if (fits && (has_zero || rest == 1)) return;
    std::string shape;
    for (const std::uint64_t size : entry.shape)
      shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    fail("damaged: tensor " + in_quotes(entry.name) + " has " + std::to_string(found) +
         " bytes, which is not " + std::string(type->name) + " [" + shape + "]");
  }

 private:
  const MappedFile& file_;
};

const SafetensorsType* find_type(std::string_view name) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [name](const SafetensorsType& t) { return t.name == name; });
  return type == std::end(kTypes) ? nullptr : type;
}

/// "" when a view can describe the tensor.
std::string why_unsupported(const Entry& entry, const SafetensorsType* type) {
  if (type == nullptr || !type->dtype) return "type " + in_quotes(entry.type);
  if (entry.shape.size() > kMaxRank) return std::to_string(entry.shape.size()) + " dimensions";
  return "";
}

Shape shape_of(const Entry& entry) {
  Shape shape;
  shape.rank = static_cast<int>(std::max<std::size_t>(entry.shape.size(), 1));
  shape.dims[0] = 1;  // of a scalar: a view of rank 0 means "no tensor"
  for (std::size_t i = 0; i < entry.shape.size(); ++i)
    shape.dims[i] = static_cast<std::int64_t>(entry.shape[i]);
  return shape;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const HeaderReader reader(file_);
  const auto header = reader.header();
  const std::uint64_t data_start = sizeof(std::uint64_t) + header.size();
  const nlohmann::json directory =
      parse_json_object(header, path.string() + ": header", kMaxHeaderDepth);

  std::vector<Entry> entries;
  for (const auto& [name, value] : directory.items())
    if (name != "__metadata__") entries.push_back(reader.entry(name, value));
  reader.check_layout(entries, data_start);
  for (const Entry& entry : entries) {
    const SafetensorsType* type = find_type(entry.type);
    reader.check_size(entry, type);
    if (std::string why = why_unsupported(entry, type); !why.empty()) {
      unsupported_.emplace(entry.name, std::move(why));
      continue;
    }
    // Views are not const, mappings are: writing through one ends the program.
    auto* data = const_cast<std::byte*>(file_.bytes().data()) + data_start + entry.begin;
    tensors_.emplace(entry.name, TensorView(data, shape_of(entry), *type->dtype));
  }
}

void SafetensorsFile::drop(const TensorView& tensor) const { file_.drop(extent(tensor)); }

std::shared_ptr<const void> SafetensorsFile::share(const TensorView& tensor) const {
  return file_.share(extent(tensor));
}

std::string FileFaults::text() const {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i)
    out += (out.empty() ? "" : "; ") + lines[i];
  if (lines.size() > kShown) out += " and " + std::to_string(lines.size() - kShown) + " more";
  return out;
}

std::string in_quotes_list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += (out.empty() ? "" : ", ") + in_quotes(names[i]);
  if (names.size() > kShown) out += " and " + std::to_string(names.size() - kShown) + " more";
  return out;
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) {
  FileFaults faults;
  *this = SafetensorsFolder(folder, faults);
  if (!faults.lines.empty()) throw Error(faults.text());
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder, FileFaults& faults) : folder_(folder) {
  if (!fs::is_directory(folder)) throw Error(folder.string() + ": expected a folder");
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) {
    read_indexed(index, faults);
    return;
  }
  std::vector<fs::path> paths;
  std::string others;
  for (const auto& item : fs::directory_iterator(folder)) {
    const fs::path name = item.path().filename();
    if (name.extension() == ".safetensors") {
      paths.push_back(item.path());
    } else if (name.extension() == ".bin" || name.extension() == ".pt" ||
               name.extension() == ".pth" || name.extension() == ".gguf") {
      others += (others.empty() ? "" : ", ") + name.string();
    }
  }
  if (paths.empty())
    throw Error(folder.string() + ": no *.safetensors file" +
                (others.empty() ? "" : "; it has " + others) +
                " (a GGUF file is given by its own path, other formats must be converted)");
  // transformers reads model.safetensors and nothing beside it when there is no index.
  if (const fs::path single = folder_ / "model.safetensors"; fs::exists(single)) paths = {single};
  std::sort(paths.begin(), paths.end());
  if (paths.size() > 1)
    std::erase_if(paths,
                  [](const fs::path& p) { return p.filename() == "consolidated.safetensors"; });
  read_all(paths);
}

void SafetensorsFolder::read_indexed(const fs::path& index, FileFaults& faults) {
  const nlohmann::json root = read_json_file(index);
  const auto weight_map = root.find("weight_map");
  if (weight_map == root.end() || !weight_map->is_object())
    throw Error(index.string() + ": expected an object \"weight_map\"");

  std::map<std::string, std::vector<std::string>> shards;  // file name -> its tensors
  for (const auto& [name, shard] : weight_map->items()) {
    const std::string file_name = shard.is_string() ? shard.get<std::string>() : "";
    if (file_name.empty() || fs::path(file_name).filename() != file_name)
      throw Error(index.string() + ": tensor " + in_quotes(name) +
                  " is not mapped to the name of a file");
    shards[file_name].push_back(name);
  }
  for (const auto& [file_name, names] : shards) {
    const auto add_fault = [&](const std::string& line, const std::vector<std::string>& tensors) {
      for (const std::string& name : tensors) faults.tensors.emplace(name, faults.lines.size());
      faults.lines.push_back(line);
    };
    try {
      if (!fs::exists(folder_ / file_name))
        throw Error(index.string() + ": names the file " + in_quotes(file_name) +
                    ", which is missing from the folder");
      files_.emplace_back(folder_ / file_name);
    } catch (const Error& e) {
      add_fault(e.what(), names);
      continue;
    }
    const std::vector<std::string> missing = read_shard(files_.back(), names);
    if (missing.empty()) continue;
    const bool one = missing.size() == 1;
    add_fault(files_.back().path().string() + (one ? ": tensor " : ": tensors ") +
                  in_quotes_list(missing) +
                  (one ? " is missing, which the index says is in this file"
                       : " are missing, which the index says are in this file"),
              missing);
  }
}

/// Takes the tensors `names` of the file; returns those that it does not have.
std::vector<std::string> SafetensorsFolder::read_shard(const SafetensorsFile& file,
                                                       const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (const auto found = file.tensors().find(name); found != file.tensors().end()) {
      tensors_.insert(*found);
    } else if (const auto why = file.unsupported().find(name); why != file.unsupported().end()) {
      unsupported_.emplace(name, file.path().string() + ": " + why->second);
    } else {
      missing.push_back(name);
    }
  }
  return missing;
}

void SafetensorsFolder::read_all(const std::vector<fs::path>& paths) {
  std::map<std::string, fs::path> seen;
  for (const fs::path& path : paths) {
    const SafetensorsFile& file = files_.emplace_back(path);
    const auto claim = [&](const std::string& name) {
      if (const auto [first, is_new] = seen.emplace(name, path); !is_new)
        throw Error(path.string() + ": tensor " + in_quotes(name) + " is also in " +
                    first->second.string() + ", and there is no index that tells which counts");
    };
    for (const auto& [name, tensor] : file.tensors()) {
      claim(name);
      tensors_.emplace(name, tensor);
    }
    for (const auto& [name, why] : file.unsupported()) {
      claim(name);
      unsupported_.emplace(name, path.string() + ": " + why);
    }
  }
}

void SafetensorsFolder::drop(const TensorView& tensor) const {
  for (const SafetensorsFile& file : files_) file.drop(tensor);  // all but its own ignore it
}

std::shared_ptr<const void> SafetensorsFolder::share(const TensorView& tensor) const {
  for (const SafetensorsFile& file : files_)
    if (std::shared_ptr<const void> owner = file.share(tensor)) return owner;
  return nullptr;
}

}  // namespace minisgl
