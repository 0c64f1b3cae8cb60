//! Scheduler that owns all threads, waits and time of a test run, so one seed decides everything.
//!
//! Only with the feature `simulation`, which no shipped build has. [`run`] runs a body as the first
//! of any number of simulated threads. Each has its own stack on one system thread, and only the
//! thread that holds the *baton* runs. It passes the baton when it locks, unlocks, waits, notifies,
//! spawns, joins or calls [`step`], to a thread that the seed picks among the ready ones. So
//! everything between two such places is one step of a history. Equal seeds give equal histories,
//! if no code in the run depends on the real clock, addresses or hash seeds. All threads of a run
//! share `thread_local!` values: no code may depend on one across a step.
//!
//! Time is virtual. It advances a little with each step. It jumps to the next deadline if no thread
//! can run, and at random, as for slow threads. If no thread can run and none waits for a deadline,
//! the run is a deadlock and ends with a list of the threads and their waits. A deadlocked run
//! cannot be unwound: its stacks are leaked.
//!
//! Outside of any run, the same names give ordinary locks, threads and time.

pub mod channel;
pub mod clock;
pub mod locks;
mod state;
pub mod threads;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::state::Policy;
use self::state::{Key, State};
use self::threads::Fiber;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Maximum number of steps; a longer run counts as a livelock.
    pub steps_max: u64,
    /// Frequencies of thread switches, stalls and time jumps.
    pub policy: Policy,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All threads have ended.
    Finished,
    /// No thread can run. Lists each thread and its wait, one per line.
    Deadlock(String),
    /// Too many steps. Lists the state of each thread, one per line.
    TooLong(String),
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// End of the run.
    pub end: End,
    /// Number of steps: points at which another thread may run.
    pub steps: u64,
    /// Hash of every decision and of all [noted](note) numbers: equal for equal histories.
    pub trace: u64,
}

/// Callback with the number of each commit and its encoded operations, before they are in the log.
pub type Observer = dyn Fn(u64, &[u8]) + Send + Sync;

/// State, threads and observer of one run.
pub(crate) struct World {
    /// Guards the whole state; held only between two steps.
    state: Mutex<State>,
    /// Threads by their index. Guards only the slots: the slot of the running thread is empty.
    fibers: Mutex<Vec<Option<Fiber>>>,
    observer: Box<Observer>,
}

/// Position of a thread in its run.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Returns the calling thread's place; `None` outside of runs, and while a thread is being torn
/// down.
pub(crate) fn place() -> Option<Place> {
    PLACE
        .try_with(|place| place.borrow().clone())
        .ok()
        .flatten()
}

/// Runs `body` as the first thread of a simulated world until all its threads have ended, or none
/// can run.
///
/// # Panics
///
/// If `body` panics, after all threads have ended.
pub fn run(setup: Setup, observer: Box<Observer>, body: impl FnOnce() + Send + 'static) -> Report {
    let world = Arc::new(World {
        state: Mutex::new(State::new(&setup)),
        fibers: Mutex::new(Vec::new()),
        observer,
    });
    let panicked = Arc::new(Mutex::new(None));
    let told = Arc::clone(&panicked);
    world.enroll("main", move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        *told.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    });
    let report = world.drive();
    let panic = panicked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match panic {
        Some(panic) => resume_unwind(panic),
        None => report,
    }
}

/// Marks a point at which another thread may run.
pub fn step() {
    if let Some(place) = place() {
        place.step();
    }
}

/// Adds a number to the trace of the run.
pub fn note(number: u64) {
    if let Some(place) = place() {
        place.world.lock().note(number);
    }
}

/// Returns a number that the seed decides.
pub fn random_u64() -> u64 {
    match place() {
        Some(place) => place.world.lock().random(),
        None => {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one("outside of runs")
        }
    }
}

/// Returns the virtual time in nanoseconds since the run began; `None` outside of runs.
pub fn now_ns() -> Option<u64> {
    place().map(|place| place.world.lock().now())
}

/// Reports to the observer of the run that a commit of these operations gets this number.
pub fn numbered(seqno: u64, ops: &[u8]) {
    if let Some(place) = place() {
        (place.world.observer)(seqno, ops);
        place.step();
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fibers(&self) -> MutexGuard<'_, Vec<Option<Fiber>>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a thread that starts at its first turn, and returns its index.
    pub(crate) fn enroll(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> usize {
        let index = self.lock().enroll(name);
        let place = Place {
            world: Arc::clone(self),
            index,
        };
        let fiber = threads::fiber(move || {
            body();
            place.finish();
        });
        self.fibers().push(Some(fiber));
        index
    }

    /// Resumes the thread that has the baton, repeatedly, until the run ends. Threads that cannot
    /// run then are leaked with everything they refer to: each holds the world, and the world holds
    /// them.
    fn drive(self: &Arc<Self>) -> Report {
        loop {
            let index = match &*self.lock() {
                State {
                    report: Some(report),
                    ..
                } => break report.clone(),
                state => state.running(),
            };
            let fiber = self.fibers()[index].take();
            let mut fiber = fiber.expect("only a thread that has not ended is picked");
            let place = Place {
                world: Arc::clone(self),
                index,
            };
            PLACE.with(|own| *own.borrow_mut() = Some(place));
            fiber.resume();
            PLACE.with(|own| *own.borrow_mut() = None);
            if !fiber.is_done() {
                self.fibers()[index] = Some(fiber);
            }
        }
    }
}

impl Place {
    /// Passes the baton and waits for it, unless the seed lets this thread continue. Never returns
    /// if the run ends meanwhile.
    fn give(&self, mut state: MutexGuard<'_, State>) {
        let next = state.pick();
        drop(state);
        if next != Some(self.index) {
            threads::suspend();
        }
    }

    /// Marks a point at which another thread may run.
    pub(crate) fn step(&self) {
        let mut state = self.world.lock();
        if state.step(self.index) {
            self.give(state);
        }
    }

    /// Waits until another thread wakes this one by the key, or until the deadline; returns true if
    /// the deadline came first.
    pub(crate) fn wait(&self, key: Key, deadline_ns: Option<u64>) -> bool {
        let mut state = self.world.lock();
        state.wait(self.index, key, deadline_ns);
        self.give(state);
        self.world.lock().take_timed_out(self.index)
    }

    /// Makes one waiter of the key ready, or all of them.
    pub(crate) fn wake(&self, key: Key, all: bool) {
        self.world.lock().wake(key, all);
    }

    /// Ends the calling thread and passes the baton for good.
    fn finish(&self) {
        PLACE.with(|place| *place.borrow_mut() = None);
        let mut state = self.world.lock();
        state.finish(self.index);
        state.pick();
    }

    /// Returns true if a thread of this run has ended.
    pub(crate) fn has_ended(&self, index: usize) -> bool {
        self.world.lock().has_ended(index)
    }
}

#[cfg(test)]
mod tests;
