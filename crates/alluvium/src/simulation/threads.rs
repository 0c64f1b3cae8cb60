//! Threads whose turns the scheduler decides, behind the interface of the standard library.

use std::io;
use std::thread::{self, Thread};

use super::{Key, Place, place};

/// As `std::thread::Builder`.
#[derive(Debug)]
pub struct Builder {
    name: String,
}

/// As `std::thread::JoinHandle`.
pub struct JoinHandle<T> {
    handle: thread::JoinHandle<T>,
    /// The thread's place in the run, if it is in one.
    index: Option<usize>,
}

/// Gives the baton away when the thread ends, also by a panic.
struct Turn(Place);

impl Builder {
    /// A thread without a name.
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
        let system = thread::Builder::new().name(self.name.clone());
        let Some(own) = place() else {
            let handle = system.spawn(body)?;
            return Ok(JoinHandle {
                handle,
                index: None,
            });
        };
        let new = own.world.enroll(&self.name);
        let index = new.index;
        let handle = start(new, system, body)?;
        own.step();
        Ok(JoinHandle {
            handle,
            index: Some(index),
        })
    }
}

/// Starts a thread of a run, which waits for its turn.
pub(super) fn start<T: Send + 'static>(
    place: Place,
    system: thread::Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    system.spawn(move || {
        place.enter();
        place.await_turn();
        let _turn = Turn(place);
        body()
    })
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended. Fails if it has panicked.
    pub fn join(self) -> thread::Result<T> {
        if let (Some(index), Some(own)) = (self.index, place()) {
            own.step();
            while !own.has_ended(index) {
                own.wait(Key::Thread(index), None);
            }
        }
        self.handle.join()
    }

    /// The system's thread.
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }
}

/// Lets others go on.
pub fn yield_now() {
    match place() {
        Some(place) => place.step(),
        None => thread::yield_now(),
    }
}
