//! Events that the engine passes to the caller's listener.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use alluvium::{Error, Event, EventListener};

use crate::callback::OwnedContext;
use crate::error::alluvium_error;
use crate::options::alluvium_options;
use crate::value::alluvium_slice;

/// Kind of an event. Later versions may add kinds: ignore an unknown kind.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_event_kind {
    /// An event for which this version has no kind.
    Other = 0,
    /// A flush of sealed memtables begins. bytes: size of the memtables.
    FlushBegin = 1,
    /// A flush has ended: the new tables are part of the database. bytes: size of the memtables;
    /// took_us.
    FlushEnd = 2,
    /// A compaction of one group of a keyspace begins. keyspace; last_level; bytes: size of the
    /// input tables.
    CompactionBegin = 3,
    /// A compaction has ended. keyspace; bytes: size of the new tables; took_us; error if it
    /// failed. If it was abandoned, there is no error and bytes is 0.
    CompactionEnd = 4,
    /// A table file is complete. keyspace; table; bytes: the length of the file.
    TableCreated = 5,
    /// A replaced table file is removed after its last reader has finished. table.
    TableDeleted = 6,
    /// From now on commits are delayed.
    WriteDelayBegin = 7,
    /// From now on commits are no longer delayed.
    WriteDelayEnd = 8,
    /// Background work found no space on the device, and is retried. error: the failure.
    NoSpaceBegin = 9,
    /// Background work has found space again.
    NoSpaceEnd = 10,
    /// A write or sync failed for the first time. From now on every write fails with
    /// ALLUVIUM_CODE_POISONED. error: the failure.
    Poisoned = 11,
    /// The listener was too slow, so earlier events were dropped. lost: number of dropped events.
    Lost = 12,
    /// A flush or a compaction failed before it changed anything, for a reason other than a full
    /// device, and is retried. error: the failure.
    BackgroundFailure = 13,
    /// The wall clock has jumped by more than a day, forward or back, against the clock that counts
    /// since the machine's start. Reported again when it jumps back. wall_ms; time_ms: the time
    /// that reads use now.
    ClockJump = 14,
    /// At the opening the wall clock was more than a day below the time stored in the database. If
    /// the wall clock is right, a wrong time was recorded. Then close the database and set the
    /// stored time back with alluvium_set_stored_time or the command `alluvium set-time`. wall_ms;
    /// time_ms: the stored time.
    StoredTimeAhead = 15,
}

/// An event, valid until the listener returns, like everything it points to. The kind defines which
/// fields are set; the others are 0 or NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_event {
    /// Size of this struct in the library. It is smaller if the library is older than the header:
    /// then the fields after that size do not exist.
    pub struct_size: usize,
    /// An alluvium_event_kind.
    pub kind: u32,
    /// Not 0: the output tables of the compaction become the last level of the group.
    pub last_level: u32,
    /// A size in bytes, as defined by the kind.
    pub bytes: u64,
    /// Duration in microseconds.
    pub took_us: u64,
    /// The table's number, which names its file.
    pub table: u64,
    /// Number of lost events.
    pub lost: u64,
    /// The keyspace's name.
    pub keyspace: alluvium_slice,
    /// The failure, or NULL. Not to be freed.
    pub error: *const alluvium_error,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// A time of the database, in milliseconds since 1970.
    pub time_ms: u64,
}

/// An event for the caller, with the error that it points to.
struct Told {
    event: alluvium_event,
    error: Option<alluvium_error>,
}

impl Told {
    fn new(kind: alluvium_event_kind, bytes: u64) -> Told {
        Told {
            event: alluvium_event {
                struct_size: size_of::<alluvium_event>(),
                kind: kind as u32,
                last_level: 0,
                bytes,
                took_us: 0,
                table: 0,
                lost: 0,
                keyspace: alluvium_slice::none(),
                error: std::ptr::null(),
                wall_ms: 0,
                time_ms: 0,
            },
            error: None,
        }
    }

