// Memory that several ranks of one process have mapped, each at an address of its own, as GPUs' memory is.
//
// The thread sanitizer goes by addresses: what one mapping's flag orders it does not see at another's. So
// every memory has one more mapping here, for as long as any of the others, and the kernels' machine goes
// through it. Thread-safe.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace chorale::kernels {

class mapped_memories {
 public:
  /// The file `fd`, mapped at `at`. False where there is no room for the mapping of all.
  bool add(std::byte* at, std::size_t bytes, int fd) {
    struct ::stat file{};
    if (::fstat(fd, &file) != 0) return false;
    const std::unique_lock lock{guard_};
    one& shared = files_[file.st_ino];
    if (shared.mappings == 0) {
      void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (mapped == MAP_FAILED) return files_.erase(file.st_ino), false;
      shared = {static_cast<std::byte*>(mapped), bytes, 0};
    }
    ++shared.mappings;
    mappings_[at] = {bytes, file.st_ino, shared.at};
    return true;
  }
  /// Before `at` is unmapped; unknown addresses are no error.
  void remove(std::byte* at) {
    const std::unique_lock lock{guard_};
    const auto found = mappings_.find(at);
    if (found == mappings_.end()) return;
    const auto shared = files_.find(found->second.file);
    mappings_.erase(found);
    if (--shared->second.mappings != 0) return;
    ::munmap(shared->second.at, shared->second.bytes);
    files_.erase(shared);
  }
  /// Where all ranks find the byte at `p`; `p` itself outside of mappings.
  template <class Byte>
  Byte* common(Byte* p) {
    const std::shared_lock lock{guard_};
    const auto after = mappings_.upper_bound(p);
    if (after == mappings_.begin()) return p;
    const auto& [at, mapping] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(p - at);
    return offset < mapping.bytes ? mapping.common + offset : p;
  }

 private:
  struct one {
    std::byte* at;
    std::size_t bytes;
    std::size_t mappings;
  };
  struct mapping {
    std::size_t bytes;
    ::ino_t file;
    std::byte* common;
  };
  std::shared_mutex guard_;
  std::map<const std::byte*, mapping, std::less<>> mappings_;
  std::map<::ino_t, one> files_;
};

inline mapped_memories mapped;

}  // namespace chorale::kernels
