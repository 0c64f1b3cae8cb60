//! State of a run's threads, and the choice of the next thread by the seed.

use std::fmt::Write as _;

use super::{End, Report, Setup};

/// Frequencies of thread switches, stalls and time jumps. Different policies find different
/// mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Number of steps out of 256 at which another thread may run although the current one is
    /// ready.
    pub switch_of_256: u8,
    /// Some threads are picked much less often than others.
    pub uneven: bool,
    /// Number of steps out of 65,536 at which time jumps to the next deadline although a thread is
    /// ready.
    pub jump_of_65536: u16,
    /// Maximum nanoseconds of a step.
    pub step_ns_max: u64,
    /// Number of steps out of 65,536 at which a thread loses its core for up to some thousand steps
    /// of the others.
    pub stall_of_65536: u16,
}

/// Long enough for a flush and a compaction.
const STALL_STEPS_MAX: u64 = 4_000;

/// Object that a thread waits for. Addresses are only compared for equality, so they do not
/// influence the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Lock(usize),
    Condition(usize),
    Thread(usize),
    /// CPU core of the thread.
    Core,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Can run.
    Ready,
    Waiting {
        key: Key,
        deadline_ns: Option<u64>,
    },
    Ended,
}

struct Member {
    name: String,
    doing: Doing,
    /// The last wait ended by its deadline.
    timed_out: bool,
    weight: u64,
}

/// Scheduler state of one run.
pub(super) struct State {
    random: u64,
    policy: Policy,
    now_ns: u64,
    steps: u64,
    steps_max: u64,
    trace: u64,
    members: Vec<Member>,
    /// Index of the thread that holds the baton: the first thread at first.
    running: usize,
    /// Set when the run has ended.
    pub(super) report: Option<Report>,
}

impl State {
    pub(super) fn new(setup: &Setup) -> State {
        State {
            random: setup.seed,
            policy: setup.policy,
            now_ns: 0,
            steps: 0,
            steps_max: setup.steps_max,
            trace: setup.seed,
            members: Vec::new(),
            running: 0,
            report: None,
        }
    }

    /// Returns the next number of SplitMix64: small, and the same on every platform.
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound
    }

    pub(super) fn note(&mut self, number: u64) {
        self.trace = (self.trace ^ number)
            .wrapping_mul(0x0000_0100_0000_01B3)
            .rotate_left(23);
    }

    pub(super) fn now(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn enroll(&mut self, name: &str) -> usize {
        let weight = if self.policy.uneven {
            [1, 8, 64][self.below(3) as usize]
        } else {
            1
        };
        self.members.push(Member {
            name: name.to_owned(),
            doing: Doing::Ready,
            timed_out: false,
            weight,
        });
        self.members.len() - 1
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn has_ended(&self, index: usize) -> bool {
        self.members[index].doing == Doing::Ended
    }

    /// Counts a step; returns true if another thread may run now.
    pub(super) fn step(&mut self, index: usize) -> bool {
        self.steps += 1;
        self.now_ns += self.random() % (self.policy.step_ns_max + 1);
        if self.random() % 65_536 < u64::from(self.policy.jump_of_65536) {
            self.jump();
        }
        if self.random() % 65_536 < u64::from(self.policy.stall_of_65536) {
            let steps = self.below(STALL_STEPS_MAX);
            let deadline = self.now_ns + steps * (self.policy.step_ns_max / 2 + 1);
            self.members[index].doing = Doing::Waiting {
                key: Key::Core,
                deadline_ns: Some(deadline),
            };
            return true;
        }
        self.steps > self.steps_max || self.random() % 256 < u64::from(self.policy.switch_of_256)
    }

    pub(super) fn wait(&mut self, index: usize, key: Key, deadline_ns: Option<u64>) {
        self.steps += 1;
        let member = &mut self.members[index];
        member.timed_out = false;
        member.doing = Doing::Waiting { key, deadline_ns };
    }

    pub(super) fn take_timed_out(&mut self, index: usize) -> bool {
        std::mem::take(&mut self.members[index].timed_out)
    }

    pub(super) fn wake(&mut self, key: Key, all: bool) {
        let mut waiting = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            if matches!(member.doing, Doing::Waiting { key: on, .. } if on == key) {
                waiting.push(index);
            }
        }
        if !all && waiting.len() > 1 {
            let chosen = self.below(waiting.len() as u64) as usize;
            waiting = vec![waiting[chosen]];
        }
        for index in waiting {
            self.members[index].doing = Doing::Ready;
        }
    }

    pub(super) fn finish(&mut self, index: usize) {
        self.members[index].doing = Doing::Ended;
        self.wake(Key::Thread(index), true);
    }

    /// Passes the baton to the next thread and returns its index. Returns `None` if the run has
    /// ended.
    pub(super) fn pick(&mut self) -> Option<usize> {
        if self.report.is_some() {
            return None;
        }
        if self.steps > self.steps_max {
            return self.end(End::TooLong(self.listing()));
        }
        self.expire();
        if !self.anybody_ready() {
            self.jump();
            self.expire();
        }
        let ready = |m: &Member| m.doing == Doing::Ready;
        let total: u64 = self
            .members
            .iter()
            .filter(|m| ready(m))
            .map(|m| m.weight)
            .sum();
        if total == 0 {
            let all_ended = self.members.iter().all(|m| m.doing == Doing::Ended);
            let end = if all_ended {
                End::Finished
            } else {
                End::Deadlock(self.listing())
            };
            return self.end(end);
        }
        let mut left = self.below(total);
        let chosen = self.members.iter().position(|member| {
            let weight = if ready(member) { member.weight } else { 0 };
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it
        })?;
        self.note(chosen as u64);
        self.running = chosen;
        Some(chosen)
    }

    fn end(&mut self, end: End) -> Option<usize> {
        self.report = Some(Report {
            end,
            steps: self.steps,
            trace: self.trace,
        });
        None
    }

    fn anybody_ready(&self) -> bool {
        self.members.iter().any(|m| m.doing == Doing::Ready)
    }

    /// Advances time to the next deadline.
    fn jump(&mut self) {
        let deadlines = self.members.iter().filter_map(|member| match member.doing {
            Doing::Waiting { deadline_ns, .. } => deadline_ns,
            _ => None,
        });
        if let Some(next) = deadlines.min() {
            self.now_ns = self.now_ns.max(next);
        }
    }

    /// Ends the waits with a deadline in the past.
    fn expire(&mut self) {
        for member in &mut self.members {
            if let Doing::Waiting {
                deadline_ns: Some(deadline),
                ..
            } = member.doing
                && deadline <= self.now_ns
            {
                member.doing = Doing::Ready;
                member.timed_out = true;
            }
        }
    }

    /// Lists the state of each thread, one per line. Addresses are left out, because they differ
    /// from run to run.
    fn listing(&self) -> String {
        let mut lines = String::new();
        for (index, member) in self.members.iter().enumerate() {
            let doing = match member.doing {
                Doing::Ready => "could go on".to_owned(),
                Doing::Ended => "has ended".to_owned(),
                Doing::Waiting { key, .. } => match key {
                    Key::Lock(_) => "waits for a lock".to_owned(),
                    Key::Condition(_) => "waits for a condition".to_owned(),
                    Key::Thread(other) => format!("joins thread {other}"),
                    Key::Core => "has lost its core".to_owned(),
                },
            };
            let _ = writeln!(lines, "thread {index} ({}): {doing}", member.name);
        }
        lines
    }
}
