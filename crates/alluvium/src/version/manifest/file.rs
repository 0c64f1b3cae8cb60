//! Bytes of a manifest file, and the file that edits are appended to.

use std::path::Path;
use std::sync::Arc;

use crate::base::checksum::checksum;
use crate::base::coding::Decoder;
use crate::error::{Error, Result};
use crate::version::current::{FORMAT_VERSION, file_name, newer, switch_current, sync_dir};
use crate::version::state::ManifestState;
use crate::vfs::{Vfs, VfsFile};
use crate::wal::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes, seal};
use crate::wal::{PAYLOAD_BYTES_MAX, hard_io};

/// On disk; never changes.
const MAGIC: [u8; 8] = *b"alluvman";

/// Bytes before the first frame. On disk; never changes.
pub(super) const HEADER_BYTES: u64 = 48;

/// Bytes that the header's checksum covers. On disk; never changes, also in later versions.
const COVERED_BYTES: usize = 40;

/// Frame kinds. On disk; they never change.
pub(super) const KIND_EDIT: u8 = 1;
/// Frame without an edit: it only carries the durable mark that every frame has.
pub(super) const KIND_MARK: u8 = 2;

/// Unit of allocation. The file is allocated ahead, so that a full device is noticed before an edit
/// is half written. A length that is not a multiple of it means that the file has lost its end.
pub(super) const ALLOCATION_UNIT_BYTES: u64 = 64 << 10;

/// File that edits are appended to.
#[derive(Debug)]
pub(super) struct EditLog {
    pub number: u64,
    pub file: Arc<dyn VfsFile>,
    file_uid: u64,
    allocated_bytes: u64,
    pub end: u64,
    chain: u64,
    durable: u64,
}

impl EditLog {
    /// Creates a manifest that holds `state`, and switches `CURRENT` to it. Durable on return.
    pub fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        uid: u64,
        number: u64,
        state: &ManifestState,
    ) -> Result<EditLog> {
        let path = dir.join(file_name(number));
        let result = EditLog::prepare(vfs, dir, uid, number, state).and_then(|log| {
            switch_current(vfs, dir, number)?;
            Ok(log)
        });
        if result.as_ref().is_err_and(Error::may_be_retried) {
            // Not named by CURRENT yet. A leftover does no harm.
            let _ = vfs.remove(&path);
        }
        result
    }

    /// Creates a manifest that holds `state`, durable on return but not yet in force.
    fn prepare(
        vfs: &dyn Vfs,
        dir: &Path,
        uid: u64,
        number: u64,
        state: &ManifestState,
    ) -> Result<EditLog> {
        let path = dir.join(file_name(number));
        let payload = state.to_edit().encode();
        let frame = frame_bytes(checked_len(&payload, &path)?) as u64;
        let file = vfs
            .create(&path)
            .map_err(|error| Error::io("create", &path, error))?;
        let mut log = EditLog {
            number,
            file,
            file_uid: file_uid(uid, number),
            allocated_bytes: 0,
            end: HEADER_BYTES,
            chain: 0,
            durable: 0,
        };
        log.reserve(frame)?;
        let (header, sum) = encode_header(uid, number);
        log.chain = sum;
        log.file
            .write_at(&header, 0)
            .map_err(|error| hard_io("write the header of", &path, error))?;
        log.append(KIND_EDIT, &payload)?;
        log.sync()?;
        sync_dir(vfs, dir)?;
        Ok(log)
    }

    /// Reserves room for a frame of this length and the mark after it.
    pub fn reserve(&mut self, frame_len: u64) -> Result<()> {
        let needed =
            (self.end + frame_len + frame_bytes(0) as u64).next_multiple_of(ALLOCATION_UNIT_BYTES);
        if needed > self.allocated_bytes {
            self.file
                .allocate(needed)
                .map_err(|error| Error::io("allocate", self.file.path(), error))?;
            self.allocated_bytes = needed;
        }
        Ok(())
    }

    pub fn append(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let mut frame = vec![0; frame_bytes(payload.len())];
        frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind,
            seqno: 0,
            chain: self.chain,
            durable: self.durable,
        };
        let sum = seal(&mut frame, header, self.file_uid, self.end);
        self.file
            .write_at(&frame, self.end)
            .map_err(|error| hard_io("write an edit to", self.file.path(), error))?;
        self.chain = sum;
        self.end += frame.len() as u64;
        Ok(())
    }

    pub fn sync(&mut self) -> Result<()> {
        self.file
            .sync()
            .map_err(|error| hard_io("sync", self.file.path(), error))?;
        self.durable = self.end;
        Ok(())
    }
}

pub(super) fn checked_len(payload: &[u8], path: &Path) -> Result<usize> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        let message = format!("an edit of {} is too large", path.display());
        return Err(Error::Internal(message));
    }
    Ok(payload.len())
}

/// Returns the seed of the checksums of a manifest's frames, used together with their offset.
pub(super) fn file_uid(uid: u64, number: u64) -> u64 {
    checksum(&number.to_le_bytes(), uid)
}

/// Returns the header's bytes and its checksum, with which the chain of the file's frames starts.
fn encode_header(uid: u64, number: u64) -> (Vec<u8>, u64) {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    // Features that a reader must know, features that it may ignore, and room.
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&uid.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    debug_assert_eq!(out.len(), COVERED_BYTES);
    let sum = checksum(&out, number);
    out.extend_from_slice(&sum.to_le_bytes());
    (out, sum)
}

/// Returns the uid in a header, and the header's checksum.
pub(super) fn decode_header(bytes: &[u8], number: u64, path: &Path) -> Result<(u64, u64)> {
    let mut d = Decoder::new(bytes);
    let fields = (|| {
        let magic = d.take(8)?;
        let (version, must_know) = (d.u32()?, d.u32()?);
        let _may_ignore_and_room = d.u64()?;
        let (uid, stored_number, sum) = (d.u64()?, d.u64()?, d.u64()?);
        let valid = magic == MAGIC && stored_number == number;
        let intact = checksum(bytes.get(..COVERED_BYTES)?, number) == sum;
        (valid && intact).then_some((version, must_know, uid, sum))
    })();
    let Some((version, must_know, uid, sum)) = fields else {
        let what = "header of the manifest";
        return Err(Error::corruption(
            path,
            0,
            what,
            "a valid header",
            "other bytes",
        ));
    };
    if version > FORMAT_VERSION || must_know != 0 {
        return Err(newer(path, version.max(FORMAT_VERSION + 1)));
    }
    Ok((uid, sum))
}
