//! A scheduler that owns all threads, waits and time of a test run, so that one seed decides everything that happens.
//!
//! Only with the feature `simulation`, which no shipped build has. [`run`] runs a body as the first of any number of
//! threads. They are stacks of their own on one thread of the system, and only the one that holds the *baton* runs. It
//! gives the baton away where it locks, unlocks, waits, notifies, spawns, joins or calls [`step`], to a thread that the
//! seed picks among those that could go on. So everything between two such places is one step of a history, and a history
//! is the same whenever its seed is: nothing in it may look at the real clock, at addresses or at hash seeds. What
//! `thread_local!` keeps belongs to all threads of a run together: nothing may hang on it across a step.
//!
//! Time is virtual. It creeps with each step, and it jumps to the next deadline where nobody can go on, or at random,
//! as it does for threads that are slow. Where nobody can go on and nobody waits for a time, the run is a deadlock and
//! ends with a list of who waits for what. A deadlocked run cannot be unwound: its stacks are left as they are.
//!
//! A thread outside of any run finds ordinary locks, threads and time behind the same names.

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

/// How a run goes.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Decides everything.
    pub seed: u64,
    /// A run of more steps than this has not ended and counts as a livelock.
    pub steps_max: u64,
    /// How eagerly threads are switched.
    pub policy: Policy,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All threads have ended.
    Finished,
    /// Nobody can go on: who waits for what, a line for each thread.
    Deadlock(String),
    /// There were too many steps: what each thread does, a line for each.
    TooLong(String),
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Places where the baton could change hands.
    pub steps: u64,
    /// A hash of every decision and of all that was [noted](note): equal for equal histories.
    pub trace: u64,
}

/// Is told the number of each commit, with its operations as they are encoded, before the log has it.
pub type Observer = dyn Fn(u64, &[u8]) + Send + Sync;

/// One run.
pub(crate) struct World {
    /// Guards the whole state; held between two steps only.
    state: Mutex<State>,
    /// The threads by their index. Guards the places only: the one that runs is not in its own.
    fibers: Mutex<Vec<Option<Fiber>>>,
    observer: Box<Observer>,
}

/// A thread's place in its run.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The calling thread's place; `None` outside of runs, and while a thread is being torn down.
pub(crate) fn place() -> Option<Place> {
    PLACE
        .try_with(|place| place.borrow().clone())
        .ok()
        .flatten()
}

/// Runs `body` as the first thread of a simulated world until all its threads have ended, or nobody can go on.
///
/// # Panics
///
/// Where `body` does, once all threads have ended.
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

/// Where another thread may go on.
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

/// A number that the seed decides.
pub fn random_u64() -> u64 {
    match place() {
        Some(place) => place.world.lock().random(),
        None => {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one("outside of runs")
        }
    }
}

/// The virtual time in nanoseconds since the run began; `None` outside of runs.
pub fn now_ns() -> Option<u64> {
    place().map(|place| place.world.lock().now())
}

/// Tells the observer of the run that a commit of these operations gets this number.
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

    /// Makes a thread that will start at its first turn, and returns its index.
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

    /// Lets the thread that has the baton run until it gives it away, again and again, to the end of the run. Threads that
    /// cannot go on then stay, with all that they refer to: each holds the world that holds it.
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
    /// Gives the baton away and waits for it, unless the seed lets this thread go on. A run that ends meanwhile never
    /// comes back.
    fn give(&self, mut state: MutexGuard<'_, State>) {
        let next = state.pick();
        drop(state);
        if next != Some(self.index) {
            threads::suspend();
        }
    }

    /// Where another thread may go on.
    pub(crate) fn step(&self) {
        let mut state = self.world.lock();
        if state.step(self.index) {
            self.give(state);
        }
    }

    /// Waits until somebody wakes this thread by the key, or until the deadline; true if that came first.
    pub(crate) fn wait(&self, key: Key, deadline_ns: Option<u64>) -> bool {
        let mut state = self.world.lock();
        state.wait(self.index, key, deadline_ns);
        self.give(state);
        self.world.lock().take_timed_out(self.index)
    }

    /// Lets one waiter of the key go on, or all of them.
    pub(crate) fn wake(&self, key: Key, all: bool) {
        self.world.lock().wake(key, all);
    }

    /// Ends the calling thread's part and gives the baton away for good.
    fn finish(&self) {
        PLACE.with(|place| *place.borrow_mut() = None);
        let mut state = self.world.lock();
        state.finish(self.index);
        state.pick();
    }

    /// Whether a thread of this run has ended.
    pub(crate) fn has_ended(&self, index: usize) -> bool {
        self.world.lock().has_ended(index)
    }
}

#[cfg(test)]
mod tests;
