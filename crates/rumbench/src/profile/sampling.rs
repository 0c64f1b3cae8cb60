//! Samples by the kernel: one event for each processor, inherited by all threads and processes that the first one starts.
//!
//! A sample holds registers and the top of the stack, and is followed later: compilers leave out frame pointers, so the kernel
//! cannot do it. The clock is the kernel's own, not the processor's counters, which virtual machines often lack.

use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Samples for each second of CPU time: few enough to cost less than a percent, and no divisor of what happens every so many milliseconds.
const PER_SECOND: u64 = 199;
/// Bytes of the stack in a sample. Deeper callers are lost; the kernel refuses 64 KiB.
const STACK_BYTES: u32 = 24 << 10;
/// Buffer of a processor: 160 samples, which take 0.8 s to come where one thread is always running. The second is what the kernel
/// allows to everybody (`kernel.perf_event_mlock_kb`): 20 samples.
const BUFFER_BYTES: [usize; 2] = [4 << 20, 512 << 10];
/// From here on an entry of a chain of calls is a mark and no address.
const MARKS_FROM: u64 = u64::MAX - 4095;

#[cfg(target_arch = "x86_64")]
mod registers {
    /// bp, sp and ip (asm/perf_regs.h), in the order in which the kernel stores them.
    pub const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;

    /// Of the stored values.
    pub fn of(values: &[u64]) -> Option<super::Registers> {
        let &[frame, stack, ip] = values else {
            return None;
        };
        Some(super::Registers {
            ip,
            stack,
            frame,
            link: 0,
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    /// x29 (frame), x30 (link), sp and pc, in the order in which the kernel stores them.
    pub const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

    /// Of the stored values.
    pub fn of(values: &[u64]) -> Option<super::Registers> {
        let &[frame, link, stack, ip] = values else {
            return None;
        };
        Some(super::Registers {
            ip,
            stack,
            frame,
            link,
        })
    }
}

/// The registers that unwinding begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The stack's top.
    pub stack: u64,
    /// The frame's base, where the compiler keeps one.
    pub frame: u64,
    /// The address to return to, on processors with a register for it.
    pub link: u64,
}

/// Where a thread was.
#[derive(Debug, Clone)]
pub struct Sample {
    pub pid: u32,
    pub tid: u32,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// In the program, or where it called the kernel.
    pub user: Registers,
    /// Memory from the stack's top on.
    pub stack: Vec<u8>,
}

/// The events of all processors.
pub struct Samplers {
    all: Vec<Sampler>,
    with_kernel: bool,
}

impl Samplers {
    /// For a process that has one thread, and whatever it starts.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach(pid: u32) -> io::Result<Samplers> {
        // A plain user may often look at programs and not at the kernel, or have small buffers only.
        let mut refused = io::Error::from(io::ErrorKind::PermissionDenied);
        for with_kernel in [true, false] {
            for buffer in BUFFER_BYTES {
                let cpus = allowed().into_iter();
                let all = cpus.map(|cpu| sampler(pid, cpu, with_kernel, buffer));
                match all.collect() {
                    Ok(all) => return Ok(Samplers { all, with_kernel }),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        refused = error;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(refused)
    }

    /// What the samples leave out.
    pub fn lacks(&self) -> Option<&'static str> {
        (!self.with_kernel)
            .then_some("without the kernel's part, as kernel.perf_event_paranoid is above 1")
    }

    /// Gives the samples that there are to `take`. Returns how many the kernel could not store, or stored without a stack, as of a
    /// process that is ending.
    pub fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let mut lost = 0;
        for sampler in &mut self.all {
            while let Some(record) = sampler.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let chain = sample.callchain().unwrap_or_default();
                        let kernel = chain.iter().filter(|address| **address < MARKS_FROM);
                        let user = sample.regs_user();
                        let Some(user) = user.and_then(|user| registers::of(&user.regs)) else {
                            lost += 1;
                            continue;
                        };
                        take(Sample {
                            pid: sample.pid().unwrap_or(0),
                            tid: sample.tid().unwrap_or(0),
                            kernel: kernel.copied().collect(),
                            user,
                            stack: sample.stack_user().unwrap_or_default().to_vec(),
                        });
                    }
                    Ok(Record::Lost(found)) => lost += found.lost,
                    Ok(Record::LostSamples(found)) => lost += found.lost,
                    Err(_) => lost += 1,
                    Ok(_) => {}
                }
            }
        }
        lost
    }
}

fn sampler(pid: u32, cpu: usize, with_kernel: bool, buffer: usize) -> io::Result<Sampler> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(pid)
        .one_cpu(cpu)
        .inherit(true)
        .enabled(true)
        .exclude_kernel(!with_kernel)
        .exclude_callchain_user(true)
        .sample_frequency(PER_SECOND)
        .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
        .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(registers::MASK)
        .sample_stack_user(STACK_BYTES);
    builder.build()?.sampled(buffer)
}

/// Numbers of the processors that this process may use, and so its trials.
fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    let is_set = |cpu: &usize| set.as_ref().is_ok_and(|set| set.is_set(*cpu));
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(is_set)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_processor_to_run_on() {
        let found = allowed();
        let parallel = std::thread::available_parallelism().expect("known");
        assert!(found.len() >= parallel.get(), "{found:?}");
    }
}
