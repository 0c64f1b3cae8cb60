// SPDX-License-Identifier: GPL-2.0-only

#include "lock_waits.h"

#include <mutex>
#include <unordered_map>

#include "engine.h"
#include "errors.h"

extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

namespace alluvium_sql {

namespace {

// Guards `connections` and `next_tag`, and keeps a connection alive while a report names it. Taken
// before the server's LOCK_thd_kill and LOCK_thd_data, which a report may take.
std::mutex connections_mutex;
std::unordered_map<uint64_t, THD *> connections;
uint64_t next_tag = 1;

THD *connection(uint64_t tag) {
    auto found = connections.find(tag);
    return found == connections.end() ? nullptr : found->second;
}

std::string connection_text(const alluvium_lock_owner &owner) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    THD *thd = connection(owner.tag);
    return thd ? "connection " + std::to_string(thd->thread_id)
               : "transaction " + std::to_string(owner.id);
}

} // namespace

uint64_t add_connection(THD *thd) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    connections[next_tag] = thd;
    return next_tag++;
}

void remove_connection(uint64_t tag) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    connections.erase(tag);
}

void report_lock_wait(void *, const alluvium_lock_wait *wait) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    THD *waiter = connection(wait->waiter.tag);
    if (!waiter) return;
    for (size_t i = 0; i < wait->owner_count; i++)
        if (THD *owner = connection(wait->owners[i].tag)) thd_rpl_deadlock_check(waiter, owner);
}

std::string lock_waits_text() {
    alluvium_lock_wait_list *waits = nullptr;
    ErrorPlace error;
    if (alluvium_lock_waits(engine.database, &waits, error.out()) != ALLUVIUM_CODE_OK)
        return error.text() + "\n";
    std::string text;
    for (size_t i = 0; i < alluvium_lock_wait_list_count(waits); i++) {
        alluvium_lock_wait wait = {};
        wait.struct_size = sizeof wait;
        ErrorPlace reading;
        if (alluvium_lock_wait_list_item(waits, i, &wait, reading.out()) != ALLUVIUM_CODE_OK)
            continue;
        text += connection_text(wait.waiter) + " waits " + std::to_string(wait.waited_us / 1000) +
                " ms for a row of " +
                std::string(static_cast<const char *>(wait.keyspace.data), wait.keyspace.size);
        for (size_t owner = 0; owner < wait.owner_count; owner++)
            text += (owner ? ", " : ", locked by ") + connection_text(wait.owners[owner]);
        text += "\n";
    }
    alluvium_lock_wait_list_free(waits);
    return text;
}

} // namespace alluvium_sql
