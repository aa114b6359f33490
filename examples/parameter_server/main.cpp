// parameter_server: endpoints at work outside any communicator. See --help.
#include "digits/mlp.hpp"
#include "local.hpp"
#include "server.hpp"
#include "watch.hpp"
#include "worker.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <fstream>
#include <functional>

namespace {

using namespace parameter_server;

constexpr const char* about =
    R"(Teaches a small neural network to read handwritten digits with parameter servers.

Servers keep the parameters, each its part. Workers pull them, compute a gradient on images of their own choice and
push it. A version closes when --close-at workers have contributed; whoever comes later is told so, drops its gradient
and goes on from the new version. So nobody waits for the slowest, and workers may join, leave and be killed:

  parameter_server local                         two servers, three workers, the table at the end

The same by hand, in five terminals (kill a worker, start it again):
  parameter_server serve --listen unix:@ps0 --server 0/2
  parameter_server serve --listen unix:@ps1 --server 1/2
  parameter_server work  --servers unix:@ps0,unix:@ps1 --worker 0
  parameter_server work  --servers unix:@ps0,unix:@ps1 --worker 1
  parameter_server watch --servers unix:@ps0,unix:@ps1 --stop

Between hosts: addresses like 10.0.0.1:7000 and the same --secret-file everywhere.

What is promised: a push that was acknowledged is in its server's memory, once, however often it was sent. What is
not: the parameters live in the servers' memory only; when a server dies, start the job again.)";

struct model {
  std::vector<std::size_t> hidden{256, 128};
  std::uint64_t seed = 1;
  std::size_t test_images = 297;
  std::filesystem::path data;

  [[nodiscard]] std::vector<std::size_t> widths() const {
    std::vector<std::size_t> all{digits::pixels_per_image};
    all.insert(all.end(), hidden.begin(), hidden.end());
    all.push_back(digits::class_count);
    return all;
  }
};

/// The images are built beside the program.
std::filesystem::path beside_program() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / "digits.txt";
}

digits::parts images_of(const model& m) {
  chorale::result<digits::dataset> all = digits::load(m.data);
  if (!all) throw chorale::failure{all.error()};
  if (m.test_images >= all->size())
    throw chorale::failure{chorale::error{
        chorale::errc::invalid_argument,
        fmt::format("{} images hold no {} to test with and some to train on; lower --test-images",
                    all->size(), m.test_images)}};
  return digits::split(*all, m.test_images, m.seed);
}

std::string secret_in(const std::filesystem::path& file) {
  if (file.empty()) return {};
  std::ifstream in{file};
  std::string line;
  if (!std::getline(in, line) || line.empty())
    throw chorale::failure{chorale::error{
        chorale::errc::invalid_argument,
        fmt::format("{} holds no secret; write one line of random characters there", file.string())}};
  return line;
}

/// "0/2" → number 0 of 2.
bool read_number(const std::string& text, server_options& into) {
  std::size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  std::size_t used = 0;
  try {
    into.number = std::stoul(text, &used);
    if (used != slash) return false;
    into.servers = std::stoul(text.substr(slash + 1), &used);
  } catch (const std::exception&) {
    return false;
  }
  return used == text.size() - slash - 1 && into.number < into.servers;
}

void run(chorale::task<> what) {
  chorale::engine engine;
  engine.run(std::move(what));
}

void add_model(CLI::App& to, model& m) {
  to.add_option("--hidden", m.hidden, "widths of the hidden layers; the same for servers and workers")
      ->delimiter(',')
      ->capture_default_str();
  to.add_option("--seed", m.seed, "draws weights, deals and shuffles images")->capture_default_str();
}

void add_images(CLI::App& to, model& m) {
  to.add_option("--test-images", m.test_images, "images kept away from training")->capture_default_str();
  to.add_option("--data", m.data, "the images; default: digits.txt beside the program");
}

