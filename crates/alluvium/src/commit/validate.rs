//! Validation of a commit: no row that its transaction read has been written since.
//!
//! Check and commit must be one step for all other commits. Otherwise two transactions, each
//! reading rows that the other writes, could both pass. A range may hold many entries and its
//! blocks may not be in memory, so most of the work is done before. First the committing thread
//! searches, without any lock, for entries above its snapshot. It notes the newest commit `v`
//! visible before the search: all commits up to `v` are then checked. The leader, under the log's
//! mutex and before it numbers the commit, checks the rest: the commits above `v`, and the commits
//! before this one in its group. It takes them from [`RecentWrites`], so it compares some recently
//! written keys with the read set and touches neither memtable nor block.
//!
//! `RecentWrites` is kept only while a validation is under way, and is bounded. It records from
//! which commit on it is complete. If it does not reach back to `v`, the committing thread checks
//! again. After a few such rounds the leader does the whole check itself, and may then read a block
//! under the log's mutex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::base::{SeqNo, ValueKind};
use crate::commit::payload::Ops;
use crate::error::{Error, Result};
use crate::read_points::ReadPoints;
use crate::txn::read_set::{End, TreeReads};

/// Bytes of payload kept for validations under way.
const RECENT_BYTES_MAX: usize = 4 << 20;
/// Number of checks by the committing thread before the leader does the whole check.
const LOOKS_MAX: u32 = 4;

/// Commit whose writes other commits are validated against.
pub(crate) trait Writes {
    /// Returns the operations that the commit applies.
    fn ops(&self) -> &[u8];
}

/// Reads that one commit depends on.
pub(crate) struct Validation {
    reads: Vec<TreeReads>,
    /// No commit up to this one has written a row that was read. The committing thread stores it
    /// while the request is not queued; the queue's mutex orders the store before the leader's
    /// load.
    checked: AtomicU64,
    /// Number of checks done by the committing thread. Ordered like `checked`.
    looks: AtomicU32,
}

/// Counter of validations under way. Only a hint for the leader to keep recent commits: the leader
/// records which commits are missing.
#[derive(Default)]
pub(crate) struct Validating(AtomicUsize);

/// Guard that makes the leader keep recent commits until it is dropped.
pub(crate) struct Watch<'a>(&'a Validating);