    fn of(event: &Event) -> Told {
        use alluvium_event_kind as kind;
        match event {
            Event::FlushBegin { memtable_bytes } => Told::new(kind::FlushBegin, *memtable_bytes),
            Event::FlushEnd {
                memtable_bytes,
                took,
            } => Told::new(kind::FlushEnd, *memtable_bytes).took(*took),
            Event::CompactionBegin {
                keyspace,
                last_level,
                input_bytes,
            } => {
                let mut told = Told::new(kind::CompactionBegin, *input_bytes).keyspace(keyspace);
                told.event.last_level = u32::from(*last_level);
                told
            }
            Event::CompactionEnd {
                keyspace,
                output_bytes,
                took,
                error,
            } => Told::new(kind::CompactionEnd, *output_bytes)
                .keyspace(keyspace)
                .took(*took)
                .error(error.as_ref()),
            Event::TableCreated {
                table,
                keyspace,
                bytes,
            } => Told::new(kind::TableCreated, *bytes)
                .keyspace(keyspace)
                .table(*table),
            Event::TableDeleted { table } => Told::new(kind::TableDeleted, 0).table(*table),
            Event::WriteDelayBegin => Told::new(kind::WriteDelayBegin, 0),
            Event::WriteDelayEnd => Told::new(kind::WriteDelayEnd, 0),
            Event::NoSpaceBegin { error } => Told::new(kind::NoSpaceBegin, 0).error(Some(error)),
            Event::NoSpaceEnd => Told::new(kind::NoSpaceEnd, 0),
            Event::BackgroundFailure { error } => {
                Told::new(kind::BackgroundFailure, 0).error(Some(error))
            }
            Event::Poisoned { cause } => Told::new(kind::Poisoned, 0).error(Some(cause)),
            Event::Lost { events } => {
                let mut told = Told::new(kind::Lost, 0);
                told.event.lost = *events;
                told
            }
            Event::ClockJump { wall_ms, time_ms } => {
                Told::new(kind::ClockJump, 0).times(*wall_ms, *time_ms)
            }
            Event::StoredTimeAhead { wall_ms, stored_ms } => {
                Told::new(kind::StoredTimeAhead, 0).times(*wall_ms, *stored_ms)
            }
            _ => Told::new(kind::Other, 0),
        }
    }

    fn took(mut self, took: Duration) -> Told {
        self.event.took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the name, borrowed from the engine's event: it outlives the call of the listener.
    fn keyspace(mut self, name: &str) -> Told {
        self.event.keyspace = alluvium_slice::lent(name.as_bytes());
        self
    }

    fn table(mut self, table: u64) -> Told {
        self.event.table = table;
        self
    }

    fn times(mut self, wall_ms: u64, time_ms: u64) -> Told {
        self.event.wall_ms = wall_ms;
        self.event.time_ms = time_ms;
        self
    }

    fn error(mut self, error: Option<&Error>) -> Told {
        self.error = error.map(alluvium_error::new);
        self
    }
}

pub(crate) type ListenerFn =
    unsafe extern "C" fn(context: *mut c_void, event: *const alluvium_event);

/// The caller's listener, as the engine calls it.
pub(crate) struct Listener {
    listener: ListenerFn,
    pub context: OwnedContext,
}

/// Returns the listener from the options, if there is one.
pub(crate) fn listener(options: &alluvium_options) -> Option<Arc<Listener>> {
    let context = OwnedContext::new(options.event_context, options.free_event_context);
    let with = |listener| Arc::new(Listener { listener, context });
    options.event_listener.map(with)
}

impl EventListener for Listener {
    fn on_event(&self, event: &Event) {
        let mut told = Told::of(event);
        if let Some(error) = &told.error {
            told.event.error = error;
        }
        // SAFETY: the contract: the function accepts this context until it is freed, and it is
        // freed when this listener is dropped. The event and everything it points to live as long
        // as the call.
        unsafe { (self.listener)(self.context.pointer(), &raw const told.event) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{alluvium_code, alluvium_error_code};

    #[test]
    fn rare_events_are_converted_with_all_fields() {
        let error = Error::Closed;
        let told = Told::of(&Event::NoSpaceBegin {
            error: error.clone(),
        });
        assert_eq!(told.event.kind, alluvium_event_kind::NoSpaceBegin as u32);
        assert_eq!(
            alluvium_error_code(told.error.as_ref()),
            alluvium_code::Closed
        );
        let told = Told::of(&Event::Poisoned {
            cause: Arc::new(error.clone()),
        });
        assert_eq!(told.event.kind, alluvium_event_kind::Poisoned as u32);
        assert_eq!(
            alluvium_error_code(told.error.as_ref()),
            alluvium_code::Closed
        );
        let told = Told::of(&Event::CompactionEnd {
            keyspace: "rows".into(),
            output_bytes: 1,
            took: Duration::from_millis(2),
            error: Some(error),
        });
        assert_eq!((told.event.bytes, told.event.took_us), (1, 2000));
        assert_eq!(told.event.keyspace.size, 4);
        assert!(told.error.is_some());
        let told = Told::of(&Event::Lost { events: 3 });
        assert_eq!(told.event.lost, 3);
        let told = Told::of(&Event::ClockJump {
            wall_ms: 4,
            time_ms: 5,
        });
        assert_eq!((told.event.wall_ms, told.event.time_ms), (4, 5));
        let told = Told::of(&Event::StoredTimeAhead {
            wall_ms: 6,
            stored_ms: 7,
        });
        assert_eq!((told.event.wall_ms, told.event.time_ms), (6, 7));
    }
}
