// Device memory for the arenas of collective_cases.hpp.
#pragma once

#include "../kernels/collective_cases.hpp"
#include "device.hpp"

namespace chorale::gpu_test {

class device_arena {
 public:
  explicit device_arena(std::uint64_t size) : floats_{size / sizeof(float) + 64} {}
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(floats_.data()); }
  void write(const kernels_test::bytes& from, const work_stream& on) const {
    require(driver().copy_to_device_async(reinterpret_cast<cuda::device_pointer>(data()), from.data(),
                                          from.size(), on.get()),
            "cuMemcpyHtoDAsync");
    on.synchronize();
  }
  [[nodiscard]] kernels_test::bytes read(std::uint64_t size, const work_stream& on) const {
    kernels_test::bytes got(size);
    require(driver().copy_to_host_async(got.data(), reinterpret_cast<cuda::device_pointer>(data()), size,
                                        on.get()),
            "cuMemcpyDtoHAsync");
    on.synchronize();
    return got;
  }

 private:
  device_floats floats_;
};

/// What a rank's memory should hold and does not; empty when all is right.
inline std::string difference(const kernels_test::collective_case& what, rank_t rank, int size,
                              const kernels_test::bytes& expected, const kernels_test::bytes& got) {
  if (std::memcmp(got.data(), expected.data(), expected.size()) == 0) return {};
  const auto at =
      static_cast<std::size_t>(std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] == expected[i] ? 0 : 1;
  return what.name() + ": " + std::to_string(wrong) + " bytes are wrong, the first at " +
         std::to_string(static_cast<std::int64_t>(at) -
                        static_cast<std::int64_t>(what.plan(rank, size).out_at)) +
         " of the output: " + std::to_string(static_cast<int>(got[at])) + " instead of " +
         std::to_string(static_cast<int>(expected[at]));
}

}  // namespace chorale::gpu_test
