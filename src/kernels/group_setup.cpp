#include <chorale/kernels/group_setup.hpp>
#include <chorale/kernels/kernel_image.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

namespace chorale::cuda {
namespace {

using kernels::algorithm;
using kernels::group_limits;

constexpr std::uint32_t hello_magic = 0x63686f72;
constexpr std::uint32_t hello_version = 2;

/// FNV-1a: tells two builds apart, no more.
std::uint64_t hash_of(std::span<const kernel_image> images) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const kernel_image& image : images)
    for (std::byte b : image.bytes) h = (h ^ static_cast<std::uint64_t>(b)) * 0x100000001b3ull;
  return h;
}

/// The outcome of a step as it travels.
struct step_report {
  std::int32_t code;
  std::int32_t culprit;
  char detail[248];
};

/// What this rank could do by itself, from its scratch budget.
group_limits local_limits(const device_group_config& config) {
  group_limits limits;
  limits.size = static_cast<std::uint32_t>(config.size);
  limits.ctas = config.max_ctas;
  limits.ll_bytes = config.packet_bytes.value_or(32768);
  const auto sources = static_cast<std::uint64_t>(std::max(config.size - 1, 1));
  const std::uint64_t stripes = 2 * limits.ctas;
  // the ring's part is three eighths of the budget, in whole tiles; lines get half, in powers of two
  const std::uint64_t slot = config.scratch_bytes * 3 / 8 / sources / stripes / limits.ring_slots;
  limits.ring_chunk =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slot / 16384 * 16384, 16384, 1u << 20));
  const std::uint64_t lines = std::bit_floor(config.scratch_bytes / 2 / sources / 2);
  limits.ll128_bytes = config.line_bytes.value_or(static_cast<std::uint32_t>(lines));
  return limits;
}

float proof_value(int rank, std::uint64_t i) {
  return static_cast<float>((i * 31 + static_cast<std::uint64_t>(rank) * 17 + 1) % 4093);
}

}  // namespace

template <class T>
result<std::vector<T>> group_setup::gather(const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto all = ranks_.all_gather_bytes(std::as_bytes(std::span{&mine, 1}));
  if (!all) return std::move(all).error();
  const auto size = static_cast<std::size_t>(config_.size);
  if (all->size() != size * sizeof(T))
    return error{errc::protocol_error, "setting up GPUs: ranks sent " + std::to_string(all->size()) +
                                           " bytes instead of " + std::to_string(size * sizeof(T))};
  std::vector<T> values(size);
  std::memcpy(values.data(), all->data(), all->size());
  return values;
}

result<void> group_setup::all_succeeded(const result<void>& mine) {
  step_report report{};
  report.culprit = no_rank;
  if (!mine) {
    report.code = static_cast<std::int32_t>(mine.error().code());
    report.culprit = mine.error().culprit();
    std::strncpy(report.detail, mine.error().detail().c_str(), sizeof report.detail - 1);
  }
  auto all = gather(report);
  if (!all) return mine ? std::move(all).error() : mine;
  for (std::size_t r = 0; r < all->size(); ++r) {
    step_report& theirs = (*all)[r];
    theirs.detail[sizeof theirs.detail - 1] = '\0';
    if (theirs.code != 0)
      return error{static_cast<errc>(theirs.code), theirs.detail,
                   theirs.culprit != no_rank ? theirs.culprit : static_cast<rank_t>(r)};
  }
  return {};
}

