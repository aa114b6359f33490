// Gloo over TCP as the driver of a comparison meets it: gloo_peer FOLDER RANK RANKS ALGORITHM, a process per
// rank, which meet through files in the folder. protocol.hpp says what it reads and writes.
//
// ALGORITHM is all_reduce's: ring, bcube, ring_chunked or halving_doubling; other collectives have one each.
#include "binding.hpp"
#include "session.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace chorale;
using namespace chorale::bench;

constexpr auto patience = std::chrono::seconds{60};

class gloo_library final : public peers::peer {
 public:
  gloo_library(std::shared_ptr<gloo::rendezvous::Context> context, std::string algorithm)
      : context_{std::move(context)}, algorithm_{std::move(algorithm)} {}

  std::string prepare(const subject& about, std::byte* in, std::byte* out) override {
    in_ = reinterpret_cast<float*>(in);
    out_ = reinterpret_cast<float*>(out);
    count_ = about.count;
    in_place_ = false;
    at_root_ = context_->rank == 0;
    kept_.reset();
    exchanged_[0].reset();
    exchanged_[1].reset();
    const std::string why = choose(about.what->kind);
    return why;
  }

  void call() override { call_(); }
  [[nodiscard]] bool answers_in_place() const override { return in_place_; }

  void meet() override {
    gloo::BarrierOptions options{context_};
    options.setTag(tag_of_meetings);
    gloo::barrier(options);
  }
  double largest(double mine) override {
    return over_all(mine, [](void* c, const void* a, const void* b, std::size_t) {
      *static_cast<double*>(c) = std::max(*static_cast<const double*>(a), *static_cast<const double*>(b));
    });
  }
  double sum(double mine) override {
    return over_all(mine, [](void* c, const void* a, const void* b, std::size_t) {
      *static_cast<double*>(c) = *static_cast<const double*>(a) + *static_cast<const double*>(b);
    });
  }

 private:
  static constexpr std::uint32_t tag_of_meetings = 7;

  [[nodiscard]] std::size_t all_shares() const { return count_ * static_cast<std::size_t>(context_->size); }

  /// Fills `call_`. Options live as long as it does: Gloo lets them be used again.
  std::string choose(collective_kind kind) {
    switch (kind) {
      case collective_kind::all_reduce:
        choose_all_reduce();
        return {};
      case collective_kind::reduce: {
        const auto options = made<gloo::ReduceOptions>();
        options->setInput(in_, count_);
        options->setOutput(out_, count_);  // wanted at every rank: pieces travel through it
        options->setRoot(0);
        options->setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        call_ = [options] { gloo::reduce(*options); };
        return {};
      }
      case collective_kind::broadcast: {
        const auto options = made<gloo::BroadcastOptions>();
        if (at_root_) options->setInput(in_, count_);
        options->setOutput(out_, count_);
        options->setRoot(0);
        call_ = [options] { gloo::broadcast(*options); };
        return {};
      }
      case collective_kind::all_gather: {
        const auto options = made<gloo::AllgatherOptions>();
        options->setInput(in_, count_);
        options->setOutput(out_, all_shares());
        call_ = [options] { gloo::allgather(*options); };
        return {};
      }
      case collective_kind::reduce_scatter:
        choose_reduce_scatter();
        return {};
      case collective_kind::all_to_all: {
        const auto options = made<gloo::AlltoallOptions>();
        options->setInput(in_, all_shares());
        options->setOutput(out_, all_shares());
        call_ = [options] { gloo::alltoall(*options); };
        return {};
      }
      default:
        return choose_the_rest(kind);
    }
  }

