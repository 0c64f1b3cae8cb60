//! Merge of a bulk load's runs: rows in order; of equal keys only the newest row.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use super::bulk_load::{Duplicates, Failure, Step};
use super::run_file::{RunFile, RunReader, RunWriter};
use crate::db::shared::Shared;

/// Merges runs, oldest first, into fewer ones until at most `most` are left.
pub(super) fn reduce(
    shared: &Arc<Shared>,
    mut runs: Vec<RunFile>,
    most: usize,
    duplicates: Duplicates,
) -> Step<Vec<RunFile>> {
    debug_assert!(most >= 2);
    // Each round divides the number of runs by `most`.
    while runs.len() > most {
        let mut merged = Vec::new();
        let mut rest = runs.into_iter();
        loop {
            let group: Vec<RunFile> = rest.by_ref().take(most).collect();
            if group.is_empty() {
                break;
            }
            let mut writer = RunWriter::create(shared)?;
            merge(group, duplicates, |slot, key, value| {
                Ok(writer.add(slot, key, value)?)
            })?;
            merged.push(writer.finish()?);
        }
        runs = merged;
    }
    Ok(runs)
}

/// Merges runs, oldest first, and hands their rows to `emit`.
pub(super) fn merge(
    runs: Vec<RunFile>,
    duplicates: Duplicates,
    mut emit: impl FnMut(u32, &[u8], &[u8]) -> Step<()>,
) -> Step<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for (age, run) in runs.into_iter().enumerate() {
        let mut reader = Box::new(RunReader::new(run));
        if reader.next()? {
            heads.push(Head { reader, age });
        }
    }
    let mut last: Option<(u32, Vec<u8>)> = None;
    while let Some(mut first) = heads.peek_mut() {
        let (slot, key) = first.reader.order();
        let repeated = last
            .as_ref()
            .is_some_and(|(s, k)| (*s, &k[..]) == (slot, key));
        if repeated && duplicates == Duplicates::Refuse {
            return Err(Failure::duplicate(slot, key));
        }
        if !repeated {
            emit(slot, key, first.reader.value())?;
            let (last_slot, last_key) = last.get_or_insert_default();
            *last_slot = slot;
            last_key.clear();
            last_key.extend_from_slice(key);
        }
        if !first.reader.next()? {
            PeekMut::pop(first);
        }
    }
    Ok(())
}

/// Reader on a row. The greatest head in a heap has the least row, of equal keys that of the newest
/// run.
struct Head {
    /// Boxed, because the heap moves its heads.
    reader: Box<RunReader>,
    /// Index of the run, oldest first.
    age: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let by_key = other.reader.order().cmp(&self.reader.order());
        by_key.then(self.age.cmp(&other.age))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}
