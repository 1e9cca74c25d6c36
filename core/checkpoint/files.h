// SPDX-License-Identifier: Apache-2.0
// Files and folders of a checkpoint. All system calls on them go through Files, so that a test can
// let any one of them fail, write less than asked, or end the process.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outrigger::checkpoint {

// One virtual function for each system call, with the call's own result; −errno instead of −1.
// `folder` is an open folder's descriptor, or AT_FDCWD. Any thread.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  virtual ~Files() = default;

  virtual int open(int folder, const char* name, int flags, mode_t mode) = 0;
  virtual int close(int fd) = 0;  // ends the descriptor, whatever it returns
  virtual int stat(int fd, struct stat& out) = 0;
  virtual ssize_t read(int fd, void* data, size_t bytes, off_t offset) = 0;
  virtual ssize_t write(int fd, const void* data, size_t bytes, off_t offset) = 0;
  // Room on the disk for so many bytes, so that a shortage shows before anything is written.
  virtual int allocate(int fd, off_t bytes) = 0;
  // Reads and writes past the system's cache, of whole pages of memory and of the file.
  virtual int set_direct(int fd, bool direct) = 0;
  virtual int sync(int fd) = 0;
  // Exclusively, without waiting, for this process: not for its children, and until it closes any
  // descriptor of that file. -EWOULDBLOCK: another process has it.
  virtual int lock(int fd) = 0;
  virtual int rename(int folder, const char* from, const char* to) = 0;
  virtual int link(int folder, const char* from, const char* to) = 0;
  virtual int unlink(int folder, const char* name, int flags) = 0;
  virtual int make_folder(int folder, const char* name) = 0;
  // Adds the names in an open folder, "." and ".." too.
  virtual int list(int folder, std::vector<std::string>& names) = 0;
};

[[nodiscard]] Files& posix_files();

// An open descriptor with the path that messages name. Every failure is an Error that says path,
// operation and the system's reason.
class Descriptor {
 public:
  Descriptor(Files& files, int fd, std::string path)
      : files_(&files), fd_(fd), path_(std::move(path)) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  [[nodiscard]] Files& files() const { return *files_; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::string& path() const { return path_; }  // printable
  [[nodiscard]] struct stat status() const;
  // After a failed sync or write the descriptor stays failed: the kernel forgets what it could not
  // write, and would call the next sync a success.
  void sync();
  void fail_for_good(ssize_t reason) { failed_.store(static_cast<int>(-reason)); }
  void require_sound() const;
  void close();  // its errors count; later calls do nothing

 private:
  Files* files_;
  int fd_ = -1;
  std::string path_;
  std::atomic<int> failed_ = 0;  // the system's reason
};

// A regular file. Reads and writes may come from several threads.
class File {
 public:
  explicit File(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  // To be read. The caller's own path: it may be relative and go through links. OTR_E_NOT_FOUND;
  // OTR_E_CORRUPT where it is no regular file.
  [[nodiscard]] static File open(Files& files, const std::string& path);

  [[nodiscard]] const std::string& path() const { return descriptor_.path(); }
  [[nodiscard]] int64_t size() const;
  // All bytes, or an error: OTR_E_CORRUPT where the file ends before them.
  void read_at(int64_t offset, std::span<std::byte> out) const;
  void write_at(int64_t offset, std::span<const std::byte> data);
  // Where the file system can tell, OTR_E_IO unless there is room for so many bytes.
  void allocate(int64_t bytes);
  // False: the file system cannot, and nothing has changed.
  bool set_direct(bool direct);
  void sync() { descriptor_.sync(); }
  void close() { descriptor_.close(); }

 private:
  Descriptor descriptor_;
};

// An open folder. Names in it are plain: no '/', not "." or "..".
class Folder {
 public:
  // The caller's own path: it may be relative and go through links.
  [[nodiscard]] static Folder open(Files& files, const std::string& path);
  // A folder in this one; a link is refused.
  [[nodiscard]] Folder open_folder(std::string_view name) const;

  [[nodiscard]] Files& files() const { return descriptor_.files(); }
  [[nodiscard]] const std::string& path() const { return descriptor_.path(); }
  [[nodiscard]] std::string path_of(std::string_view name) const;  // printable

  // A new file, to be written: OTR_E_DUPLICATE where something has the name.
  [[nodiscard]] File create_file(std::string_view name);
  // … with this text, which is durable then; its name is not.
  void write_text(std::string_view name, std::string_view text);
  // A regular file, to be read. OTR_E_NOT_FOUND; OTR_E_CORRUPT where it is anything else.
  [[nodiscard]] File open_file(std::string_view name) const;
  // Nothing where the name is free.
  [[nodiscard]] std::optional<File> find_file(std::string_view name) const;
  // For a lock: opened for reading and writing, made where it is not.
  [[nodiscard]] Descriptor open_or_create(std::string_view name);

  void make_folder(std::string_view name);
  void rename(std::string_view from, std::string_view to);  // replaces a file, not a full folder
  void link(std::string_view from, std::string_view to);    // never replaces
  // Something in a folder of this one to another of them, under the same name.
  void move_between(std::string_view from, std::string_view to, std::string_view name);
  void remove_file(std::string_view name);
  // A folder with all that is in it, or a file; nothing where the name is free. Follows no links.
  void remove_all(std::string_view name);
  [[nodiscard]] bool has(std::string_view name) const;  // of any kind
  [[nodiscard]] bool has_folder(std::string_view name) const;
  // Sorted, without "." and "..".
  [[nodiscard]] std::vector<std::string> names() const;
  void sync() { descriptor_.sync(); }
  [[nodiscard]] struct stat status() const { return descriptor_.status(); }

 private:
  explicit Folder(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  [[nodiscard]] int open_fd(std::string_view name, int flags) const;  // or −errno
  void remove_all(std::string_view name, int depth);

  Descriptor descriptor_;
};

// Whether the caller's own path leads to a folder.
[[nodiscard]] bool is_folder(Files& files, const std::string& path);

// Throws OTR_E_ARGUMENT unless it is the plain name of something in a folder.
void require_plain_name(std::string_view name);

}  // namespace outrigger::checkpoint
