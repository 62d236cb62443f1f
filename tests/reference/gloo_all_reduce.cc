/*
 * gloo_all_reduce.cc - gloo's collectives over TCP on loopback, as PyTorch uses them, under
 * collective_peer.h.  Ranks are forked here and meet by files in a folder of their own.
 *
 *     gloo_all_reduce N check DIR | bench SIZES [REPEATS]
 */
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/barrier.h"
#include "gloo/broadcast.h"
#include "gloo/math.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/file_store.h"
#include "gloo/transport/tcp/device.h"

#include "collective_peer.h"

namespace {

struct Group {
    std::shared_ptr<gloo::rendezvous::Context> context;
    uint32_t                                   tag = 0; /* the same on all ranks */
};

bool barrier(void *group)
{
    auto                *g = static_cast<Group *>(group);
    gloo::BarrierOptions options(g->context);
    options.setTag(g->tag++);
    gloo::barrier(options);
    return true;
}

bool all_reduce(void *group, float *out, const float *in, size_t count)
{
    auto                  *g = static_cast<Group *>(group);
    gloo::AllreduceOptions options(g->context);
    void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
    if (in != out)
        options.setInput(const_cast<float *>(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(sum);
    options.setTag(g->tag++);
    gloo::allreduce(options);
    return true;
}

bool all_gather(void *group, float *out, const float *in, size_t count)
{
    auto *g = static_cast<Group *>(group);
    if (count == 0)
        return true; /* gloo 0.5 divides by it (its issue 179) */
    gloo::AllgatherOptions options(g->context);
    options.setInput(const_cast<float *>(in), count);
    options.setOutput(out, count * g->context->size);
    options.setTag(g->tag++);
    gloo::allgather(options);
    return true;
}

bool broadcast(void *group, float *out, size_t count, int root)
{
    auto                  *g = static_cast<Group *>(group);
    gloo::BroadcastOptions options(g->context);
    options.setOutput(out, count);
    options.setRoot(root);
    options.setTag(g->tag++);
    gloo::broadcast(options);
    return true;
}

bool run_rank(int rank, int n, const std::string &folder, int n_arguments, char **arguments)
{
    Group                       group;
    gloo::rendezvous::FileStore store(folder);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));

    group.context = std::make_shared<gloo::rendezvous::Context>(rank, n);
    group.context->setTimeout(std::chrono::seconds(120));
    group.context->connectFullMesh(store, device);
    collective_peer peer = {};
    peer.name = "gloo";
    peer.detail = "";
    peer.context = &group;
    peer.rank = rank;
    peer.n = n;
    peer.barrier = barrier;
    peer.all_reduce = all_reduce;
    peer.all_gather = all_gather;
    peer.broadcast = broadcast;
    /* Nobody leaves while others still talk to it. */
    return collective_run(&peer, n_arguments, arguments) && barrier(&group);
}

int rank_main(int rank, int n, const std::string &folder, int n_arguments, char **arguments)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        return run_rank(rank, n, folder, n_arguments, arguments) ? 0 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "gloo: rank %d: %s\n", rank, e.what());
        return 1;
    }
}

/* Waits for all; the first that fails takes the others with it. */
bool reap(const std::vector<pid_t> &ranks)
{
    bool ok = true;
    for (size_t i = 0; i < ranks.size(); i++) {
        int status = 0;
        wait(&status);
        if (status && ok) {
            ok = false;
            if (WIFSIGNALED(status))
                std::fprintf(stderr, "gloo: a rank was killed by signal %d\n", WTERMSIG(status));
            for (pid_t pid : ranks)
                kill(pid, SIGTERM);
        }
    }
    return ok;
}

} // namespace

int main(int argc, char **argv)
{
    int  n = argc > 3 ? std::atoi(argv[1]) : 0;
    char folder[] = "/tmp/lockstep_gloo_XXXXXX";

    if (n < 1 || n > 64) {
        std::fprintf(stderr, "usage: gloo_all_reduce N check DIR | bench SIZES [REPEATS]\n");
        return 2;
    }
    if (!mkdtemp(folder)) {
        std::perror(folder);
        return 1;
    }
    std::vector<pid_t> ranks;
    bool               started = true;
    for (int rank = 0; rank < n && started; rank++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(rank_main(rank, n, folder, argc - 2, argv + 2));
        started = pid > 0;
        if (started)
            ranks.push_back(pid);
    }
    if (!started)
        for (pid_t pid : ranks)
            kill(pid, SIGTERM);
    bool ok = reap(ranks) && started;
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return ok ? 0 : 1;
}