result<void> group_setup::open_device() {
  if (config_.size < 1 || config_.size > static_cast<int>(kernels::max_ranks))
    return error{errc::unsupported, "a device group of " + std::to_string(config_.size) +
                                        " ranks: GPU collectives work for 1 to 8 ranks of one host"};
  if (config_.generation == 0)
    return error{errc::invalid_argument, "a device group's generation must not be 0: count epochs from 1"};
  auto driver = config_.driver != nullptr ? result{config_.driver} : cuda_driver::load();
  if (!driver) return std::move(driver).error();
  const cuda_driver& d = **driver;
  device_group& g = *group_;
  g.driver_ = *driver;
  if (auto r = check(d, d.device_get(&g.device_, config_.device), "cuDeviceGet", config_.device); !r)
    return r;
  for (auto [attribute, what] :
       {std::pair{device_attribute::virtual_memory_management, "virtual memory management"},
        std::pair{device_attribute::posix_file_descriptor_handles, "memory export by fd"}}) {
    int value = 0;
    if (auto r = check(d, d.device_get_attribute(&value, attribute, g.device_), "cuDeviceGetAttribute",
                       config_.device);
        !r)
      return r;
    if (value == 0)
      return error{errc::unsupported, "GPU " + std::to_string(config_.device) + " offers no " + what +
                                          ": use host memory for this communicator"};
  }
  if (auto r = check(d, d.primary_context_retain(&g.context_, g.device_), "cuDevicePrimaryCtxRetain",
                     config_.device);
      !r)
    return r;
  g.has_context_ = true;
  return {};
}

result<void> group_setup::load_kernels() {
  device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  if (kernel_images().empty() && config_.driver == nullptr)
    return error{errc::unsupported,
                 "this build of chorale has no GPU kernels: build it where nvcc is installed"};
  for (const kernel_image& image : kernel_images()) {
    module loaded = nullptr;
    if (auto r =
            check(d, d.module_load_data(&loaded, image.bytes.data()), "cuModuleLoadData", config_.device);
        !r)
      return r;
    g.modules_.push_back(loaded);
    if (auto r = take_kernels(image.name, loaded); !r) return r;
  }
  if (auto r = check(d, d.stream_create(&g.private_stream_, stream_non_blocking), "cuStreamCreate",
                     config_.device);
      !r)
    return r;
  return check(d, d.event_create(&g.order_, event_no_timing), "cuEventCreate", config_.device);
}

/// Asking for a kernel loads it: later, a launch must not have to.
result<void> group_setup::take_kernels(std::string_view image, module from) {
  device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  const auto all = all_kernels();
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (image != all[k].image) continue;
    if (auto r = check(d, d.module_get_function(&g.kernels_[k], from, all[k].name), "cuModuleGetFunction",
                       config_.device);
        !r)
      return r;
    if (!all[k].has_ring) continue;
    if (auto r = check(d,
                       d.function_set_attribute(g.kernels_[k], function_max_dynamic_shared,
                                                static_cast<int>(kernels::ring_shared_bytes)),
                       "cuFuncSetAttribute (dynamic shared memory)", config_.device);
        !r)
      return r;
  }
  return {};
}

result<group_hello> group_setup::describe() {
  const device_group& g = *group_;
  group_hello hello{};
  hello.magic = hello_magic;
  hello.version = hello_version;
  hello.generation = config_.generation;
  hello.size = config_.size;
  hello.image_hash = hash_of(kernel_images());
  hello.scratch_bytes = config_.scratch_bytes;
  hello.limits = local_limits(config_);
  if (auto r = check(*g.driver_, g.driver_->device_get_uuid(hello.device_uuid, g.device_), "cuDeviceGetUuid",
                     config_.device);
      !r)
    return std::move(r).error();
  return hello;
}

/// Whether 128-byte lines arrive whole on the way to every peer, and a bulk store that is complete lies in
/// its memory: sm_90, and NVLink, of which native atomics between the two GPUs are the sign. A peer GPU that
/// this process cannot see cannot be asked: no.
result<bool> group_setup::lines_work(const std::vector<group_hello>& hellos) const {
  const device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  int major = 0;
  int minor = 0;
  int devices = 0;
  if (d.device_get_attribute(&major, device_attribute::compute_capability_major, g.device_) != success ||
      d.device_get_attribute(&minor, device_attribute::compute_capability_minor, g.device_) != success ||
      d.device_get_count(&devices) != success || major != 9 || minor != 0)
    return false;
  if (config_.ranks_share_gpu) return true;  // no link at all
  for (int r = 0; r < config_.size; ++r) {
    if (r == config_.rank) continue;
    bool linked = false;
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
      device_id peer = -1;
      unsigned char uuid[16];
      int atomics = 0;
      int reachable = 0;
      if (d.device_get(&peer, ordinal) != success || d.device_get_uuid(uuid, peer) != success ||
          std::memcmp(uuid, hellos[static_cast<std::size_t>(r)].device_uuid, sizeof uuid) != 0)
        continue;
      d.device_get_peer_attribute(&reachable, peer_attribute::access_supported, g.device_, peer);
      d.device_get_peer_attribute(&atomics, peer_attribute::native_atomics, g.device_, peer);
      if (reachable == 0)
        return error{errc::unsupported,
                     "GPU " + std::to_string(config_.device) + " cannot reach the GPU of rank " +
                         std::to_string(r) + " directly (no P2P): use host memory",
                     r};
      linked = atomics != 0;
    }
    if (!linked) return false;
  }
  return true;
}

