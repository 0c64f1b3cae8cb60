//! What the engine tells a listener: flushes, merges, tables, delays and failures, as they happen.
//!
//! Whoever has news queues them under a mutex of their own and goes on; a thread that exists only where there is a
//! listener hands them out, in order and with no lock held. So a listener may be slow, call the database, or panic:
//! the engine does not notice.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sync::plain::{Condvar, Mutex};

use crate::base::TableId;
use crate::error::Error;

/// Something that happened. More kinds may come.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// Sealed memtables are being written to tables.
    FlushBegin {
        /// Bytes of the memtables.
        memtable_bytes: u64,
    },
    /// They are in tables and the tables are part of the database.
    FlushEnd {
        /// Bytes of the memtables.
        memtable_bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A merge of one group of a keyspace begins.
    CompactionBegin {
        /// The keyspace's name.
        keyspace: String,
        /// Whether the outputs become the last level of the group.
        last_level: bool,
        /// Bytes of the tables that are merged.
        input_bytes: u64,
    },
    /// It has ended. Without an error and without outputs it was given up: the database is closing, or nobody wrote
    /// when it began and somebody does now.
    CompactionEnd {
        /// The keyspace's name.
        keyspace: String,
        /// Bytes of the new tables.
        output_bytes: u64,
        /// How long it took.
        took: Duration,
        /// Why it failed, if it did.
        error: Option<Error>,
    },
    /// A table file is complete. It may never become part of the database, if what it was made for fails.
    TableCreated {
        /// Its number, which names the file.
        table: u64,
        /// The keyspace's name.
        keyspace: String,
        /// Length of the file.
        bytes: u64,
    },
    /// A table file that was replaced is removed: nobody reads it any more.
    TableDeleted {
        /// Its number.
        table: u64,
    },
    /// From now on commits are slowed.
    WriteDelayBegin,
    /// From now on they are not.
    WriteDelayEnd,
    /// Background work found no space on the device, and is tried again.
    NoSpaceBegin {
        /// What failed.
        error: Error,
    },
    /// Background work has found space again.
    NoSpaceEnd,
    /// A flush or a compaction failed before it changed anything, for another reason than a full device: no descriptor
    /// was free, or a table could not be read or written. It is tried again. Told for each try.
    BackgroundFailure {
        /// What failed.
        error: Error,
    },
    /// The wall clock has jumped by more than a day, forward or back, against the clock that counts since the machine's
    /// start. Told again when it jumps back. See [`crate::Clock::system`] for what reads do meanwhile.
    ClockJump {
        /// The wall clock now, in milliseconds since 1970.
        wall_ms: u64,
        /// The time that reads use now.
        time_ms: u64,
    },
    /// At the opening the wall clock was more than a day behind the time that is stored in the database, so reads use the
    /// stored time plus the time since the opening. Either the wall clock is wrong and waits for its correction; or the
    /// stored time is wrong, because a wrong clock was recorded. Then close the database and set it back, with
    /// [`crate::set_stored_time`] or `alluvium set-time`.
    StoredTimeAhead {
        /// The wall clock now, in milliseconds since 1970.
        wall_ms: u64,
        /// The stored time.
        stored_ms: u64,
    },
    /// The first failed write or sync of the log or the manifest, after which every write fails: see [`Error::Poisoned`].
    Poisoned {
        /// What failed.
        cause: Arc<Error>,
    },
    /// The listener was so slow that this many events before this one were not kept for it.
    Lost {
        /// How many.
        events: u64,
    },
}

/// Gets the events of a database: see [`crate::Options::event_listener`].
///
/// Called by one thread, one event after the other, with no lock of the engine held. It may call the database, also to
/// close it. A panic is caught, and the next event comes all the same.
pub trait EventListener: Send + Sync {
    /// Something happened.
    fn on_event(&self, event: &Event);
}

impl fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// Events kept for a slow listener.
const QUEUE_MAX: usize = 4096;

/// The events of one database on their way to its listener.
#[derive(Debug, Default)]
pub(crate) struct Events {
    listener: Option<Arc<dyn EventListener>>,
    /// Guards what waits for the listener. A leaf in the lock order.
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Whether a lack of space was told and not its end, to be asked without the mutex. Relaxed: it orders nothing.
    no_space: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    lost: u64,
    /// What was told last. Changed with the event, so that beginnings and ends come in turn.
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

    /// Whether anybody listens.
    pub fn is_on(&self) -> bool {
        self.listener.is_some()
    }

    /// Queues an event, which is made only if somebody listens. Never waits for the listener.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            let event = event();
            self.queue.lock().push(event);
            self.changed.notify_one();
        }
    }

    /// Tells that commits are slowed, or not any more.
    pub fn delaying(&self, now: bool) {
        if !self.is_on() {
            return;
        }
        let mut queue = self.queue.lock();
        if std::mem::replace(&mut queue.delaying, now) == now {
            return;
        }
        queue.push(match now {
            true => Event::WriteDelayBegin,
            false => Event::WriteDelayEnd,
        });
        drop(queue);
        self.changed.notify_one();
    }

    /// Tells that background work found no space.
    pub fn no_space(&self, error: &Error) {
        self.space(true, || Event::NoSpaceBegin {
            error: error.clone(),
        });
    }

    /// Tells that background work found space, if it had found none before.
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

    /// Tells of a table file that is going.
    pub fn table_deleted(&self, table: TableId) {
        self.tell(|| Event::TableDeleted { table: table.0 });
    }

    /// The thread that calls the listener: ends when it is told to and everything is handed out.
    pub fn run(&self) {
        let Some(listener) = &self.listener else {
            return;
        };
        loop {
            let (event, lost) = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(event) = queue.events.pop_front() {
                        // What was lost came after all that was kept.
                        let lost = match queue.events.is_empty() {
                            true => std::mem::take(&mut queue.lost),
                            false => 0,
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
                // The panic's own message says what happened; the engine has no part in it.
                let _ = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event)));
            }
        }
    }

    /// Ends the thread once it has handed out what is queued.
    pub fn stop(&self) {
        self.queue.lock().stop = true;
        self.changed.notify_all();
    }
}
