//! Events for a listener: flushes, compactions, tables, write delays and failures, as they happen.
//!
//! Threads queue events under a mutex used only for that and continue. A separate thread, started
//! only if there is a listener, passes the events to it, in order and without holding a lock. So a
//! listener may be slow, call the database, or panic without affecting the engine.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sync::plain::{Condvar, Mutex};

use crate::base::TableId;
use crate::error::Error;

/// Event in the engine. More kinds may be added.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// Sealed memtables are being written to tables.
    FlushBegin {
        /// Bytes of the memtables.
        memtable_bytes: u64,
    },
    /// The memtables are in tables and the tables are part of the database.
    FlushEnd {
        /// Bytes of the memtables.
        memtable_bytes: u64,
        /// Duration of the flush.
        took: Duration,
    },
    /// A compaction of one group of a keyspace begins.
    CompactionBegin {
        /// Name of the keyspace.
        keyspace: String,
        /// True if the outputs become the last level of the group.
        last_level: bool,
        /// Bytes of the input tables.
        input_bytes: u64,
    },
    /// The compaction has ended. Without an error and without outputs it was abandoned: the
    /// database is closing, or writes began while a compaction ran that was started because there
    /// were none.
    CompactionEnd {
        /// Name of the keyspace.
        keyspace: String,
        /// Bytes of the new tables.
        output_bytes: u64,
        /// Duration of the compaction.
        took: Duration,
        /// Error, if it failed.
        error: Option<Error>,
    },
    /// A table file is complete. It never becomes part of the database if its job fails.
    TableCreated {
        /// Number of the table; it names the file.
        table: u64,
        /// Name of the keyspace.
        keyspace: String,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// A replaced table file is deleted: it has no readers any more.
    TableDeleted {
        /// Number of the table.
        table: u64,
    },
    /// From now on commits are delayed.
    WriteDelayBegin,
    /// From now on commits are not delayed.
    WriteDelayEnd,
    /// Background work found no space on the device, and is retried.
    NoSpaceBegin {
        /// Error of the failed operation.
        error: Error,
    },
    /// Background work has found space again.
    NoSpaceEnd,
    /// A flush or a compaction failed before it changed anything, for a reason other than a full
    /// device: no file descriptor was free, or a table could not be read or written. It is retried.
    /// Reported for each try.
    BackgroundFailure {
        /// Error of the failed operation.
        error: Error,
    },
    /// The wall clock has jumped by more than a day, forward or back, relative to the clock that
    /// counts since the machine's start. Reported again when it jumps back. See
    /// [`crate::Clock::system`] for the time of reads meanwhile.
    ClockJump {
        /// Current wall clock, in milliseconds since 1970.
        wall_ms: u64,
        /// Current time of reads, in milliseconds since 1970.
        time_ms: u64,
    },
    /// At the opening the wall clock was more than a day earlier than the time stored in the
    /// database, so reads use the stored time plus the time since the opening. Either the wall
    /// clock is wrong and waits for its correction; or the stored time is wrong, because a wrong
    /// clock was recorded. Then close the database and set it back, with [`crate::set_stored_time`]
    /// or `alluvium set-time`.
    StoredTimeAhead {
        /// Current wall clock, in milliseconds since 1970.
        wall_ms: u64,
        /// Stored time, in milliseconds since 1970.
        stored_ms: u64,
    },
    /// The first failed write or sync of the log or the manifest; every later write fails: see
    /// [`Error::Poisoned`].
    Poisoned {
        /// Error of the failed operation.
        cause: Arc<Error>,
    },
    /// The listener was too slow: this many events before this one were dropped.
    Lost {
        /// Number of dropped events.
        events: u64,
    },
}

/// Receiver of the events of a database: see [`crate::Options::event_listener`].
///
/// Called by one thread, one event after the other, without an engine lock held. It may call the
/// database, even to close it. A panic is caught, and the next event is still delivered.
pub trait EventListener: Send + Sync {
    /// Receives an event.
    fn on_event(&self, event: &Event);
}

impl fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// Maximum number of events kept for a slow listener.
const QUEUE_MAX: usize = 4096;

/// Events of one database, queued for its listener.
#[derive(Debug, Default)]
pub(crate) struct Events {
    listener: Option<Arc<dyn EventListener>>,
    /// Guards the queued events. A leaf in the lock order.
    queue: Mutex<Queue>,
    changed: Condvar,
    /// True after a `NoSpaceBegin` without its `NoSpaceEnd`, readable without the mutex. Relaxed:
    /// it orders nothing.
    no_space: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    lost: u64,
    /// Last reported state. Changed together with the event, so that begin and end events
    /// alternate.
    delaying: bool,
    stop: bool,
}

impl Queue {
    fn push(&mut self, event: Event) {
        if self.events.len() < QUEUE_MAX {
            self.events.push_back(event);
        } else {
            self.lost += 1;
        }
    }
}

impl Events {
    pub fn new(listener: Option<Arc<dyn EventListener>>) -> Arc<Events> {
        Arc::new(Events {
            listener,
            ..Events::default()
        })
    }

    /// Returns true if there is a listener.
    pub fn is_on(&self) -> bool {
        self.listener.is_some()
    }

    /// Queues an event, which is built only if there is a listener. Never waits for the listener.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            let event = event();
            self.queue.lock().push(event);
            self.changed.notify_one();
        }
    }

    /// Reports that commits are delayed, or no longer delayed.
    pub fn delaying(&self, now: bool) {
        if !self.is_on() {
            return;
        }
        let mut queue = self.queue.lock();
        if std::mem::replace(&mut queue.delaying, now) == now {
            return;
        }
        queue.push(if now {
            Event::WriteDelayBegin
        } else {
            Event::WriteDelayEnd
        });
        drop(queue);
        self.changed.notify_one();
    }

    /// Reports that background work found no space.
    pub fn no_space(&self, error: &Error) {
        self.space(true, || Event::NoSpaceBegin {
            error: error.clone(),
        });
    }

    /// Reports that background work found space, if it had found none before.
    pub fn found_space(&self) {
        if self.no_space.load(Ordering::Relaxed) {
            self.space(false, || Event::NoSpaceEnd);
        }
    }

    fn space(&self, lacking: bool, event: impl FnOnce() -> Event) {
        if !self.is_on() {
            return;
        }
        let mut queue = self.queue.lock();
        if self.no_space.swap(lacking, Ordering::Relaxed) == lacking {
            return;
        }
        queue.push(event());
        drop(queue);
        self.changed.notify_one();
    }

    /// Reports a table file that is about to be deleted.
    pub fn table_deleted(&self, table: TableId) {
        self.tell(|| Event::TableDeleted { table: table.0 });
    }

    /// Runs the thread that calls the listener, until it is stopped and has delivered all events.
    pub fn run(&self) {
        let Some(listener) = &self.listener else {
            return;
        };
        loop {
            let (event, lost) = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(event) = queue.events.pop_front() {
                        // Events were dropped only after all queued ones.
                        let lost = if queue.events.is_empty() {
                            std::mem::take(&mut queue.lost)
                        } else {
                            0
                        };
                        break (event, lost);
                    }
                    if queue.stop {
                        return;
                    }
                    self.changed.wait(&mut queue);
                }
            };
            let lost = (lost > 0).then_some(Event::Lost { events: lost });
            for event in std::iter::once(event).chain(lost) {
                // The panic prints its own message; the engine is not affected.
                let _ = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event)));
            }
        }
    }

    /// Ends the thread once it has delivered the queued events.
    pub fn stop(&self) {
        self.queue.lock().stop = true;
        self.changed.notify_all();
    }
}