void add_rules(CLI::App& to, rules& by) {
  to.add_option("--close-at", by.close_at, "contributions that close a version")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  to.add_option("--versions", by.versions, "how many versions make the training")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  to.add_option("--rate", by.rate, "learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  to.add_option("--momentum", by.momentum, "share of the last step kept in the next")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void add_worker(CLI::App& to, worker_options& worker) {
  to.add_option("--batch", worker.batch, "images per gradient")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  to.add_option("--times", worker.times, "sends each push so often, as if answers were lost")
      ->check(CLI::Range(1, 3))
      ->capture_default_str();
}

void add_servers(CLI::App& to, std::vector<std::string>& servers) {
  to.add_option("--servers", servers, "all servers' addresses, in the order of their numbers")
      ->delimiter(',')
      ->required();
}

}  // namespace

int main(int argc, char** argv) {
  model m;
  m.data = beside_program();
  std::filesystem::path secret_file;
  server_options server;
  std::string number = "0/1";
  worker_options worker;
  watch_options looking;
  local_options local;

  CLI::App app{about, "parameter_server"};
  app.require_subcommand(1);
  CLI::App* const serving =
      app.add_subcommand("serve", "keeps a part of the parameters until `watch --stop`");
  serving->add_option("--listen", server.address, "host:port, port 0 for a free one, or unix:@name")
      ->required();
  serving->add_option("--server", number, "which of how many servers, e.g. 0/2")->capture_default_str();
  serving->add_option("--ledger", server.ledger, "writes worker, number, version of every push applied");
  add_rules(*serving, server.by);
  add_model(*serving, m);
  CLI::App* const working =
      app.add_subcommand("work", "computes and pushes gradients until the training is over");
  add_servers(*working, worker.servers);
  working->add_option("--worker", worker.worker, "its number, another for each")->required();
  working->add_option("--pushes", worker.most_pushes, "leaves after so many");
  working->add_option("--acks", worker.acks, "appends server, worker, number of every push acknowledged");
  add_worker(*working, worker);
  add_model(*working, m);
  add_images(*working, m);
  CLI::App* const watching =
      app.add_subcommand("watch", "shows accuracy as versions close, and the table at the end");
  add_servers(*watching, looking.servers);
  watching->add_flag("--once", looking.once, "only tells how it stands now");
  watching->add_flag("--stop", looking.stop, "ends the servers afterwards");
  add_model(*watching, m);
  add_images(*watching, m);
  CLI::App* const alone = app.add_subcommand("local", "servers, workers and watcher, all on this host");
  alone->add_option("--number-of-servers", local.servers, "processes that keep parameters")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  alone->add_option("--workers", local.workers, "processes that compute")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_rules(*alone, local.by);
  add_worker(*alone, local.worker);
  add_model(*alone, m);
  add_images(*alone, m);
  for (CLI::App* const remote : {serving, working, watching})
    remote->add_option("--secret-file", secret_file, "a file whose first line all sides know")
        ->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);

  try {
    server.secret = worker.secret = looking.secret = secret_in(secret_file);
    worker.seed = local.worker.seed = m.seed;
    if (serving->parsed()) {
      if (!read_number(number, server)) {
        fmt::print(stderr, "parameter_server: --server {} is not NUMBER/SERVERS with NUMBER < SERVERS\n",
                   number);
        return 1;
      }
      const digits::mlp initial{m.widths(), m.seed};
      run(serve(server, {initial.parameters().begin(), initial.parameters().end()}));
      return 0;
    }
    const digits::parts data = images_of(m);
    if (working->parsed()) run(work(worker, data.training, m.widths()));
    if (watching->parsed()) run(watch(looking, data.test, m.widths()));
    if (alone->parsed()) return run_local(local, data, m.widths(), m.seed);
  } catch (const chorale::failure& f) {
    fmt::print(stderr, "parameter_server: {}\n", f.what());
    return 1;
  }
}
