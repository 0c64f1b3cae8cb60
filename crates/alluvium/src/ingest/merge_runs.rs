//! Merge of a bulk load's runs: rows in order; of equal keys only the newest row.

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
    let mut heap = Heap::new(runs)?;
    let mut last: Option<(u32, Vec<u8>)> = None;
    while let Some(top) = heap.top() {
        let (slot, key) = top.order();
        let repeated = last
            .as_ref()
            .is_some_and(|(s, k)| (*s, &k[..]) == (slot, key));
        if repeated && duplicates == Duplicates::Refuse {
            return Err(Failure::duplicate(slot, key));
        }
        if !repeated {
            emit(slot, key, top.value())?;
            let (last_slot, last_key) = last.get_or_insert_default();
            *last_slot = slot;
            last_key.clear();
            last_key.extend_from_slice(key);
        }
        heap.advance()?;
    }
    Ok(())
}

/// Binary heap of readers: the least row is on top; of equal keys, the one of the newest run.
struct Heap {
    readers: Vec<RunReader>,
    /// Indices into `readers` of the readers with a row.
    order: Vec<usize>,
}

impl Heap {
    fn new(runs: Vec<RunFile>) -> Step<Heap> {
        let mut heap = Heap {
            readers: runs.into_iter().map(RunReader::new).collect(),
            order: Vec::new(),
        };
        for (i, reader) in heap.readers.iter_mut().enumerate() {
            if reader.next()? {
                heap.order.push(i);
            }
        }
        for at in (0..heap.order.len() / 2).rev() {
            heap.sift_down(at);
        }
        Ok(heap)
    }

    fn top(&self) -> Option<&RunReader> {
        self.order.first().map(|&i| &self.readers[i])
    }

    /// Moves the top reader to its next row.
    fn advance(&mut self) -> Step<()> {
        let Some(&top) = self.order.first() else {
            return Ok(());
        };
        if !self.readers[top].next()? {
            self.order.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.order.len() && self.is_before(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.order.swap(at, least);
            at = least;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.order[a], self.order[b]);
        let by_key = self.readers[a].order().cmp(&self.readers[b].order());
        by_key.then(b.cmp(&a)).is_lt()
    }
}
