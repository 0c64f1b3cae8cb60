// SPDX-License-Identifier: GPL-2.0-only

#include "lock_waits.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "engine.h"
#include "errors.h"
#include "transaction.h"

extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

namespace alluvium_sql {

namespace {

struct Connection {
    THD *thd;
    const Transaction *transaction;
};

// Guards `connections` and `next_tag`, and keeps a connection alive while a report names it. Taken
// before the server's LOCK_thd_kill and LOCK_thd_data, which a report may take.
std::mutex connections_mutex;
std::unordered_map<uint64_t, Connection> connections;
uint64_t next_tag = 1;

std::atomic<uint64_t> waits_begun{0};

// Called with the mutex held.
THD *connection(uint64_t tag) {
    auto found = connections.find(tag);
    return found == connections.end() ? nullptr : found->second.thd;
}

// Called with the mutex held.
std::string statement_of(THD *thd) {
    constexpr size_t bytes_max = 1024;
    mysql_mutex_lock(&thd->LOCK_thd_data);
    std::string text;
    if (thd->query()) text.assign(thd->query(), std::min<size_t>(thd->query_length(), bytes_max));
    mysql_mutex_unlock(&thd->LOCK_thd_data);
    return text;
}

LockOwner owner_of(const alluvium_lock_owner &owner) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    LockOwner found;
    found.transaction = owner.id;
    THD *thd = connection(owner.tag);
    if (!thd) return found;
    found.connection = thd->thread_id;
    found.statement = statement_of(thd);
    return found;
}

// Tables by the names of their keyspaces.
class KeyspaceNames {
public:
    KeyspaceNames() {
        engine.dictionary->for_each([this](const std::string &name, const TableEntry &entry) {
            for (uint64_t i = 0; i < entry.indexes.size(); i++)
                places_[keyspace_name(entry.id, entry.indexes[i])] = {name, i};
        });
    }
    void find(const std::string &keyspace, LockWait &wait) const {
        auto found = places_.find(keyspace);
        if (found != places_.end()) std::tie(wait.table, wait.index) = found->second;
    }

private:
    std::map<std::string, std::pair<std::string, uint64_t>> places_;
};

} // namespace

uint64_t add_connection(THD *thd, const Transaction *transaction) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    connections[next_tag] = {thd, transaction};
    return next_tag++;
}

void remove_connection(uint64_t tag) {
    std::lock_guard<std::mutex> guard(connections_mutex);
    connections.erase(tag);
}

void report_lock_wait(void *, const alluvium_lock_wait *wait) {
    waits_begun++;
    std::lock_guard<std::mutex> guard(connections_mutex);
    THD *waiter = connection(wait->waiter.tag);
    if (!waiter) return;
    for (size_t i = 0; i < wait->owner_count; i++)
        if (THD *owner = connection(wait->owners[i].tag)) thd_rpl_deadlock_check(waiter, owner);
}

uint64_t lock_wait_count() { return waits_begun; }

int lock_waits(std::vector<LockWait> &waits) {
    alluvium_lock_wait_list *list = nullptr;
    ErrorPlace error;
    alluvium_code code = alluvium_lock_waits(engine.database, &list, error.out());
    if (code != ALLUVIUM_CODE_OK) return handler_error(code, error, nullptr);
    size_t count = alluvium_lock_wait_list_count(list);
    KeyspaceNames names;
    for (size_t i = 0; i < count; i++) {
        alluvium_lock_wait item = {};
        item.struct_size = sizeof item;
        ErrorPlace reading;
        if (alluvium_lock_wait_list_item(list, i, &item, reading.out()) != ALLUVIUM_CODE_OK)
            continue;
        waits.emplace_back();
        LockWait &wait = waits.back();
        wait.waiter = owner_of(item.waiter);
        for (size_t owner = 0; owner < item.owner_count; owner++)
            wait.owners.push_back(owner_of(item.owners[owner]));
        names.find({static_cast<const char *>(item.keyspace.data), item.keyspace.size}, wait);
        wait.waited_us = item.waited_us;
    }
    alluvium_lock_wait_list_free(list);
    return 0;
}

std::vector<OpenTransaction> open_transactions() {
    std::vector<OpenTransaction> open;
    uint64_t now = microsecond_interval_timer();
    std::lock_guard<std::mutex> guard(connections_mutex);
    for (const auto &[tag, connection] : connections) {
        uint64_t begun = connection.transaction->begun_us();
        if (begun == 0) continue;
        open.push_back({connection.thd->thread_id, now > begun ? now - begun : 0,
                        statement_of(connection.thd)});
    }
    std::sort(open.begin(), open.end(), [](const OpenTransaction &a, const OpenTransaction &b) {
        return a.age_us > b.age_us;
    });
    return open;
}

void count_transactions(uint64_t &count, uint64_t &oldest_us) {
    uint64_t now = microsecond_interval_timer();
    count = oldest_us = 0;
    std::lock_guard<std::mutex> guard(connections_mutex);
    for (const auto &[tag, connection] : connections) {
        uint64_t begun = connection.transaction->begun_us();
        if (begun == 0) continue;
        count++;
        if (now > begun) oldest_us = std::max(oldest_us, now - begun);
    }
}

} // namespace alluvium_sql
