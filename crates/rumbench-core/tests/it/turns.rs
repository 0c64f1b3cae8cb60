//! Helpers of tests with whole trials: clients that take turns on an in-memory engine, and golden
//! operations.

use std::fmt::Write as _;
use std::path::Path;

use rumbench_core::engine::Result;
use rumbench_core::model::ModelEngine;
use rumbench_core::random::mix;
use rumbench_core::trial::{Phase, PhaseClient, PhaseEnd, Step, Workload};

/// Appends the first three operations as text, then a hash of the first thousand.
pub fn describe(found: &mut String, name: &str, mut next: impl FnMut(u64) -> String) {
    writeln!(found, "{name}").unwrap();
    let mut hash = 0;
    for place in 0..1000 {
        let operation = next(place);
        if place < 3 {
            writeln!(found, "  {operation}").unwrap();
        }
        hash = operation
            .bytes()
            .fold(hash, |hash, byte| mix(hash, u64::from(byte)));
    }
    writeln!(found, "  {hash:016x}").unwrap();
}

/// Compares with a file of `tests/golden`; `UPDATE=1` writes the file first.
pub fn assert_golden(file: &str, found: &str) {
    let folder = Path::new("tests/golden");
    let path = folder.join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap_or_default());
}

/// Totals of a phase; `background` counts the rows of its background clients.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Totals {
    pub operations: u64,
    pub rows: u64,
    pub background: u64,
    pub retries: u64,
    pub written_bytes: u64,
}

/// Performs a phase: its clients and background clients take turns. If the background clients lead,
/// the phase ends with them. A phase by time ends after `turns` of each client.
pub fn perform(mut phase: Phase, turns: u64) -> Result<Totals> {
    let mut total = Totals::default();
    let mut call = |client: &mut Box<dyn PhaseClient>, beside: bool| -> Result<bool> {
        if client.prepare().is_none() {
            return Ok(false);
        }
        let done = client.execute()?;
        total.retries += done.retries;
        total.written_bytes += done.written_bytes;
        if beside {
            total.background += done.rows
        } else {
            total.operations += 1;
            total.rows += done.rows;
        }
        Ok(true)
    };
    let mut left = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        PhaseEnd::Seconds(_) => turns * phase.clients.len() as u64,
        PhaseEnd::Work => u64::MAX,
    };
    loop {
        let mut active = false;
        for client in &mut phase.clients {
            active |= left > 0 && call(client, false)?;
            left = left.saturating_sub(1);
        }
        if let Some(background) = &mut phase.background {
            let mut beside = false;
            for client in &mut background.clients {
                beside |= call(client, true)?;
            }
            if background.leads.is_some() {
                active = beside;
            }
        }
        if !active || left == 0 {
            return Ok(total);
        }
    }
}

/// Runs all steps. A phase by time ends after `turns` of each client.
pub fn run(
    workload: &mut dyn Workload,
    engine: &ModelEngine,
    turns: u64,
) -> Result<Vec<(String, Totals)>> {
    let mut done = Vec::new();
    while let Some(step) = workload.next_step(engine)? {
        match step {
            Step::Phase(phase) => done.push((phase.name.clone(), perform(phase, turns)?)),
            Step::Settle => done.push(("settle".to_owned(), Totals::default())),
            Step::Reopen => panic!("only kv-sequence opens a database again"),
        }
    }
    Ok(done)
}