result<void> group_setup::agree(const std::vector<group_hello>& hellos) {
  group_limits limits = hellos[static_cast<std::size_t>(config_.rank)].limits;
  const group_hello& mine = hellos[static_cast<std::size_t>(config_.rank)];
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    const group_hello& theirs = hellos[r];
    const auto who = static_cast<rank_t>(r);
    if (theirs.magic != hello_magic || theirs.version != hello_version ||
        theirs.image_hash != mine.image_hash)
      return error{errc::protocol_error,
                   "ranks run different builds of chorale's GPU kernels: install one build", who};
    if (theirs.generation != mine.generation || theirs.size != mine.size)
      return error{errc::protocol_error, "ranks disagree on the communicator's epoch or size", who};
    for (std::size_t other = 0; other < r; ++other)
      if (!config_.ranks_share_gpu &&
          std::memcmp(theirs.device_uuid, hellos[other].device_uuid, sizeof theirs.device_uuid) == 0)
        return error{errc::unsupported,
                     "ranks " + std::to_string(other) + " and " + std::to_string(r) +
                         " use the same GPU: give each rank a GPU of its own",
                     who};
    limits.ctas = std::min(limits.ctas, theirs.limits.ctas);
    limits.ll_bytes = std::min(limits.ll_bytes, theirs.limits.ll_bytes);
    limits.ll128_bytes = std::min(limits.ll128_bytes, theirs.limits.ll128_bytes);
    limits.ring_chunk = std::min(limits.ring_chunk, theirs.limits.ring_chunk);
    limits.ring_slots = std::min(limits.ring_slots, theirs.limits.ring_slots);
  }
  group_->limits_ = limits;
  return {};
}

result<void> group_setup::allocate() {
  device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  const std::size_t wanted =
      std::max<std::size_t>(kernels::units(kernels::make_layout(g.limits_).total), 4096);
  auto bytes = mapped_memory::round_up(d, g.device_, wanted);
  if (!bytes) return std::move(bytes).error();
  auto own = mapped_memory::create(d, g.device_, *bytes);
  if (!own) return std::move(own).error();
  g.regions_.resize(static_cast<std::size_t>(config_.size));
  g.regions_[static_cast<std::size_t>(config_.rank)] = *std::move(own);
  const device_pointer region = g.regions_[static_cast<std::size_t>(config_.rank)].address();
  if (auto r =
          check(d, d.memory_alloc(&g.block_, sizeof(kernels::device_block)), "cuMemAlloc", config_.device);
      !r)
    return r;
  void* pinned = nullptr;
  if (auto r = check(
          d, d.host_alloc(&pinned, sizeof(kernels::host_mailbox), host_alloc_portable | host_alloc_mapped),
          "cuMemHostAlloc", config_.device);
      !r)
    return r;
  g.mailbox_ = new (pinned) kernels::host_mailbox{};
  if (auto r = check(d, d.host_get_device_pointer(&g.mailbox_on_device_, pinned, 0),
                     "cuMemHostGetDevicePointer", config_.device);
      !r)
    return r;
  if (auto r = check(d, d.memset_d8_async(region, 0, *bytes, g.private_stream_), "cuMemsetD8Async",
                     config_.device);
      !r)
    return r;
  return check(d, d.stream_synchronize(g.private_stream_), "cuStreamSynchronize", config_.device);
}

