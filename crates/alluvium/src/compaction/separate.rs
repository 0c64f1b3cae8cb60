//! Large values in a compaction: taken out of rows into a value file, moved out of files that are
//! mostly garbage, or left where they are.

use crate::sync::collections::HashSet;
use std::ops::Deref;
use std::path::PathBuf;

use crate::base::{ValueFileId, ValueKind};
use crate::compaction::table_options::table_options;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::keyspace::expiry::EXPIRY_BYTES;
use crate::keyspace::tree::Tree;
use crate::table::{Pointer, ValueFiles, ValueWriter, resolve};

/// Size at which a value file is ended, so that collecting the garbage of one is a bounded piece of
/// work.
const VALUE_FILE_BYTES: u64 = 256 << 20;

/// Value files that a compaction reads from, and those of them that it is to empty.
#[derive(Default)]
pub(crate) struct ValueInputs {
    /// Every file that an input points into.
    pub files: ValueFiles,
    /// Files from which values are moved.
    pub victims: HashSet<ValueFileId>,
}

/// Writer for the values of one compaction's output.
pub(crate) struct Separator<S, T> {
    core: S,
    tree: T,
    inputs: ValueInputs,
    /// Least length in bytes of a value that goes into a value file: the keyspace's option when the
    /// compaction began. `None`: values stay in their rows.
    from: Option<usize>,
    /// The file that is being written, with its uid.
    open: Option<(ValueWriter, u64)>,
    /// Files of this compaction, finished or not.
    written: Vec<ValueFileId>,
}

/// Target of a row of a pointer kind, for the table's accounting.
pub(crate) struct PointsTo {
    pub file: ValueFileId,
    pub uid: u64,
    pub stored_bytes: u64,
}

impl<S: Deref<Target = Core>, T: Deref<Target = Tree>> Separator<S, T> {
    pub fn new(core: S, tree: T, inputs: ValueInputs) -> Separator<S, T> {
        let from = tree.options().value_separation_bytes;
        Separator {
            core,
            tree,
            inputs,
            from,
            open: None,
            written: Vec::new(),
        }
    }

    /// Returns the row to store instead of this one, if its value goes into a value file of this
    /// compaction.
    pub fn replace(
        &mut self,
        kind: ValueKind,
        stored: &[u8],
    ) -> Result<Option<(ValueKind, Vec<u8>)>> {
        let Some(separated) = kind.separated() else {
            return Ok(None);
        };
        let rest_bytes = if self.tree.stores_expiry {
            EXPIRY_BYTES
        } else {
            0
        };
        if kind.is_pointer() {
            let moves = Pointer::decode(stored).is_some_and(|(p, _)| self.is_victim(p.file));
            if !moves {
                return Ok(None);
            }
            let path = self.core.files.path("value files");
            let value = resolve(&self.inputs.files, stored, &path)?;
            return self.write(separated, &value, rest_bytes).map(Some);
        }
        if self
            .from
            .is_none_or(|from| stored.len().saturating_sub(rest_bytes) < from)
        {
            return Ok(None);
        }
        self.write(separated, stored, rest_bytes).map(Some)
    }

    /// Returns the memory that the open file takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.open
            .as_ref()
            .map_or(0, |(open, _)| open.memory_bytes())
    }

    fn is_victim(&self, file: ValueFileId) -> bool {
        self.inputs.victims.contains(&file)
    }

    /// Returns the target of a row of a pointer kind, given as stored.
    pub fn points_to(&self, stored: &[u8]) -> Result<PointsTo> {
        let unknown = || {
            let message = "a compaction found a pointer to a value file that no input lists";
            Error::Internal(message.into())
        };
        let (pointer, _) = Pointer::decode(stored).ok_or_else(unknown)?;
        let known = self.inputs.files.get(&pointer.file).map(|f| f.uid());
        let own = self.open.as_ref().map(|(_, uid)| *uid);
        let is_own = self.written.last() == Some(&pointer.file);
        let uid = known.or(own.filter(|_| is_own)).ok_or_else(unknown)?;
        Ok(PointsTo {
            file: pointer.file,
            uid,
            stored_bytes: u64::from(pointer.stored_bytes),
        })
    }

    /// Writes a value. Its last `rest_bytes` belong to the row and stay there, after the pointer.
    fn write(
        &mut self,
        kind: ValueKind,
        stored: &[u8],
        rest_bytes: usize,
    ) -> Result<(ValueKind, Vec<u8>)> {
        let (value, rest) = stored.split_at(stored.len().saturating_sub(rest_bytes));
        let full = |(writer, _): &(ValueWriter, u64)| writer.stored_bytes() >= VALUE_FILE_BYTES;
        if self.open.as_ref().is_some_and(full) {
            self.finish_file()?;
        }
        let (writer, uid) = match self.open.take() {
            Some(open) => open,
            None => self.create()?,
        };
        let (writer, _) = self.open.insert((writer, uid));
        let pointer = writer.add(value)?;
        let mut row = Vec::with_capacity(32);
        pointer.encode(&mut row);
        row.extend_from_slice(rest);
        Ok((kind, row))
    }

    fn create(&mut self) -> Result<(ValueWriter, u64)> {
        let id = ValueFileId(self.core.files.next_table_id().0);
        let uid = crate::version::random_uid();
        let path = self.core.files.path(id.to_string());
        let file = self.core.files.create(&path)?;
        self.written.push(id);
        // Values are written once, like the last level.
        let codec = table_options(&self.tree.options(), true).codec;
        let writer = ValueWriter::new(file, id, uid, self.tree.id, codec);
        Ok((writer, uid))
    }

    fn finish_file(&mut self) -> Result<()> {
        if let Some((writer, _)) = self.open.take() {
            let file = writer.finish(&self.core.files.open_files)?;
            let written = &self.core.metrics.table_bytes_written;
            written.add(file.file_bytes());
            self.inputs.files.insert(file.id(), file);
        }
        Ok(())
    }

    /// Finishes the open file and returns every file that outputs may point into.
    pub fn finish(&mut self) -> Result<&ValueFiles> {
        self.finish_file()?;
        Ok(&self.inputs.files)
    }

    /// Returns the files that this compaction wrote.
    pub fn written(&self) -> &[ValueFileId] {
        &self.written
    }

    /// Hands the written files over: they are no longer removed on failure.
    pub fn keep(&mut self) {
        self.written.clear();
    }

    /// Returns the paths of the files that this compaction wrote and did not hand over, for a
    /// compaction that failed.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let path = |id: &ValueFileId| self.core.files.path(id.to_string());
        self.written.iter().map(path)
    }
}
