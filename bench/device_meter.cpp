#include "device_meter.hpp"

#include "pattern.hpp"

#include <algorithm>

namespace chorale::bench {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Room for `bytes`, kept where there is enough.
void grow(std::unique_ptr<gpu_test::device_floats>& memory, std::uint64_t bytes) {
  const auto floats = static_cast<std::size_t>(bytes / sizeof(float) + 1);
  if (memory && memory->size() >= floats) return;
  memory.reset();
  memory = std::make_unique<gpu_test::device_floats>(floats);
}

std::byte* address(const gpu_test::device_floats& memory) {
  return reinterpret_cast<std::byte*>(memory.data());
}
cuda::device_pointer pointer(const void* address) { return reinterpret_cast<cuda::device_pointer>(address); }

}  // namespace

void device_meter::set(const subject& about) {
  calls_.clear();
  calls_.push_back({call_of(about, comm_.rank(), comm_.size())});
  if (about.is_exchange()) calls_.push_back({call_of(about, comm_.rank(), comm_.size(), half::receiving)});
  grow(in_, calls_.front().what.in_count * size_of(about.type));
  grow(out_, output_count(about, comm_.rank(), comm_.size()) * size_of(about.type));
  for (described_call& each : calls_) {
    each.what.on_device = about.what->kind != collective_kind::barrier;
    each.what.in = address(*in_);
    each.what.out = address(*out_);
  }
}

gpu_ticket device_meter::make() const {
  const on stream{stream_.get()};
  return calls_.size() == 1 ? comm_.launch(calls_.front(), stream) : comm_.launch_batch(calls_, stream);
}

void device_meter::enqueue_ours() const {
  error refused = make().enqueue();
  if (refused) throw failure{std::move(refused)};
}

int device_meter::calls_for(std::uint64_t bytes) const noexcept {
  if (options_.common.iterations != 0) return options_.common.iterations;
  return bytes <= (1u << 20) ? 200 : bytes <= (32u << 20) ? 50 : 10;
}

task<device_row> device_meter::measure(const subject& about) {
  set(about);
  device_row r;
  r.count = about.count;
  r.bytes = bytes_of(*about.what, about.count, about.type, comm_.size());
  if (options_.common.check) {
    task<std::uint64_t> checking = count_wrong(about);
    r.wrong = co_await std::move(checking);
  }
  contenders_.clear();
  contenders_.push_back([this] { enqueue_ours(); });
  if (peer_)
    for (const auto which : {nccl_peer::channels::automatic, nccl_peer::channels::many})
      contenders_.push_back(
          [this, which] { peer_->enqueue(which, calls_, comm_.rank(), comm_.size(), stream_.get()); });
  const int calls = calls_for(r.bytes);
  std::vector<std::unique_ptr<gpu_test::captured_graph>> graphs;
  if (options_.graph)
    for (const auto& enqueue : contenders_)
      graphs.push_back(std::make_unique<gpu_test::captured_graph>(stream_, [&] {
        for (int i = 0; i < calls; ++i) enqueue();
      }));
  std::vector<std::vector<double>> times(contenders_.size());
  for (int repeat = -1; repeat < options_.repeats; ++repeat)
    for (std::size_t c = 0; c < contenders_.size(); ++c) {
      task<double> one = time_once(c, options_.graph ? graphs[c].get() : nullptr, calls);
      const double us = co_await std::move(one);
      if (repeat >= 0) times[c].push_back(us);
    }
  r.ours_us = median(times[0]);
  if (peer_) r.peer_us = std::min(median(times[1]), median(times[2]));
  task<double> awaiting = time_awaited();
  r.awaited_us = co_await std::move(awaiting);
  co_return r;
}

task<double> device_meter::time_once(std::size_t contender, const gpu_test::captured_graph* graph,
                                     int calls) {
  stream_.synchronize();
  co_await comm_.barrier();
  const time_point begin = steady_now();
  if (graph)
    graph->launch(stream_);
  else
    for (int i = 0; i < calls; ++i) contenders_[contender]();
  stream_.synchronize();
  float us = static_cast<float>((steady_now() - begin).count()) / 1e3F / static_cast<float>(calls);
  co_await comm_.all_reduce(std::span{&us, 1});
  co_return static_cast<double>(us) / comm_.size();
}

task<double> device_meter::time_awaited() {
  constexpr int samples = 51;
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    const time_point begin = steady_now();
    co_await make();
    times.push_back(static_cast<double>((steady_now() - begin).count()) / 1e3);
  }
  co_return median(std::move(times));
}

task<std::uint64_t> device_meter::count_wrong(const subject& about) {
  const call& giving = calls_.front().what;
  const call& taking = calls_.back().what;
  const std::size_t element = size_of(about.type);
  const pattern expected{about.type, giving.op, comm_.size()};
  std::vector<std::byte> host(std::max<std::size_t>(giving.in_count, 1) * element);
  expected.fill(host.data(), giving.in_count, comm_.rank());
  if (giving.in_count != 0)
    gpu_test::require(gpu_test::driver().copy_to_device_async(pointer(giving.in), host.data(),
                                                              giving.in_count * element, stream_.get()),
                      "cuMemcpyHtoDAsync");
  out_->fill_bytes(0xff, stream_);  // never a result
  co_await make();
  host.resize(taking.out_count * element);
  if (!host.empty())
    gpu_test::require(
        gpu_test::driver().copy_to_host_async(host.data(), pointer(taking.out), host.size(), stream_.get()),
        "cuMemcpyDtoHAsync");
  stream_.synchronize();
  std::uint64_t wrong = expected.count_wrong(*about.what, place_of(about, comm_.rank(), comm_.size()),
                                             host.data(), taking.out_count);
  co_await comm_.all_reduce(std::span{&wrong, 1});
  co_return wrong;
}

}  // namespace chorale::bench
