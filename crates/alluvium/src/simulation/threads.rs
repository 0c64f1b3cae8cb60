//! Threads under the scheduler, with the interface of the standard library.
//!
//! In a run each thread has its own stack on the run's only system thread. A switch between two
//! costs some nanoseconds; between system threads it would cost microseconds. A history has
//! thousands of switches.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use generator::{Generator, Gn};

use super::{Key, place};

/// Thread of a run.
pub(super) type Fiber = Generator<'static, (), ()>;

/// Same size as the standard library's default. Only touched pages take memory.
const STACK_WORDS: usize = (2 << 20) / size_of::<usize>();

/// As `std::thread::Builder`.
#[derive(Debug)]
pub struct Builder {
    name: String,
}

/// As `std::thread::JoinHandle`.
pub struct JoinHandle<T>(Handle<T>);

enum Handle<T> {
    System(thread::JoinHandle<T>),
    /// Index of the thread in the run, and the slot for its result.
    Simulated(usize, Arc<Mutex<Option<thread::Result<T>>>>),
}

/// As `std::thread::Thread`.
#[derive(Debug)]
pub struct Thread(ThreadId);

/// As `std::thread::ThreadId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ThreadId {
    /// Outside of runs.
    System(thread::ThreadId),
    /// Index in the run.
    Simulated(usize),
}

impl Builder {
    /// Creates a builder of a thread without a name.
    #[expect(clippy::new_without_default, reason = "as in the standard library")]
    pub fn new() -> Builder {
        Builder {
            name: String::new(),
        }
    }

    /// Names the thread.
    pub fn name(self, name: String) -> Builder {
        Builder { name }
    }

    /// Starts the thread. Fails as the standard library does.
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let Some(own) = place() else {
            let handle = thread::Builder::new().name(self.name).spawn(body)?;
            return Ok(JoinHandle(Handle::System(handle)));
        };
        let result = Arc::new(Mutex::new(None));
        let left = Arc::clone(&result);
        let index = own.world.enroll(&self.name, move || {
            let returned = catch_unwind(AssertUnwindSafe(body));
            *left.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
        });
        own.step();
        Ok(JoinHandle(Handle::Simulated(index, result)))
    }
}

/// Creates a thread of a run that has not started. `body` does not panic.
pub(super) fn fiber(body: impl FnOnce() + Send + 'static) -> Fiber {
    Gn::new_opt(STACK_WORDS, body)
}

/// Switches back to the code that resumed the running thread. May never return.
pub(super) fn suspend() {
    #[expect(deprecated, reason = "a scope would have to be handed to every lock")]
    generator::yield_with(());
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended. Fails if it has panicked.
    ///
    /// # Panics
    ///
    /// If called outside of the run of a thread that has not ended.
    pub fn join(self) -> thread::Result<T> {
        let (index, result) = match self.0 {
            Handle::System(handle) => return handle.join(),
            Handle::Simulated(index, result) => (index, result),
        };
        if let Some(own) = place() {
            own.step();
            while !own.has_ended(index) {
                own.wait(Key::Thread(index), None);
            }
        }
        let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take().expect("the thread has ended in its run")
    }

    /// Returns the thread.
    pub fn thread(&self) -> Thread {
        Thread(match &self.0 {
            Handle::System(handle) => ThreadId::System(handle.thread().id()),
            Handle::Simulated(index, _) => ThreadId::Simulated(*index),
        })
    }
}

impl Thread {
    /// Returns the identity of the thread, unique in its run.
    pub fn id(&self) -> ThreadId {
        self.0
    }
}

/// Returns the calling thread.
pub fn current() -> Thread {
    Thread(match place() {
        Some(place) => ThreadId::Simulated(place.index),
        None => ThreadId::System(thread::current().id()),
    })
}

/// Lets other threads run.
pub fn yield_now() {
    match place() {
        Some(place) => place.step(),
        None => thread::yield_now(),
    }
}