result<void> group_setup::map_peers() {
  device_group& g = *group_;
  const auto& own = g.regions_[static_cast<std::size_t>(config_.rank)];
  auto exported = own.export_fd();
  // A rank that cannot export would leave the others in the exchange: tell them first.
  result<void> exportable = exported ? result<void>{} : result<void>{exported.error()};
  if (auto r = all_succeeded(exportable); !r) {
    if (exported) ::close(*exported);
    return r;
  }
  auto fds = ranks_.all_gather_fds(*exported);
  ::close(*exported);
  if (!fds) return std::move(fds).error();
  result<void> mapped;
  for (std::size_t r = 0; r < fds->size(); ++r) {
    const int fd = (*fds)[r];
    if (fd < 0) continue;
    if (mapped && static_cast<int>(r) != config_.rank) {
      auto peer = mapped_memory::import(*g.driver_, g.device_, fd, own.bytes());
      if (peer)
        g.regions_[r] = *std::move(peer);
      else
        mapped = std::move(peer).error();
    }
    ::close(fd);
  }
  if (mapped) mapped = write_block();
  return mapped;
}

result<void> group_setup::write_block() {
  device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  kernels::group_view& view = g.memory_.view;
  view.block = reinterpret_cast<kernels::device_block*>(g.block_);
  view.host = reinterpret_cast<kernels::host_mailbox*>(g.mailbox_on_device_);
  view.abort = &view.host->abort;
  view.generation = config_.generation;
  view.rank = static_cast<std::uint32_t>(config_.rank);
  view.size = static_cast<std::uint32_t>(config_.size);
  for (std::size_t r = 0; r < g.regions_.size(); ++r)
    g.memory_.regions[r] = reinterpret_cast<std::byte*>(g.regions_[r].address());
  view.layout = kernels::make_layout(g.limits_);
  const auto block = std::make_unique<kernels::device_block>();
  for (kernels::cta_record& record : block->records) record.counter = config_.first_counter;
  for (auto& of_cta : block->counters)
    for (std::uint64_t& counter : of_cta) counter = config_.first_counter;
  if (auto r = check(d, d.copy_to_device_async(g.block_, block.get(), sizeof *block, g.private_stream_),
                     "cuMemcpyHtoDAsync", config_.device);
      !r)
    return r;
  return check(d, d.stream_synchronize(g.private_stream_), "cuStreamSynchronize", config_.device);
}

result<void> group_setup::compare_proof(device_pointer out, std::uint64_t count,
                                        const std::string& what) const {
  const device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  std::vector<float> sums(count);
  if (auto r = check(d, d.copy_to_host_async(sums.data(), out, count * sizeof(float), g.private_stream_),
                     "cuMemcpyDtoHAsync", config_.device);
      !r)
    return r;
  if (auto r = check(d, d.stream_synchronize(g.private_stream_), "cuStreamSynchronize", config_.device); !r)
    return r;
  for (std::uint64_t i = 0; i < count; ++i) {
    float expected = proof_value(0, i);
    for (int p = 1; p < config_.size; ++p) expected += proof_value(p, i);
    if (sums[i] != expected)
      return error{errc::gpu_error, what + " gave wrong data between GPU " + std::to_string(config_.device) +
                                        " and its peers at element " + std::to_string(i) +
                                        ": check NVLink (nvidia-smi nvlink -s, dmesg)"};
  }
  return {};
}

