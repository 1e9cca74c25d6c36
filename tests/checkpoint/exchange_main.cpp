// SPDX-License-Identifier: Apache-2.0
// Our reader and writer for official_test.py, which has the official ones.
//   otr_checkpoint_exchange read FOLDER      one line of JSON for each file in it
//   otr_checkpoint_exchange write FOLDER     every dtype, strange names, metadata; one line for
//   each file
#include <cstdint>
#include <iostream>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"

namespace {

using namespace outrigger;              // NOLINT(google-build-using-namespace)
using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)

std::string hex(std::string_view text) {
  std::string out;
  for (const char c : text) out += format_text("{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string bytes_of_entry(const Reader& reader, const Entry& entry) {
  std::string bytes(static_cast<size_t>(entry.bytes), '\0');
  reader.read(entry, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Texts as hexadecimal digits: any of them can be told.
std::string table_of(const Reader& reader) {
  std::string out = R"("tensors": [)";
  const char* separator = "";
  for (const Entry& entry : reader.entries()) {
    std::string shape;
    for (const int64_t extent : entry.shape) {
      shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    }
    out += format_text(R"({}["{}", "{}", [{}], "{}"])", separator, hex(entry.name),
                       name_of(entry.dtype), shape, hex(bytes_of_entry(reader, entry)));
    separator = ", ";
  }
  out += R"(], "metadata": {)";
  separator = "";
  for (const auto& [key, value] : reader.metadata()) {
    out += format_text(R"({}"{}": "{}")", separator, hex(key), hex(value));
    separator = ", ";
  }
  return out + "}";
}

void read(const Folder& folder) {
  for (const std::string& name : folder.names()) {
    std::cout << format_text(R"({{"file": "{}", )", name);
    try {
      std::cout << table_of(Reader(folder, name)) << "}\n";
    } catch (const Error& error) {
      std::cout << format_text(R"("status": {}, "error": "{}")", error.status(), hex(error.what()))
                << "}\n";
    }
  }
}

void write_file(Folder& folder, std::string_view name, const std::vector<TensorSpec>& specs,
                const Metadata& metadata) {
  Writer writer(folder, name, specs, metadata);
  for (size_t i = specs.size(); i-- > 0;) {
    std::string bytes(static_cast<size_t>(writer.entries()[i].bytes), '\0');
    // BOOL is 0 or 1
    for (size_t k = 0; k < bytes.size(); ++k) {
      bytes[k] = static_cast<char>(specs[i].dtype == Dtype::boolean ? k % 2 : i + k * 5);
    }
    writer.write(i, 0, std::as_bytes(std::span(bytes)));
  }
  writer.finish();
}

void write(Folder& folder) {
  std::vector<TensorSpec> all;
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const std::string name(name_of(dtype));
    all.push_back({name + ".odd", dtype, {3, 1, 5}});
    all.push_back({name, dtype, {}});
    all.push_back({name + ".empty", dtype, {0, 7}});
  }
  write_file(folder, "dtypes", all, {{"format", "pt"}, {"step", "10"}});
  write_file(folder, "nothing", {}, {});
  const std::string zero("a\0b", 3);
  write_file(folder, "names",
             {{"", Dtype::u8, {1}},
              {"\"\\/\b\f\n\r\t\x01\x7F", Dtype::u8, {2}},
              {zero, Dtype::u8, {3}},
              {"\u00e9\u2028\U0001F6F6", Dtype::u8, {4}}},
             {{"", ""}, {"\"\n\u00e9", zero}});
  std::vector<TensorSpec> many;
  for (int i = 0; i < 100000; ++i) many.push_back({format_text("t.{}", i), Dtype::u8, {i % 2}});
  write_file(folder, "many", many, {});
  read(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view command = argc == 3 ? argv[1] : "";
  if (command != "read" && command != "write") {
    std::cerr << "usage: otr_checkpoint_exchange read|write FOLDER\n";
    return 2;
  }
  Folder folder = Folder::open(posix_files(), argv[2]);
  command == "read" ? read(folder) : write(folder);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
