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
/// Buffer of a processor: 160 samples, which take 0.8 s to come where one thread is always running.
const BUFFER_BYTES: usize = 4 << 20;
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
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub pid: u32,
    pub tid: u32,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// In the program, or where it called the kernel. A thread of the kernel has none.
    pub user: Option<Registers>,
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
        let attach = |with_kernel| {
            let cpus = online().into_iter();
            let all: io::Result<Vec<Sampler>> =
                cpus.map(|cpu| sampler(pid, cpu, with_kernel)).collect();
            Ok(Samplers {
                all: all?,
                with_kernel,
            })
        };
        // A plain user may often look at programs, but not at the kernel.
        attach(true).or_else(|_: io::Error| attach(false))
    }

    /// What the samples leave out.
    pub fn lacks(&self) -> Option<&'static str> {
        (!self.with_kernel).then_some("without the kernel's part, which it shows root only")
    }

    /// Gives the samples that there are to `take`. Returns how many the kernel could not store.
    pub fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let mut lost = 0;
        for sampler in &mut self.all {
            while let Some(record) = sampler.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let chain = sample.callchain().unwrap_or_default();
                        let kernel = chain.iter().filter(|address| **address < MARKS_FROM);
                        let user = sample.regs_user();
                        take(Sample {
                            pid: sample.pid().unwrap_or(0),
                            tid: sample.tid().unwrap_or(0),
                            kernel: kernel.copied().collect(),
                            user: user.and_then(|user| registers::of(&user.regs)),
                            stack: sample.stack_user().unwrap_or_default().to_vec(),
                        });
                    }
                    Ok(Record::Lost(found)) => lost += found.lost,
                    Ok(Record::LostSamples(found)) => lost += found.lost,
                    _ => {}
                }
            }
        }
        lost
    }
}

fn sampler(pid: u32, cpu: usize, with_kernel: bool) -> io::Result<Sampler> {
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
    builder.build()?.sampled(BUFFER_BYTES)
}

/// Numbers of the processors that run.
fn online() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let known = numbers(&text);
    match known.is_empty() {
        true => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
        false => known,
    }
}

/// `0-3,8` as numbers.
fn numbers(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse().ok()?..=to.parse().ok()?)
    };
    let ranges = text.trim().split(',').filter_map(range);
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_as_ranges() {
        assert_eq!(numbers("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert!(numbers("").is_empty());
        assert!(!online().is_empty());
    }
}
