//! Kernel samples: one event for each processor, inherited by all threads and processes that the
//! first one starts.
//!
//! A sample holds registers and the top of the stack and is unwound later: compilers omit frame
//! pointers, so the kernel cannot unwind. The clock is the kernel's own, not the processor's
//! counters, because virtual machines often lack those.

use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Samples per second of CPU time: few enough to cost less than 1 %, and out of step with events
/// that occur at whole milliseconds.
const PER_SECOND: u64 = 199;
/// Bytes of the stack in a sample. Outer callers beyond it are lost; the kernel rejects 64 KiB.
const STACK_BYTES: u32 = 24 << 10;
/// Buffer sizes per processor. The first holds 160 samples, or 0.8 s if one thread is always
/// running. The second, 20 samples, is allowed to every user (`kernel.perf_event_mlock_kb`).
const BUFFER_BYTES: [usize; 2] = [4 << 20, 512 << 10];
/// Entries of a call chain from this value upward are markers instead of addresses.
const MARKS_FROM: u64 = u64::MAX - 4095;

#[cfg(target_arch = "x86_64")]
mod registers {
    /// bp, sp and ip (asm/perf_regs.h), in the order in which the kernel stores them.
    pub const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;

    /// Returns the registers from the stored values.
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

    /// Returns the registers from the stored values.
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

/// Registers at the start of unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub stack: u64,
    /// Frame pointer, if the compiler keeps one.
    pub frame: u64,
    /// Return address, on processors with a register for it.
    pub link: u64,
}

/// One sample of a thread.
#[derive(Debug, Clone)]
pub struct Sample {
    pub pid: u32,
    pub tid: u32,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// Registers in the program, at the interrupt or at its call of the kernel.
    pub user: Registers,
    /// Memory from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// Events of all processors.
pub struct Samplers {
    all: Vec<Sampler>,
    with_kernel: bool,
}

impl Samplers {
    /// Attaches to a process with one thread, and to all threads and processes that it starts.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach(pid: u32) -> io::Result<Samplers> {
        // An ordinary user may often sample programs but not the kernel, or use small buffers only.
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

    /// Returns a description of missing samples, if any.
    pub fn lacks(&self) -> Option<&'static str> {
        (!self.with_kernel)
            .then_some("without the kernel's part, as kernel.perf_event_paranoid is above 1")
    }

    /// Passes the available samples to `take`. Returns the number of samples that the kernel could
    /// not store or stored without registers, for example of an ending process.
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

/// Returns the numbers of the processors that this process, and so its trials, may use.
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
