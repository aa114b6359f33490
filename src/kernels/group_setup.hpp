// How a device group comes into being, step by step; used by device_group::create only.
//
// Collective: local work between exchanges, and every exchange carries each rank's success or failure, so
// that all ranks leave together and every error names the rank that had the trouble. What influences the wire
// (the limits) is the minimum over all ranks, taken before anything is laid out.
#pragma once

#include <chorale/kernels/device_group.hpp>

#include <string>

namespace chorale::cuda {

/// What a rank tells the others first. Plain bytes, the same build on every rank (version and image are
/// compared).
struct group_hello {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t generation;
  std::int32_t size;
  std::uint64_t image_hash;
  unsigned char device_uuid[16];
  kernels::group_limits limits;
  std::uint64_t scratch_bytes;
};

class group_setup {
 public:
  group_setup(const device_group_config& config, rank_exchange& ranks) : config_{config}, ranks_{ranks} {}

  result<std::unique_ptr<device_group>> run();

 private:
  result<void> open_device();
  result<void> load_kernels();
  result<void> take_kernels(std::string_view image, module from);
  result<group_hello> describe();
  result<bool> lines_work(const std::vector<group_hello>& hellos) const;
  result<void> agree(const std::vector<group_hello>& hellos);
  result<void> allocate();
  result<void> map_peers();
  result<void> write_block();
  result<void> prove(kernels::algorithm way);
  result<void> compare_proof(device_pointer out, std::uint64_t count, const std::string& what) const;
  /// Exchanges whether the step went well on every rank; the first failing rank's error otherwise.
  result<void> all_succeeded(const result<void>& mine);
  template <class T>
  result<std::vector<T>> gather(const T& mine);

  const device_group_config& config_;
  rank_exchange& ranks_;
  std::unique_ptr<device_group> group_;
};

}  // namespace chorale::cuda
