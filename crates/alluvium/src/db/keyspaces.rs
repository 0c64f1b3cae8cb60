//! Keyspaces of a database: creation, lookup, change of options, and drop.
//!
//! A change writes a marker into the log, between the commits before and after it, and then an edit
//! of the manifest.

use std::sync::Arc;

use super::Database;
use crate::base::{KEYSPACE_NAME_BYTES_MAX, KeyspaceId, SeqNo};
use crate::commit::Log;
use crate::commit::marker::{DdlAction, ddl_marker};
use crate::db::ballast::Taker;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, KeyspaceOptions, Tree};
use crate::sync::collections::HashSet;
use crate::version::group::Version;
use crate::version::{KeyspaceRecord, VersionEdit};

impl Database {
    /// Returns the keyspace of this name, and creates it with `options` if there is none. The
    /// options of an existing keyspace stay.
    ///
    /// A new keyspace is durable when the call returns, at every durability level. Creating it
    /// costs a sync of the log and one of the manifest, and commits wait for them;
    /// [`Database::keyspaces`] creates many for the same cost. For an existing keyspace the call
    /// costs one map lookup.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for options out of range, even if the keyspace exists; for a name of more
    /// than [`KEYSPACE_NAME_BYTES_MAX`] bytes; and if 2^32 - 2 keyspaces were created before.
    /// `ReadOnly` if it would have to be created. `NoSpace` if nothing changed. `Poisoned`,
    /// `Closed`, `Io`.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.shared().core.access.check_open()?;
        options.check()?;
        match self.existing_keyspace(name)? {
            Some(keyspace) => Ok(keyspace),
            None => self.created_keyspace(name, options),
        }
    }

    fn created_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let mut keyspaces = self.keyspaces(&[(name, options)])?;
        Ok(keyspaces.swap_remove(0))
    }

    /// Returns the keyspaces of these names, in this order.
    ///
    /// Missing keyspaces are created with their options: all of them or, after an error, none. The
    /// options of existing keyspaces stay. If a name is given twice, its first options count.
    ///
    /// Creating any number of keyspaces costs one sync of the log and one of the manifest, the same
    /// as creating one. Durability and errors as for [`Database::keyspace`].
    pub fn keyspaces<N: AsRef<str>>(
        &self,
        wanted: &[(N, KeyspaceOptions)],
    ) -> Result<Vec<Keyspace>> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        for (name, options) in wanted {
            options.check()?;
            check_name(name.as_ref())?;
        }
        if let Some(keyspaces) = self.all_existing(wanted) {
            return Ok(keyspaces);
        }
        shared.core.access.check_writable()?;
        let mut log = shared.commits.log.lock();
        // Another thread may have created some while this one waited.
        let missing = self.missing(wanted);
        if !missing.is_empty() {
            create(shared, &mut log, &missing)?;
        }
        // Under the log's mutex no keyspace is dropped meanwhile.
        let keyspaces = self.all_existing(wanted);
        drop(log);
        keyspaces.ok_or(Error::Closed)
    }

    /// Returns the keyspaces of these names, if all of them exist.
    fn all_existing<N: AsRef<str>>(
        &self,
        wanted: &[(N, KeyspaceOptions)],
    ) -> Option<Vec<Keyspace>> {
        let catalog = self.shared().core.catalog.read();
        let keyspace = |(name, _): &(N, KeyspaceOptions)| {
            let tree = catalog.get(name.as_ref())?;
            Some(Keyspace::new(self.clone(), Arc::clone(tree)))
        };
        wanted.iter().map(keyspace).collect()
    }

    /// Returns the names without a keyspace, each once, with their options.
    fn missing<'a, N: AsRef<str>>(
        &self,
        wanted: &'a [(N, KeyspaceOptions)],
    ) -> Vec<(&'a str, &'a KeyspaceOptions)> {
        let catalog = self.shared().core.catalog.read();
        let mut seen = HashSet::default();
        let all = wanted
            .iter()
            .map(|(name, options)| (name.as_ref(), options));
        all.filter(|(name, _)| !catalog.contains_key(*name) && seen.insert(*name))
            .collect()
    }

    /// Returns the keyspace of this name, if there is one. Fails only with `Closed`.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.shared().core.access.check_open()?;
        let tree = self.shared().core.catalog.read().get(name).cloned();
        Ok(tree.map(|tree| Keyspace::new(self.clone(), tree)))
    }

    /// Returns the names of all keyspaces, sorted. Fails only with `Closed`.
    pub fn keyspace_names(&self) -> Result<Vec<String>> {
        self.shared().core.access.check_open()?;
        let mut names: Vec<String> = self.shared().core.catalog.read().keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    /// Drops a keyspace with everything in it.
    ///
    /// Durable when the call returns. Its disk space is freed as soon as the calls in progress have
    /// ended. From now on its handles and open cursors return `KeyspaceDropped`.
    ///
    /// # Errors
    ///
    /// `KeyspaceInUse` while a prepared transaction writes to it. `KeyspaceDropped` if it is
    /// already dropped. `InvalidArgument` for a keyspace of another database. `NoSpace` if nothing
    /// changed. Otherwise as for a write.
    pub fn drop_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        let shared = self.shared();
        shared.core.access.check_writable()?;
        keyspace.check_within(self)?;
        let tree = keyspace.tree();
        let _no_capture = shared.drops.lock();
        let mut log = shared.commits.log.lock();
        if tree.is_dropped() {
            return Err(Error::KeyspaceDropped(tree.name.clone()));
        }
        if let Some(prepared) = log.unresolved.writer_of(tree.id) {
            return Err(Error::KeyspaceInUse {
                keyspace: tree.name.clone(),
                xid: prepared.xid.clone(),
            });
        }
        if shared.core.options.durability == Durability::None {
            // Without a log, the drop is durable at once and must not overtake earlier commits.
            shared.flushes.wait_after_failure()?;
            log.seal(&shared.commits.env)?;
            shared.flushes.wait()?;
        }
        let options = tree.options().encode();
        let marker = ddl_marker(DdlAction::Drop, tree.id, &tree.name, &options);
        let seqno = log.mark_ddl(&shared.commits.env, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            dropped: vec![(tree.id, seqno)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        shared
            .ballast
            .run(Taker::Log, || store.append(&shared.core.poison, &edit))?;
        tree.mark_dropped();
        log.trees.remove(&tree.id);
        shared.core.catalog.write().remove(&tree.name);
        store.release_unnamed(&shared.core);
        // Remaining handles keep an empty tree, so its files can be removed.
        tree.change(|state| {
            state.active = None;
            state.sealed.clear();
            state.version = Arc::new(Version::empty());
        });
        drop((store, log));
        shared.core.release_cursors(tree);
        // After the cursors, so that the files they held are removed too.
        shared.core.files.removals.wait();
        Ok(())
    }

    /// Changes the options, see [`Keyspace::set_options`].
    pub(crate) fn change_options(&self, tree: &Tree, options: KeyspaceOptions) -> Result<()> {
        options.check()?;
        let shared = self.shared();
        shared.core.access.check_writable()?;
        if options.expiry.is_stored() != tree.stores_expiry {
            let message = "whether rows of a keyspace expire is chosen at its creation";
            return Err(Error::InvalidArgument(message.into()));
        }
        let mut log = shared.commits.log.lock();
        tree.check()?;
        let encoded = options.encode();
        let marker = ddl_marker(DdlAction::SetOptions, tree.id, &tree.name, &encoded);
        let seqno = log.mark_ddl(&shared.commits.env, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            options_changed: vec![(tree.id, encoded)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        store.append(&shared.core.poison, &edit)?;
        tree.set_options(options);
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > KEYSPACE_NAME_BYTES_MAX {
        return Err(Error::InvalidArgument(format!(
            "the name of the keyspace has {} bytes, the most is {KEYSPACE_NAME_BYTES_MAX}",
            name.len()
        )));
    }
    Ok(())
}

/// Creates keyspaces that do not exist yet: one log marker for each, one manifest edit for all.
fn create(shared: &Shared, log: &mut Log, missing: &[(&str, &KeyspaceOptions)]) -> Result<()> {
    let mut store = shared.store.lock();
    let first = store.state().next_keyspace;
    let count = u32::try_from(missing.len()).ok();
    let next = count.and_then(|count| first.0.checked_add(count));
    let next = next.ok_or_else(|| {
        let message = "2^32 - 2 keyspaces were created in this database, and their numbers are not used \
                       again: load what it has into a new one";
        Error::InvalidArgument(message.into())
    })?;
    let ids = (first.0..next).map(KeyspaceId);
    let mut created: Vec<KeyspaceRecord> = ids
        .zip(missing)
        .map(|(id, (name, options))| KeyspaceRecord {
            id,
            name: (*name).to_owned(),
            options: options.encode(),
            created_seqno: 0,
        })
        .collect();
    let marker = |r: &KeyspaceRecord| ddl_marker(DdlAction::Create, r.id, &r.name, &r.options);
    let markers: Vec<Vec<u8>> = created.iter().map(marker).collect();
    let payloads: Vec<&[u8]> = markers.iter().map(Vec::as_slice).collect();
    let last_seqno = log.mark_ddls(&shared.commits.env, &payloads)?;
    for (record, back) in created.iter_mut().zip((0..missing.len() as SeqNo).rev()) {
        record.created_seqno = last_seqno - back;
    }
    let trees: Vec<_> = created
        .iter()
        .zip(missing)
        .map(|(record, (name, options))| {
            let options = KeyspaceOptions::clone(options);
            new_tree(shared, record.id, name, options)
        })
        .collect();
    let edit = VersionEdit {
        next_keyspace: Some(KeyspaceId(next)),
        created,
        last_seqno: Some(last_seqno),
        ..VersionEdit::default()
    };
    store.append(&shared.core.poison, &edit)?;
    if trees.iter().any(|tree| tree.stores_expiry) {
        shared.core.clock.use_it();
    }
    let mut catalog = shared.core.catalog.write();
    for tree in trees {
        log.trees.insert(tree.id, Arc::clone(&tree));
        catalog.insert(tree.name.clone(), tree);
    }
    Ok(())
}

fn new_tree(shared: &Shared, id: KeyspaceId, name: &str, options: KeyspaceOptions) -> Arc<Tree> {
    let memtable_bytes = shared.core.plan().active_bytes;
    let version = Version::empty();
    let tree = Tree::new(
        id,
        name,
        options,
        version,
        memtable_bytes,
        &shared.core.memory.budget,
    );
    Arc::new(tree)
}