impl Validating {
    /// Asks the leader to keep recent commits.
    pub fn watch(&self) -> Watch<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Watch(self)
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Validation {
    /// Creates a check that no commit has written `reads` since `snapshot`.
    pub fn new(reads: Vec<TreeReads>, snapshot: SeqNo) -> Validation {
        Validation {
            reads,
            checked: AtomicU64::new(snapshot),
            looks: AtomicU32::new(0),
        }
    }

    /// Does the committing thread's part of the check, without any lock. May read blocks.
    ///
    /// # Errors
    ///
    /// `Conflict`; `KeyspaceDropped` if a keyspace that was read is gone; errors of reading a
    /// block.
    pub fn look(&self, read_points: &ReadPoints) -> Result<()> {
        // Loaded before the tree states, so that they contain everything visible now.
        let visible = read_points.visible();
        self.check_trees()?;
        self.checked.store(visible, Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Searches memtables and tables of the keyspaces for entries above `checked`.
    fn check_trees(&self) -> Result<()> {
        let since = self.checked.load(Ordering::Relaxed);
        for TreeReads { tree, ranges } in &self.reads {
            let state = tree.load_full();
            // Checked after loading, so the state is not the empty state of a dropped keyspace.
            tree.check()?;
            for (start, end) in ranges.iter() {
                let written = match end {
                    End::Key => state.written_after(start, since)?.map(|_| start.to_vec()),
                    End::Before(end) => state.range_written_after(start, Some(end), since)?,
                    End::Unbounded => state.range_written_after(start, None, since)?,
                };
                if let Some(key) = written {
                    return Err(conflict(&tree.name, key));
                }
            }
        }
        Ok(())
    }

    /// Does the leader's part of the check, under the log's mutex. `recent` holds the applied
    /// commits, `newest` is the last sequence number assigned, and `group` holds the commits before
    /// this one in its group. `Ok(false)`: the committing thread must check again.
    pub fn validate<W: Writes>(
        &self,
        recent: &RecentWrites<W>,
        newest: SeqNo,
        group: &[Arc<W>],
    ) -> Result<bool> {
        match recent.since(self.checked.load(Ordering::Relaxed), newest) {
            Some(mut commits) => commits.try_for_each(|commit| self.check_commit(commit))?,
            None if self.looks.load(Ordering::Relaxed) < LOOKS_MAX => return Ok(false),
            None => self.check_trees()?,
        }
        group
            .iter()
            .try_for_each(|commit| self.check_commit(&**commit))?;
        Ok(true)
    }

    fn check_commit(&self, commit: &impl Writes) -> Result<()> {
        // A payload that does not decode poisons the database when it is applied.
        for op in Ops::new(commit.ops()).map_while(Result::ok) {
            let Some(reads) = self.reads.iter().find(|r| r.tree.id == op.keyspace) else {
                continue;
            };
            let written = match op.kind {
                ValueKind::RangeDelete => reads.ranges.intersects(op.key, op.value),
                _ => reads.ranges.contains(op.key),
            };
            if written {
                return Err(conflict(&reads.tree.name, op.key.to_vec()));
            }
        }
        Ok(())
    }
}

fn conflict(keyspace: &str, key: Vec<u8>) -> Error {
    Error::Conflict {
        keyspace: keyspace.to_owned(),
        key,
    }
}

/// Newest commits, oldest first, kept while a validation is under way.
pub(crate) struct RecentWrites<W> {
    /// The sequence numbers above `after`, up to `through`, are all in `commits`.
    after: SeqNo,
    through: SeqNo,
    commits: VecDeque<(SeqNo, Arc<W>)>,
    bytes: usize,
}

impl<W> Default for RecentWrites<W> {
    fn default() -> RecentWrites<W> {
        RecentWrites {
            after: 0,
            through: 0,
            commits: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<W: Writes> RecentWrites<W> {
    /// Adds a commit that was applied. If no validation is under way, records only its sequence
    /// number.
    pub fn applied(&mut self, validating: &Validating, seqno: SeqNo, commit: &Arc<W>) {
        // Numbers taken by anything but a commit, such as a keyspace change, are missing here.
        let gap = seqno != self.through + 1;
        self.through = seqno;
        if gap || !validating.any() {
            self.commits.clear();
            (self.bytes, self.after) = (0, seqno);
            return;
        }
        self.bytes += commit.ops().len();
        self.commits.push_back((seqno, Arc::clone(commit)));
        while self.bytes > RECENT_BYTES_MAX
            && let Some((seqno, oldest)) = self.commits.pop_front()
        {
            self.bytes -= oldest.ops().len();
            self.after = seqno;
        }
    }

    /// Returns the commits above `seqno` up to `newest`, the last number assigned; `None` if some
    /// of them are missing.
    fn since(&self, seqno: SeqNo, newest: SeqNo) -> Option<impl Iterator<Item = &W>> {
        let complete = seqno >= newest || (seqno >= self.after && newest == self.through);
        let newer = self.commits.iter().filter(move |(own, _)| *own > seqno);
        complete.then(|| newer.map(|(_, commit)| &**commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::KeyspaceId;
    use crate::commit::payload::{Op, encode_op};
    use crate::db::Database;
    use crate::db::options::Options;
    use crate::keyspace::{Keyspace, KeyspaceOptions};
    use crate::txn::Isolation;
    use crate::txn::read_set::KeyRanges;
    use crate::vfs::MemVfs;

    impl Writes for Vec<u8> {
        fn ops(&self) -> &[u8] {
            self
        }
    }

    type Recent = RecentWrites<Vec<u8>>;

    fn commit(keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Arc<Vec<u8>> {
        let mut payload = Vec::new();
        let kind = ValueKind::Put;
        let op = Op {
            kind,
            keyspace,
            key,
            value,
        };
        encode_op(&mut payload, &op);
        Arc::new(payload)
    }

    /// Returns the number of known commits above `since`; `None` if some are missing.
    fn known(recent: &Recent, since: SeqNo) -> Option<usize> {
        recent.since(since, recent.through).map(Iterator::count)
    }

    #[test]
    fn recent_commits_know_from_where_on_they_are_complete() {
        let (mut recent, validating) = (Recent::default(), Validating::default());
        let commit = commit(KeyspaceId(1), b"k", b"v");
        recent.applied(&validating, 7, &commit);
        assert_eq!((known(&recent, 6), known(&recent, 7)), (None, Some(0)));
        let watch = validating.watch();
        (8..=10).for_each(|seqno| recent.applied(&validating, seqno, &commit));
        assert_eq!((known(&recent, 7), known(&recent, 9)), (Some(3), Some(1)));
        assert_eq!(known(&recent, 6), None);
        let large = self::commit(KeyspaceId(1), b"k", &vec![0; RECENT_BYTES_MAX - 10]);
        recent.applied(&validating, 11, &large);
        assert_eq!((known(&recent, 8), known(&recent, 10)), (None, Some(1)));
        drop(watch);
        recent.applied(&validating, 12, &commit);
        assert_eq!((known(&recent, 11), known(&recent, 12)), (None, Some(0)));
    }

    #[test]
    fn numbers_that_something_else_took_are_not_known() {
        let (mut recent, validating) = (Recent::default(), Validating::default());
        let commit = commit(KeyspaceId(1), b"k", b"v");
        let _watch = validating.watch();
        (1..=3).for_each(|seqno| recent.applied(&validating, seqno, &commit));
        assert_eq!(recent.since(2, 3).map(Iterator::count), Some(1));
        assert!(recent.since(3, 4).is_none() && recent.since(4, 4).is_some());
        recent.applied(&validating, 5, &commit);
        assert_eq!((known(&recent, 3), known(&recent, 5)), (None, Some(0)));
    }

    fn keyspace() -> Keyspace {
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", Options::default());
        let opened = db.and_then(|db| db.keyspace("k", KeyspaceOptions::default()));
        opened.expect("open")
    }

    fn validation(keyspace: &Keyspace, key: &[u8]) -> Validation {
        let mut ranges = KeyRanges::default();
        ranges.add_key(key);
        let tree = Arc::clone(keyspace.tree());
        let snapshot = keyspace.db().visible_seqno();
        Validation::new(vec![TreeReads { tree, ranges }], snapshot)
    }

    #[test]
    fn the_leader_sends_back_what_it_cannot_see_until_it_looks_itself() {
        let keyspace = keyspace();
        let (changed, kept) = (validation(&keyspace, b"a"), validation(&keyspace, b"b"));
        keyspace.put(b"a", b"1").expect("put");
        let recent = Recent::default();
        let newest = keyspace.db().visible_seqno();
        assert!(!changed.validate(&recent, newest, &[]).expect("not decided"));
        changed.looks.store(LOOKS_MAX, Ordering::Relaxed);
        kept.looks.store(LOOKS_MAX, Ordering::Relaxed);
        let refused = changed.validate(&recent, newest, &[]);
        assert!(
            matches!(refused, Err(Error::Conflict { .. })),
            "{refused:?}"
        );
        assert!(
            kept.validate(&recent, newest, &[])
                .expect("nothing was written")
        );
    }

    #[test]
    fn commits_since_the_look_and_before_it_in_the_group_are_seen() {
        let keyspace = keyspace();
        let own = validation(&keyspace, b"a");
        own.look(&keyspace.db().shared().core.read_points)
            .expect("nothing was written");
        let (other, same) = (
            commit(keyspace.id(), b"b", b"1"),
            commit(keyspace.id(), b"a", b"1"),
        );
        let mut recent = Recent::default();
        let newest = keyspace.db().visible_seqno();
        let group = [Arc::clone(&other)];
        let unaffected = own.validate(&recent, newest, &group);
        assert!(unaffected.expect("another key"));
        let group = [other, Arc::clone(&same)];
        assert!(own.validate(&recent, newest, &group).is_err());
        let validating = Validating::default();
        let _watch = validating.watch();
        (recent.after, recent.through) = (newest, newest);
        recent.applied(&validating, newest + 1, &same);
        assert!(own.validate(&recent, newest + 1, &[]).is_err());
    }

    #[test]
    fn of_two_in_one_group_that_read_what_the_other_writes_one_is_refused() {
        let keyspace = keyspace();
        let db = keyspace.db();
        // This put starts a gapless sequence of recent commits, so that neither commit is sent
        // back.
        keyspace.put(b"first", b"1").expect("put");
        let [one, two] = [(b"a", b"b"), (b"b", b"a")].map(|(read, written)| {
            let txn = db.begin(Isolation::Serializable).expect("begin");
            assert!(txn.get(&keyspace, read).expect("get").is_none());
            txn.put(&keyspace, written, b"1").expect("put");
            txn
        });
        let results = std::thread::scope(|scope| {
            // The first commit leads a group of its own and waits for the log.
            let log = db.shared().commits.log.lock();
            scope.spawn(|| keyspace.put(b"other", b"1").expect("put"));
            wait_until(|| db.shared().commits.queue.leads_alone());
            let clients = [one, two].map(|txn| scope.spawn(|| txn.commit()));
            wait_until(|| db.shared().commits.queue.waiting() == 2);
            drop(log);
            clients.map(|client| client.join().expect("join"))
        });
        let committed = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(committed, 1, "{results:?}");
    }

    fn wait_until(reached: impl Fn() -> bool) {
        while !reached() {
            std::thread::yield_now();
        }
    }
}
