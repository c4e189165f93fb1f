// SPDX-License-Identifier: MIT
// boost::interprocess::message_queue, one each way.
#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/version.hpp>
#include <cstdio>
#include <cstring>
#include <string>

#include "peer.h"

using boost::interprocess::message_queue;

namespace {

struct ends {
    message_queue out, in;
};

std::string name_of(int way)
{
    char name[64];
    peer_name(way, name, sizeof(name));
    return name + 1; // it brings its slash
}

void version(char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d.%d", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
             BOOST_VERSION % 100);
}

void done(const char *)
{
    for (int way = 0; way < 2; way++)
        message_queue::remove(name_of(way).c_str());
}

void prepare(const char *, int)
{
    done(nullptr);
    for (int way = 0; way < 2; way++)
        message_queue(boost::interprocess::create_only, name_of(way).c_str(), 1024,
                      PEER_BODY_MAX);
}

void *open_end(const char *, int end)
{
    return new ends{ { boost::interprocess::open_only, name_of(end).c_str() },
                     { boost::interprocess::open_only, name_of(1 - end).c_str() } };
}

void send_one(void *h, const void *body, size_t n)
{
    static_cast<ends *>(h)->out.send(body, n, 0);
}

void receive_one(void *h, void *body, size_t n)
{
    char all[PEER_BODY_MAX];
    message_queue::size_type got;
    unsigned priority;
    static_cast<ends *>(h)->in.receive(all, sizeof(all), got, priority);
    if (got != n)
        bench_fail("boost: a message of %zu bytes", got);
    memcpy(body, all, n);
}

void spin_receive(void *h, void *body, size_t n)
{
    char all[PEER_BODY_MAX];
    message_queue::size_type got;
    unsigned priority;
    while (!static_cast<ends *>(h)->in.try_receive(all, sizeof(all), got, priority))
        ;
    memcpy(body, all, n);
}

void close_end(void *h) { delete static_cast<ends *>(h); }

} // namespace

extern "C" const peer_hop hop_boost = { "boost message_queue", "asleep",    version,   prepare, open_end,
                                        send_one,              receive_one, close_end, done };
extern "C" const peer_hop hop_boost_spin = { "boost message_queue", "spins",      version,   prepare, open_end,
                                             send_one,              spin_receive, close_end, done };
