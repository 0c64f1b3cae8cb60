//! The keyspaces of a database: made, found, changed and dropped.
//!
//! A change is a marker in the log, between the commits before and after it, and an edit of the manifest.

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
    /// The keyspace of this name, created with `options` if there is none. The options of one that exists stay.
    ///
    /// Creating is durable when the call returns, at every durability level. It costs a sync of the log and one of the
    /// manifest, for which commits wait; to create many, [`Database::keyspaces`] costs no more. Taking a handle of one that
    /// exists costs a look into a map.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for options out of range, also where the keyspace exists, and for a name of more than
    /// [`KEYSPACE_NAME_BYTES_MAX`] bytes, and where 2^32 - 2 keyspaces were created before; `ReadOnly` where it would have to be
    /// created; `NoSpace` where nothing changed; `Poisoned`, `Closed`, `Io`.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.shared().check_open()?;
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

    /// The keyspaces of these names, in this order. Those that do not exist are created with their options, all of them or,
    /// after an error, none; the options of those that exist stay. Of a name that is given twice the first options count.
    ///
    /// Creating any number of keyspaces costs one sync of the log and one of the manifest, as creating one does. Durability
    /// and errors as [`Database::keyspace`].
    pub fn keyspaces<N: AsRef<str>>(
        &self,
        wanted: &[(N, KeyspaceOptions)],
    ) -> Result<Vec<Keyspace>> {
        let shared = self.shared();
        shared.check_open()?;
        for (name, options) in wanted {
            options.check()?;
            check_name(name.as_ref())?;
        }
        if let Some(keyspaces) = self.all_existing(wanted) {
            return Ok(keyspaces);
        }
        shared.check_writable()?;
        let mut log = shared.log.lock();
        // Another thread may have created some while this one waited.
        let missing = self.missing(wanted);
        if !missing.is_empty() {
            create(shared, &mut log, &missing)?;
        }
        // Under the log's mutex: nothing is dropped meanwhile.
        let keyspaces = self.all_existing(wanted);
        drop(log);
        keyspaces.ok_or(Error::Closed)
    }

    /// The keyspaces of these names, if all of them exist.
    fn all_existing<N: AsRef<str>>(
        &self,
        wanted: &[(N, KeyspaceOptions)],
    ) -> Option<Vec<Keyspace>> {
        let catalog = self.shared().catalog.read();
        let keyspace = |(name, _): &(N, KeyspaceOptions)| {
            let tree = catalog.get(name.as_ref())?;
            Some(Keyspace::new(self.clone(), Arc::clone(tree)))
        };
        wanted.iter().map(keyspace).collect()
    }

    /// Those that do not exist, each name once.
    fn missing<'a, N: AsRef<str>>(
        &self,
        wanted: &'a [(N, KeyspaceOptions)],
    ) -> Vec<(&'a str, &'a KeyspaceOptions)> {
        let catalog = self.shared().catalog.read();
        let mut seen = HashSet::default();
        let all = wanted
            .iter()
            .map(|(name, options)| (name.as_ref(), options));
        all.filter(|(name, _)| !catalog.contains_key(*name) && seen.insert(*name))
            .collect()
    }

    /// The keyspace of this name, if there is one. Fails only with `Closed`.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.shared().check_open()?;
        let tree = self.shared().catalog.read().get(name).cloned();
        Ok(tree.map(|tree| Keyspace::new(self.clone(), tree)))
    }

    /// The names of all keyspaces, sorted. Fails only with `Closed`.
    pub fn keyspace_names(&self) -> Result<Vec<String>> {
        self.shared().check_open()?;
        let mut names: Vec<String> = self.shared().catalog.read().keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    /// Drops a keyspace with everything in it. Durable when the call returns. Its space comes back as soon as
    /// calls that are under way have ended; its handles and open cursors get `KeyspaceDropped` from now on.
    ///
    /// # Errors
    ///
    /// `KeyspaceInUse` while a prepared transaction writes to it; `KeyspaceDropped` if it is gone already;
    /// `InvalidArgument` for a keyspace of another database; `NoSpace` where nothing changed; otherwise as for a write.
    pub fn drop_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        let shared = self.shared();
        shared.check_writable()?;
        keyspace.check_within(self)?;
        let tree = keyspace.tree();
        let _no_capture = shared.drops.lock();
        let mut log = shared.log.lock();
        if tree.is_dropped() {
            return Err(Error::KeyspaceDropped(tree.name.clone()));
        }
        if let Some(prepared) = log.unresolved.writer_of(tree.id) {
            return Err(Error::KeyspaceInUse {
                keyspace: tree.name.clone(),
                xid: prepared.xid.clone(),
            });
        }
        if shared.options.durability == Durability::None {
            // Without a log the drop, which is durable at once, must not overtake commits before it.
            shared.wait_for_flushes_after_failure()?;
            log.seal(shared)?;
            shared.wait_for_flushes()?;
        }
        let options = tree.options().encode();
        let marker = ddl_marker(DdlAction::Drop, tree.id, &tree.name, &options);
        let seqno = log.mark_ddl(shared, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            dropped: vec![(tree.id, seqno)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        shared.with_ballast(Taker::Log, || store.append(&shared.poison, &edit))?;
        tree.mark_dropped();
        log.trees.remove(&tree.id);
        shared.catalog.write().remove(&tree.name);
        store.release_unnamed(shared);
        // The handles that are left keep an empty tree: its files are free to go.
        tree.change(|state| {
            state.active = None;
            state.sealed.clear();
            state.version = Arc::new(Version::empty());
        });
        drop((store, log));
        shared.release_cursors(tree);
        // After the cursors, for what they held.
        shared.removals.wait();
        Ok(())
    }

    /// See [`Keyspace::set_options`].
    pub(crate) fn change_options(&self, tree: &Tree, options: KeyspaceOptions) -> Result<()> {
        options.check()?;
        let shared = self.shared();
        shared.check_writable()?;
        if options.expiry.is_stored() != tree.stores_expiry {
            let message = "whether rows of a keyspace expire is chosen at its creation";
            return Err(Error::InvalidArgument(message.into()));
        }
        let mut log = shared.log.lock();
        tree.check()?;
        let encoded = options.encode();
        let marker = ddl_marker(DdlAction::SetOptions, tree.id, &tree.name, &encoded);
        let seqno = log.mark_ddl(shared, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            options_changed: vec![(tree.id, encoded)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        store.append(&shared.poison, &edit)?;
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

/// Creates keyspaces, none of which exists: a marker in the log for each, one edit of the manifest for all.
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
    let last_seqno = log.mark_ddls(shared, &payloads)?;
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
    store.append(&shared.poison, &edit)?;
    if trees.iter().any(|tree| tree.stores_expiry) {
        shared.clock.use_it();
    }
    let mut catalog = shared.catalog.write();
    for tree in trees {
        log.trees.insert(tree.id, Arc::clone(&tree));
        catalog.insert(tree.name.clone(), tree);
    }
    Ok(())
}

fn new_tree(shared: &Shared, id: KeyspaceId, name: &str, options: KeyspaceOptions) -> Arc<Tree> {
    let memtable_bytes = shared.plan().active_bytes;
    let version = Version::empty();
    let tree = Tree::new(id, name, options, version, memtable_bytes, &shared.cache);
    Arc::new(tree)
}