/// One operation over real mappings, compared with what the host computes; small enough for milliseconds.
result<void> group_setup::prove(algorithm way) {
  device_group& g = *group_;
  const cuda_driver& d = *g.driver_;
  const char* names[] = {"the packet path", "the line path", "the ring path"};
  const std::string what = names[static_cast<int>(way)];
  kernels::exchange_plan plan;
  std::uint64_t count = 0;
  if (way == algorithm::packets) {
    count = g.limits_.ll_bytes / sizeof(float);
    plan = kernels::plan_packets(count * sizeof(float), g.limits_);
  } else if (way == algorithm::lines) {
    count = std::min<std::uint64_t>(g.limits_.ll128_bytes, 1u << 20) / sizeof(float);
    plan = kernels::plan_lines(count * sizeof(float), g.limits_);
  } else {
    count = std::uint64_t{16384} * g.limits_.ctas + 5;
    plan = kernels::plan_ring(count * sizeof(float), g.limits_);
  }
  device_pointer buffer = 0;
  if (auto r = check(d, d.memory_alloc(&buffer, count * sizeof(float)), "cuMemAlloc", config_.device); !r)
    return r;
  const auto run = [&]() -> result<void> {
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = proof_value(config_.rank, i);
    if (auto r =
            check(d, d.copy_to_device_async(buffer, values.data(), count * sizeof(float), g.private_stream_),
                  "cuMemcpyHtoDAsync", config_.device);
        !r)
      return r;
    if (auto r = check(d, d.stream_synchronize(g.private_stream_), "cuStreamSynchronize", config_.device); !r)
      return r;
    auto* data = reinterpret_cast<float*>(buffer);
    auto launched = g.exchange_as(plan, all_reduce_call(g.place(), data, data, count, {}), g.private_stream_);
    if (!launched) return std::move(launched).error();
    const auto deadline = std::chrono::steady_clock::now() + config_.proof_timeout;
    while (!g.is_done(*launched)) {
      if (std::chrono::steady_clock::now() > deadline) g.abort(errc::timed_out, no_rank);
      std::this_thread::yield();
      if (const status s = d.stream_query(g.private_stream_); s != success && s != error_not_ready)
        return make_error(d, s, "proving " + what, config_.device);
    }
    if (auto r = g.outcome(*launched); !r) return r;
    return compare_proof(buffer, count, what);
  };
  result<void> proved = run();
  d.memory_free(buffer);
  return proved;
}

result<std::unique_ptr<device_group>> group_setup::run() {
  group_.reset(new device_group);
  group_->config_ = config_;
  result<void> step = open_device();
  const bool opened = step.has_value();
  // one guard for the whole set-up: the context is current and captures elsewhere do not forbid its calls
  std::optional<current_context> current;
  std::optional<relaxed_capture> relaxed;
  if (opened) {
    current.emplace(*group_->driver_, group_->context_);
    relaxed.emplace(*group_->driver_);
    step = load_kernels();
  }
  if (step && (config_.max_ctas < 1 || config_.max_ctas > kernels::max_ctas))
    step = error{errc::invalid_argument, "the most CTAs of one launch must be 1 to " +
                                             std::to_string(kernels::max_ctas) + ": set CHORALE_MAX_CTAS so"};
  if (auto r = all_succeeded(step); !r) return std::move(r).error();

  auto hello = describe();
  if (auto r = all_succeeded(hello ? result<void>{} : result<void>{hello.error()}); !r)
    return std::move(r).error();
  auto hellos = gather(*hello);
  if (!hellos) return std::move(hellos).error();
  auto lines = lines_work(*hellos);
  step = lines ? result<void>{} : result<void>{lines.error()};
  if (lines && !*lines) hello->limits.ll128_bytes = 0;
  group_->bulk_stores_land_ = lines && *lines;
  if (auto r = all_succeeded(step); !r) return std::move(r).error();
  hellos = gather(*hello);
  if (!hellos) return std::move(hellos).error();

  step = agree(*hellos);
  if (step) step = allocate();
  if (auto r = all_succeeded(step); !r) return std::move(r).error();
  if (auto r = all_succeeded(map_peers()); !r) return std::move(r).error();

  if (config_.size > 1) {
    if (auto r = all_succeeded(prove(algorithm::packets)); !r) return std::move(r).error();
    if (auto r = all_succeeded(prove(algorithm::ring)); !r) return std::move(r).error();
    if (group_->limits_.ll128_bytes > group_->limits_.ll_bytes) {
      // Wrong sums veto the path; a failure of the group itself is an error like any other.
      const result<void> proved = prove(algorithm::lines);
      const result<void> usable = group_->status();
      if (auto r = all_succeeded(usable); !r) return std::move(r).error();
      if (auto r = all_succeeded(proved); !r) group_->limits_.ll128_bytes = 0;
    }
  }
  relaxed.reset();
  current.reset();
  return std::move(group_);
}

result<std::unique_ptr<device_group>> device_group::create(const device_group_config& config,
                                                           rank_exchange& ranks) {
  group_setup setup{config, ranks};
  return setup.run();
}

}  // namespace chorale::cuda
