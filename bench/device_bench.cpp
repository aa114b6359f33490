#include "device_bench.hpp"

#include "device_meter.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>

namespace chorale::bench {
namespace {

class device_report {
 public:
  device_report(const benched_collective& what, const device_bench_options& options, rank_t ranks,
                std::string peer)
      : what_{what}, options_{options}, ranks_{ranks}, peer_{std::move(peer)} {}

  void head() const {
    if (options_.common.format == report_format::json) return;
    const std::string op =
        reduces(what_.kind) ? ", " + std::string{name_of(options_.common.op)} : std::string{};
    std::printf(
        "# %s of %s%s, on %d GPUs, %s; medians of %d interleaved repeats; time, awaited and peer in us, "
        "bandwidths in GB/s\n",
        std::string{what_.name}.c_str(), std::string{name_of(options_.common.type)}.c_str(), op.c_str(),
        ranks_, options_.graph ? "graph replay" : "stream", options_.repeats);
    std::printf("# %12s %12s %10s %10s %10s %10s %8s %6s\n", "size (B)", "time (us)", "algbw", "busbw",
                "awaited", peer_.c_str(), peer_.empty() ? "" : "ratio", "#wrong");
  }
  void line(const device_row& r) const {
    if (options_.common.format == report_format::json)
      json(r);
    else
      text(r);
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] double algbw(const device_row& r) const {
    return static_cast<double>(r.bytes) / r.ours_us / 1e3;
  }
  [[nodiscard]] double busbw(const device_row& r) const { return algbw(r) * what_.bus_factor(ranks_); }
  void text(const device_row& r) const {
    std::printf("  %12llu %12.2f %10.2f %10.2f %10.2f", static_cast<unsigned long long>(r.bytes), r.ours_us,
                algbw(r), busbw(r), r.awaited_us);
    if (r.peer_us) std::printf(" %10.2f %8.2f", *r.peer_us, *r.peer_us / r.ours_us);
    std::printf(" %6s\n", options_.common.check ? std::to_string(r.wrong).c_str() : "N/A");
  }
  void json(const device_row& r) const {
    nlohmann::ordered_json object;
    object["collective"] = what_.name;
    object["bytes"] = r.bytes;
    object["count"] = r.count;
    object["dtype"] = name_of(options_.common.type);
    object["op"] = reduces(what_.kind) ? name_of(options_.common.op) : "none";
    object["device"] = "cuda";
    object["mode"] = options_.graph ? "graph" : "stream";
    object["ranks"] = ranks_;
    object["transport"] = "nvlink";
    object["algorithm"] = "auto";
    object["time_us"] = r.ours_us;
    object["awaited_us"] = r.awaited_us;
    object["algbw"] = algbw(r);
    object["busbw"] = busbw(r);
    object["wrong"] =
        options_.common.check ? nlohmann::ordered_json(r.wrong) : nlohmann::ordered_json(nullptr);
    if (r.peer_us) {
      object["peer"] = peer_;
      object["peer_time_us"] = *r.peer_us;
      object["ratio"] = *r.peer_us / r.ours_us;
    }
    std::printf("%s\n", object.dump().c_str());
  }

  const benched_collective& what_;
  const device_bench_options& options_;
  rank_t ranks_;
  std::string peer_;
};

}  // namespace

task<int> bench_on_device(const benched_collective& what, device_bench_options options) {
  task<communicator> joining = communicator::join();
  communicator comm = co_await std::move(joining);
  co_await comm.use_gpu(comm.launched_as());
  const gpu_test::device current{comm.launched_as()};
  std::unique_ptr<nccl_peer> peer;
  if (options.versus_nccl) {
    task<std::unique_ptr<nccl_peer>> connecting = nccl_peer::connect(comm);
    peer = co_await std::move(connecting);
  }
  const device_report out{what, options, comm.size(), peer ? peer->name() : std::string{}};
  if (comm.rank() == 0) out.head();
  std::uint64_t wrong = 0;
  {
    device_meter with{comm, options, peer.get()};
    std::optional<std::uint64_t> before;
    for (const std::uint64_t bytes : sizes_of(options.common)) {
      const subject about{&what, count_for(what, bytes, options.common.type, comm.size()),
                          options.common.type, options.common.op, options.common.root};
      if (about.count == before) continue;  // too small to differ
      before = about.count;
      task<device_row> one = with.measure(about);
      const device_row r = co_await std::move(one);
      wrong += r.wrong;
      if (comm.rank() == 0) out.line(r);
    }
  }
  peer.reset();
  co_await comm.barrier();
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace chorale::bench
