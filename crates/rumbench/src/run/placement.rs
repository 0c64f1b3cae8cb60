//! Placement of clients and engine on cores. On a machine with few cores it alone changes the
//! throughput of a server several times, because each round trip wakes a thread.
//!
//! The engine gets the first half of the cores in both `shared` and `split`, so the two differ only
//! in the cores of the clients: the same or the others. A thread inherits the cores of its parent.
//! The trial's main thread is bound to the engine's cores while it opens the engine or starts the
//! server, and to the clients' cores afterwards.

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::catalog::usage;

/// Cores of client and engine threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Clients on the cores of the engine, which are half of all
    Shared,
    /// Clients on one half of the cores, the engine on the other
    Split,
    /// Wherever the kernel puts them
    #[default]
    Free,
}

/// Cores of one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    placement: Placement,
    engine: Vec<usize>,
    clients: Vec<usize>,
}

impl Placement {
    /// Returns the cores of this placement among those that this process may use; `None` for
    /// [`Placement::Free`].
    ///
    /// # Errors
    /// A usage error when there are too few.
    pub fn cores(self) -> Result<Option<Cores>> {
        let allowed =
            sched_getaffinity(None).context("cannot ask for the cores of this process")?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| allowed.is_set(*core))
            .collect();
        self.among(&allowed)
    }

    fn among(self, allowed: &[usize]) -> Result<Option<Cores>> {
        if self == Placement::Free {
            return Ok(None);
        }
        let (engine, others) = allowed.split_at(allowed.len().div_ceil(2));
        if others.is_empty() {
            return Err(usage(format!(
                "--placement shared|split halves the cores, and this process may use {} only; leave the flag out",
                allowed.len()
            )));
        }
        let clients = match self {
            Placement::Split => others,
            Placement::Shared | Placement::Free => engine,
        };
        Ok(Some(Cores {
            placement: self,
            engine: engine.to_vec(),
            clients: clients.to_vec(),
        }))
    }
}

impl Cores {
    /// Binds this thread and all threads and processes that it starts later to the cores of the
    /// engine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn for_engine(&self) -> Result<()> {
        bind(&self.engine)
    }

    /// Binds this thread to the cores of the clients, like [`Cores::for_engine`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn for_clients(&self) -> Result<()> {
        bind(&self.clients)
    }

    /// Describes the placement and its cores for the result.
    pub fn words(&self) -> String {
        let name = match self.placement {
            Placement::Shared => "shared",
            Placement::Split => "split",
            Placement::Free => "free",
        };
        let list = |cores: &[usize]| {
            let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
            cores.join(" ")
        };
        format!(
            "{name}: engine on cores {}, clients on cores {}",
            list(&self.engine),
            list(&self.clients)
        )
    }
}

fn bind(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).context("cannot bind the trial to its cores")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_the_same_half_whether_shared_or_split() {
        let words = |placement: Placement, allowed: &[usize]| {
            placement.among(allowed).unwrap().map(|cores| cores.words())
        };
        assert_eq!(words(Placement::Free, &[0]), None);
        assert_eq!(
            words(Placement::Shared, &[0, 1]).unwrap(),
            "shared: engine on cores 0, clients on cores 0"
        );
        assert_eq!(
            words(Placement::Split, &[2, 3, 5]).unwrap(),
            "split: engine on cores 2 3, clients on cores 5"
        );
        assert!(Placement::Split.among(&[7]).is_err());
    }

    #[test]
    fn threads_inherit_the_cores_of_the_one_that_starts_them() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU)
            .find(|core| allowed.is_set(*core))
            .unwrap();
        std::thread::spawn(move || {
            bind(&[first]).unwrap();
            let inherited = std::thread::spawn(|| sched_getaffinity(None).unwrap());
            assert_eq!(inherited.join().unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }
}