  std::string choose_the_rest(collective_kind kind) {
    switch (kind) {
      case collective_kind::gather: {
        const auto options = made<gloo::GatherOptions>();
        options->setInput(in_, count_);
        if (at_root_) options->setOutput(out_, all_shares());
        options->setRoot(0);
        call_ = [options] { gloo::gather(*options); };
        return {};
      }
      case collective_kind::scatter: {
        const auto options = made<gloo::ScatterOptions>();
        std::vector<float*> shares;
        for (int r = 0; r < context_->size; ++r) shares.push_back(in_ + static_cast<std::size_t>(r) * count_);
        if (at_root_) options->setInputs(shares, count_);
        options->setOutput(out_, count_);
        options->setRoot(0);
        call_ = [options] { gloo::scatter(*options); };
        return {};
      }
      case collective_kind::message:
        choose_exchange();
        return {};
      case collective_kind::barrier: {
        const auto options = made<gloo::BarrierOptions>();
        call_ = [options] { gloo::barrier(*options); };
        return {};
      }
      default:
        return "Gloo has no scans";
    }
  }

  void choose_all_reduce() {
    if (algorithm_ == "ring_chunked" || algorithm_ == "halving_doubling") {
      in_place_ = true;
      const auto count = static_cast<int>(count_);
      const std::vector<float*> memory{in_};
      if (algorithm_ == "ring_chunked")
        kept_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, memory, count);
      else
        kept_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, memory, count);
      call_ = [this] { kept_->run(); };
      return;
    }
    const auto options = made<gloo::AllreduceOptions>();
    using algorithm = gloo::AllreduceOptions::Algorithm;
    options->setAlgorithm(algorithm_ == "bcube" ? algorithm::BCUBE : algorithm::RING);
    options->setInput(in_, count_);
    options->setOutput(out_, count_);
    options->setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    call_ = [options] { gloo::allreduce(*options); };
  }

  /// The result is where the whole began, whatever the rank.
  void choose_reduce_scatter() {
    in_place_ = true;
    const std::vector<int> shares(static_cast<std::size_t>(context_->size), static_cast<int>(count_));
    kept_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{in_}, static_cast<int>(all_shares()), shares);
    call_ = [this] { kept_->run(); };
  }

  void choose_exchange() {
    constexpr std::uint64_t slot = 0x7a00;  // none of Gloo's collectives has it
    exchanged_[0] = context_->createUnboundBuffer(in_, count_ * sizeof(float));
    exchanged_[1] = context_->createUnboundBuffer(out_, count_ * sizeof(float));
    const int right = (context_->rank + 1) % context_->size;
    const int left = (context_->rank + context_->size - 1) % context_->size;
    call_ = [this, right, left] {
      exchanged_[1]->recv(left, slot);
      exchanged_[0]->send(right, slot);
      exchanged_[0]->waitSend(patience);
      exchanged_[1]->waitRecv(patience);
    };
  }

  template <class Options>
  [[nodiscard]] std::shared_ptr<Options> made() const {
    return std::make_shared<Options>(context_);
  }

  double over_all(double mine, gloo::AllreduceOptions::Func combine) {
    double value = mine;
    gloo::AllreduceOptions options{context_};
    options.setTag(tag_of_meetings);
    options.setOutput(&value, 1);
    options.setReduceFunction(std::move(combine));
    gloo::allreduce(options);
    return value;
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::string algorithm_;
  float* in_ = nullptr;
  float* out_ = nullptr;
  std::size_t count_ = 0;
  bool in_place_ = false;
  bool at_root_ = false;
  std::unique_ptr<gloo::Algorithm> kept_;
  std::unique_ptr<gloo::transport::UnboundBuffer> exchanged_[2];
  std::function<void()> call_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "gloo_peer FOLDER RANK RANKS ALGORITHM: to be started by chorale bench --vs gloo\n");
    return 2;
  }
  const std::string folder = argv[1];
  const int rank = std::atoi(argv[2]);
  const int ranks = std::atoi(argv[3]);
  peers::bind_to_share(rank, ranks);
  try {
    gloo::rendezvous::FileStore store{folder};
    gloo::transport::tcp::attr where{"127.0.0.1"};
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(patience);
    context->connectFullMesh(store, device);
    gloo_library library{context, argv[4]};
    peers::session serving{library, rank, ranks};
    serving.serve("Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR),
                  folder);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gloo_peer, rank %d: %s\n", rank, e.what());
    return 1;
  }
  return 0;
}
