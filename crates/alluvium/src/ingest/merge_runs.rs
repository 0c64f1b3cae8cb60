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
    let mut sources = BinaryHeap::new();
    for (run, file) in runs.into_iter().enumerate() {
        let mut reader = RunReader::new(file);
        if reader.next()? {
            sources.push(Source { reader, run });
        }
    }
    let mut last: Option<(u32, Vec<u8>)> = None;
    while let Some(mut top) = sources.peek_mut() {
        let (slot, key) = top.reader.order();
        let repeated = last
            .as_ref()
            .is_some_and(|(s, k)| (*s, &k[..]) == (slot, key));
        if repeated && duplicates == Duplicates::Refuse {
            return Err(Failure::duplicate(slot, key));
        }
        if !repeated {
            emit(slot, key, top.reader.value())?;
            let (last_slot, last_key) = last.get_or_insert_default();
            *last_slot = slot;
            last_key.clear();
            last_key.extend_from_slice(key);
        }
        let more = top.reader.next();
        if !matches!(more, Ok(true)) {
            // Without a row it must not be compared any more.
            PeekMut::pop(top);
        }
        more?;
    }
    Ok(())
}

/// Reader at a row. The greatest reader has the least row; of equal keys, that of the newest run.
struct Source {
    reader: RunReader,
    run: usize,
}

impl Ord for Source {
    fn cmp(&self, other: &Source) -> Ordering {
        let by_key = other.reader.order().cmp(&self.reader.order());
        by_key.then(self.run.cmp(&other.run))
    }
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Source) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Source {}
