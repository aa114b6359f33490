#include "worker.hpp"

#include "client.hpp"
#include "digits/mlp.hpp"
#include "digits/random.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace parameter_server {
namespace {

/// Acknowledgements on disk before the next push is begun, one write each: a killed worker leaves whole
/// lines.
class ack_log {
 public:
  explicit ack_log(const std::filesystem::path& file) {
    if (file.empty()) return;
    fd_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) throw chorale::failure{chorale::error::from_os(errno, "open " + file.string())};
  }
  ack_log(const ack_log&) = delete;
  ack_log& operator=(const ack_log&) = delete;
  ~ack_log() {
    if (fd_ >= 0) ::close(fd_);
  }
  void write(std::size_t server, std::uint32_t worker, std::uint64_t number) const {
    if (fd_ < 0) return;
    const std::string line = fmt::format("{} {} {}\n", server, worker, number);
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw chorale::failure{chorale::error::from_os(errno, "write to the file of --acks")};
  }

 private:
  int fd_ = -1;
};

/// Batches without end, in a new order each time round.
class batches {
 public:
  batches(std::size_t images, std::size_t batch, std::uint64_t seed)
      : images_{images}, batch_{std::min(batch, images)}, random_{seed} {}
  std::span<const std::uint32_t> next() {
    if (order_.size() - at_ < batch_) {
      order_ = digits::shuffled(images_, random_);
      at_ = 0;
    }
    at_ += batch_;
    return std::span{order_}.subspan(at_ - batch_, batch_);
  }

 private:
  std::size_t images_;
  std::size_t batch_;
  digits::random_source random_;
  std::vector<std::uint32_t> order_;
  std::size_t at_ = 0;
};

/// The mean gradient over a batch, in the parameters' order.
void compute(const digits::mlp& network, digits::batch_pass& pass, const digits::dataset& images,
             std::span<const std::uint32_t> batch, std::span<float> gradient) {
  pass.forward(images.pixels, images.labels, batch);
  for (std::size_t layer = network.layer_count(); layer-- > 0;) {
    const digits::bucket_slice slice = network.slice(layer);
    pass.gradient_of(layer, gradient.subspan(slice.offset, slice.count));
    if (layer != 0) pass.propagate(layer);
  }
  const float mean = 1.0F / static_cast<float>(batch.size());
  for (float& g : gradient) g *= mean;
}

}  // namespace

chorale::task<> work(worker_options options, const digits::dataset& images, std::vector<std::size_t> widths) {
  const ack_log acks{options.acks};
  digits::mlp network{std::move(widths), 0};
  std::vector<float> gradient(network.parameters().size());
  digits::batch_pass pass{network, options.batch};
  chorale::task<servers> finding =
      servers::find(options.servers, options.secret, fmt::format("worker {}", options.worker));
  servers job = co_await std::move(finding);
  co_await job.join(options.worker);
  co_await job.pull(network.parameters(), servers::which::current);
  batches share{images.size(), options.batch, options.seed + 1000 * options.worker + job.all()[0].session};
  std::uint64_t pushes = 0;
  for (; !job.over() && pushes != options.most_pushes; ++pushes) {
    compute(network, pass, images, share.next(), gradient);
    chorale::task<std::vector<pushed>> pushing = job.push(options.worker, gradient, options.times);
    const std::vector<pushed> outcomes = co_await std::move(pushing);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i].outcome == verdict::superseded)
        throw chorale::failure{chorale::error{
            chorale::errc::invalid_state,
            fmt::format("another process joined as worker {}; give every worker its own --worker",
                        options.worker)}};
      if (outcomes[i].outcome == verdict::applied) acks.write(i, options.worker, job.all()[i].number);
    }
    co_await job.pull(network.parameters(), servers::which::newer);
  }
  if (options.speaks)
    fmt::print("worker {}: {} after {} pushes\n", options.worker,
               job.over() ? "the training is over" : "leaves", pushes);
  co_await job.leave();
}

}  // namespace parameter_server
