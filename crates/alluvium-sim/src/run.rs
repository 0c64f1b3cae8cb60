//! Takes one database through all incarnations of a plan, and checks the state that each leaves.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alluvium::internal::Manifest;
use alluvium::simulation::threads::Builder;
use alluvium::simulation::{self, End, Report, Setup};
use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{Database, Durability, Error, EventListener, Expiry, KeyspaceOptions, Options};

use crate::client::Client;
use crate::copies::{judge_store, open_store, restore};
use crate::disk::{DIR, Disk};
use crate::follow::is_durable_only;
use crate::history::{History, forget_threads};
use crate::listener::RecordingListener;
use crate::lost_updates::check_inherited;
use crate::places::put_back;
use crate::plan::{Crash, Incarnation, Kept, LASTING, Numbered, Op, Plan, PostMortem};
use crate::post_mortem::PostMortemContext;
use crate::reading::{Content, content, difference};
use crate::records::{Checked, Records};
use crate::settings::judge_settings;
use crate::transaction::{decide, tag_of_xid};
use crate::world::World;

/// More steps than any terminating history takes.
const STEPS_MAX: u64 = 500_000;

/// Outcome of a plan.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Report of the simulated run.
    pub report: Report,
    /// Description of the failure, if there was one.
    pub failure: Option<String>,
    /// Count of each event.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Outcome {
    forget_threads();
    let records = Arc::new(Records::default());
    let failure = Arc::new(Mutex::new(None));
    let setup = Setup {
        seed: plan.seed ^ plan.schedule.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        steps_max: STEPS_MAX,
        policy: plan.policy,
    };
    let observed = Arc::clone(&records);
    let observer = Box::new(move |seqno: u64, ops: &[u8]| {
        observed.history().numbered(seqno, ops);
    });
    let counted = Arc::clone(&records);
    let (plan, found) = (plan.clone(), Arc::clone(&failure));
    let report = simulation::run(setup, observer, move || {
        let incarnations = || Story::new(plan, records).live();
        let result = catch_unwind(AssertUnwindSafe(incarnations))
            .unwrap_or_else(|panic| Err(format!("panicked: {}", message_of(&*panic))));
        *found.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    });
    let found = failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let failure = match &report.end {
        End::Finished => found,
        End::Deadlock(listing) => Some(format!("deadlock:\n{listing}")),
        End::TooLong(listing) => Some(format!("{STEPS_MAX} steps and no end:\n{listing}")),
    };
    Outcome {
        report,
        failure,
        counts: counted.counts(),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".into())
}

/// Database from its first to its last incarnation.
struct Story {
    plan: Plan,
    records: Arc<Records>,
    /// Files left by the previous incarnation.
    memory: MemVfs,
    /// True if only the process has died.
    killed: bool,
    /// Number of disks created so far; seeds the next one.
    disks: u64,
}

impl Story {
    fn new(plan: Plan, records: Arc<Records>) -> Story {
        Story {
            plan,
            records,
            memory: MemVfs::new(),
            killed: true,
            disks: 0,
        }
    }

    fn live(&mut self) -> Checked<()> {
        let incarnations = std::mem::take(&mut self.plan.incarnations);
        let mut crash_again = None;
        for (at, incarnation) in incarnations.iter().enumerate() {
            let world = self.open(crash_again)?;
            self.spend(incarnation, world)
                .map_err(|failure| format!("incarnation {at}: {failure}"))?;
            if let Some(post_mortem) = &incarnation.post_mortem {
                self.examine(post_mortem.item).map_err(|failure| {
                    format!("after incarnation {at}, {:?}: {failure}", post_mortem.item)
                })?;
            }
            crash_again = incarnation.crash_again.as_ref().map(|crash| crash.item);
        }
        let at_the_end = |failure| format!("at the end: {failure}");
        let world = self.open(crash_again).map_err(at_the_end)?;
        restore_newest(&world).map_err(at_the_end)?;
        self.end(world)
    }

    /// Returns the smallest commit number that the next incarnation may find.
    fn floor(&self, history: &History) -> u64 {
        let has_log = self.plan.database.durability != Durability::None;
        history.floor(self.killed && has_log)
    }

    fn examine(&self, post_mortem: PostMortem) -> Checked<()> {
        let floor = self.floor(&self.records.history());
        let context = PostMortemContext {
            records: &self.records,
            dir: Path::new(DIR),
            options: &self.options(),
            floor,
        };
        context.examine(post_mortem, &self.memory)
    }

    fn disk(&mut self, crash: Option<Crash>) -> Disk {
        self.disks += 1;
        let seed = self.plan.seed.wrapping_add(self.disks);
        Disk::new(self.memory.clone(), seed, crash, self.plan.lying_disk)
    }

    fn options(&self) -> Options {
        let plan = &self.plan.database;
        Options {
            memory_bytes: 8 << 20,
            durability: plan.durability,
            memtable_bytes: Some(plan.memtable_bytes),
            table_bytes: plan.table_bytes,
            compaction_threads: plan.compaction_threads,
            idle_after: plan.tidies.then_some(Duration::from_millis(500)),
            change_log_bytes: if plan.keeps_changes { 1 << 30 } else { 0 },
            ..Options::default()
        }
    }

    /// Opens the database and compares it with the history. After a crash of the recovery, recovers
    /// again.
    fn open(&mut self, mut crash: Option<Crash>) -> Checked<World> {
        // Terminates: there is at most one crash.
        loop {
            let disk = self.disk(crash);
            let opened = self.open_on(&disk);
            disk.mend();
            if !disk.is_dead() {
                let mut world = opened?;
                self.judge(&mut world)?;
                return Ok(world);
            }
            drop(opened);
            self.records.count("crashes of recoveries", 1);
            self.killed &= disk.died_with() == Some(Kept::All);
            self.memory = disk.leave(Kept::All);
            crash = None;
        }
    }

    fn open_on(&self, disk: &Disk) -> Checked<World> {
        let text = |error: Error| format!("cannot open: {error} ({error:?})");
        let options = self.options();
        let recorded = self.recorded_ms();
        if let Some(recorded) = recorded {
            self.records.clock.check_stored(recorded)?;
        }
        let (watched, watch) = self.records.watched_from(&options, recorded);
        let plan = &self.plan.database;
        let listener =
            RecordingListener::new(plan.listening, plan.compaction_threads, disk, &self.records);
        let told = listener
            .clone()
            .map(|listener| listener as Arc<dyn EventListener>);
        let watched = Options {
            event_listener: told,
            ..watched
        };
        let vfs = Arc::new(disk.clone());
        vfs.create_dir_all(Path::new("/"))
            .map_err(|e| e.to_string())?;
        let db = Database::open_on(vfs, DIR, watched).map_err(text)?;
        let marks = db.keyspace("marks", KeyspaceOptions::default());
        let mut keyspaces = vec![marks.map_err(text)?];
        for (at, name) in LASTING.iter().enumerate() {
            let own = KeyspaceOptions {
                block_bytes: 1 << 10,
                value_separation_bytes: (at >= 1).then_some(256),
                prefix_filter_bytes: (at == 1).then_some(2),
                expiry: match at {
                    2 => Expiry::PerRow,
                    _ => Expiry::Never,
                },
                ..KeyspaceOptions::default()
            };
            keyspaces.push(db.keyspace(name, own).map_err(text)?);
        }
        if let Some(listener) = &listener {
            listener.attach(&db);
        }
        Ok(World {
            db,
            disk: disk.clone(),
            records: Arc::clone(&self.records),
            options,
            watch,
            listener,
            filter_failure: Arc::default(),
            keyspaces,
            inherited: Vec::new(),
            opened_at: 0,
            store: Mutex::new(None),
            moved: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        })
    }

    /// Returns the time that the database on disk has recorded. The database's time never falls
    /// below it. A wider range would let a state with rows that expire later pass for one that
    /// never had them.
    fn recorded_ms(&self) -> Option<u64> {
        let read = Manifest::read(&self.memory, Path::new(DIR)).ok();
        read.map(|(_, state)| state.read_clock_ms)
    }

    /// Checks the content of a database that was just opened.
    fn judge(&self, world: &mut World) -> Checked<()> {
        let found =
            content(&world.db, &world.watch).map_err(|e| format!("cannot read: {e} ({e:?})"))?;
        let mut history = self.records.history();
        let floor = self.floor(&history);
        let Some(seqno) = history.find(floor, &found) else {
            let (last, newest) = (history.last(), history.at(history.last()));
            let times = history.times(found.read_at.clone());
            return Err(format!(
                "what was found is the state of no commit from {floor} to {last}\n  against {floor}: {}\n  against {last}: {}",
                difference(&history.at(floor), &found, &times),
                difference(&newest, &found, &times)
            ));
        };
        self.judge_keyspaces(&found, world)?;
        world.inherited = self.judge_prepared(world, &history, seqno)?;
        world.opened_at = world.db.visible_seqno();
        self.judge_streams(world.opened_at)?;
        // A commit that changed no row may be lost without a trace, and its number is given again.
        history.cut(seqno.min(world.opened_at));
        drop(history);
        simulation::note(seqno);
        judge_settings(world)?;
        judge_store(world)
    }

    /// Checks that all changes shown by streams of durable changes are still there. Other streams
    /// continue after `seqno`, the newest number. It may be that of a marker of an ingest that did
    /// not happen.
    fn judge_streams(&self, seqno: u64) -> Checked<()> {
        for (client, next) in &mut self.records.outside().positions {
            if *next <= seqno + 1 {
                continue;
            }
            if is_durable_only(*client) && !self.plan.lying_disk {
                return Err(format!(
                    "the stream of durable changes of client {client} had come to {next}, and {seqno} is the newest number"
                ));
            }
            *next = seqno + 1;
        }
        Ok(())
    }

    fn judge_keyspaces(&self, found: &Content, world: &World) -> Checked<()> {
        let mut outside = self.records.outside();
        let lasting: Vec<u32> = world.keyspaces.iter().map(|k| k.id().0).collect();
        if outside.lasting.is_empty() {
            outside.lasting.clone_from(&lasting);
        }
        if outside.lasting != lasting {
            let before = &outside.lasting;
            return Err(format!(
                "the keyspaces were {before:?}, now they are {lasting:?}"
            ));
        }
        for (id, passing) in &outside.passing {
            let there = found.ids.contains(id);
            if there && passing.dropped {
                return Err(format!("keyspace {id} was dropped and is there"));
            }
            if !there && !passing.drop_tried {
                return Err(format!("keyspace {id} was created and is not there"));
            }
        }
        Ok(())
    }

    fn judge_prepared(&self, world: &World, history: &History, seqno: u64) -> Checked<Vec<u64>> {
        let listed = world.db.prepared().map_err(|e| e.to_string())?;
        let listed: Vec<u64> = listed
            .iter()
            .map(|xid| tag_of_xid(xid))
            .collect::<Result<_, _>>()?;
        let committed = |tag: u64| history.seqno_of(tag).is_some_and(|at| at <= seqno);
        let outside = self.records.outside();
        for tag in &listed {
            if committed(*tag) {
                return Err(format!("transaction {tag} is committed and still prepared"));
            }
            if !outside.prepared.contains_key(tag) {
                return Err(format!(
                    "transaction {tag} is prepared, and its prepare had failed"
                ));
            }
        }
        for (tag, prepared) in &outside.prepared {
            let lost = !listed.contains(tag) && !committed(*tag);
            if lost && prepared.done && !prepared.rollback_tried {
                return Err(format!("transaction {tag} was prepared and is lost"));
            }
        }
        Ok(listed)
    }

    fn spend(&mut self, incarnation: &Incarnation, world: World) -> Checked<()> {
        let faults = incarnation.faults.iter().map(|fault| fault.item).collect();
        world
            .disk
            .arm(faults, incarnation.crash.as_ref().map(|crash| crash.item));
        let world = Arc::new(world);
        let deciding = Arc::clone(&world);
        let builder = Builder::new().name("coordinator".into());
        let coordinator = builder.spawn(move || decide_all(&deciding));
        let mut threads = vec![coordinator.map_err(|e| e.to_string())?];
        for (number, ops) in incarnation.clients.iter().enumerate() {
            if ops.is_empty() {
                continue;
            }
            let client = Client::new(Arc::clone(&world), number);
            let ops = ops.clone();
            let builder = Builder::new().name(format!("client {number}"));
            let spawned = builder.spawn(move || serve(client, &ops));
            threads.push(spawned.map_err(|e| e.to_string())?);
        }
        let mut first = Ok(());
        for thread in threads {
            let result = thread
                .join()
                .unwrap_or_else(|panic| Err(message_of(&*panic)));
            first = first.and(result);
        }
        let world = Arc::into_inner(world).ok_or("a client has kept its world")?;
        first.and(self.end(world))
    }

    fn count_background(&self, world: &World) {
        let Ok(stats) = world.db.stats() else {
            return;
        };
        let counted = [
            ("flushes", stats.flushes),
            ("compactions", stats.compactions),
            ("versions that compactions dropped", stats.versions_shadowed),
            ("inserts that were canceled", stats.pairs_canceled),
            (
                "tombstones that compactions dropped",
                stats.tombstones_dropped,
            ),
            ("delayed commits", stats.delayed_commits),
        ];
        counted
            .iter()
            .for_each(|(what, times)| self.records.count(what, *times));
    }

    /// Ends an incarnation: closes the database, unless the machine has crashed.
    fn end(&mut self, world: World) -> Checked<()> {
        let (visible, disk) = (world.db.visible_seqno(), world.disk.clone());
        self.count_background(&world);
        let closed = world.db.close();
        judge_background(&world, matches!(closed, Err(Error::Poisoned(_))))?;
        if !disk.is_dead() {
            match &closed {
                Ok(()) => self.records.history().make_durable(visible),
                Err(error) => world.tolerate(error)?,
            }
        }
        drop(world);
        let died = disk.is_dead();
        let counted = [
            ("crashes", died),
            ("incarnations with a fault", disk.has_failed() && !died),
        ];
        counted
            .iter()
            .for_each(|(what, is)| self.records.count(what, u64::from(*is)));
        self.records.count("failures injected", disk.failures());
        disk.mend();
        let clean = closed.is_ok() && !died;
        // A closed database is durable; after an error only the process is restarted.
        let kept = match disk.died_with() {
            Some(kept) => kept,
            None if clean && visible % 2 == 0 => Kept::Synced,
            None => Kept::All,
        };
        self.killed = kept == Kept::All;
        self.memory = disk.leave(kept);
        put_back(&self.memory)
    }
}

/// Checks the events and the filter's rows of a closed database.
fn judge_background(world: &World, poisoned: bool) -> Checked<()> {
    let wrong = world
        .filter_failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match (wrong, &world.listener) {
        (Some(wrong), _) => Err(wrong),
        (None, Some(listener)) => {
            listener.detach();
            listener.judge(poisoned)
        }
        (None, None) => Ok(()),
    }
}

/// Restores the newest backup, which must survive everything.
fn restore_newest(world: &World) -> Checked<()> {
    let newest = world.records.outside().backups.pop_last();
    let Some((id, backup)) = newest else {
        return Ok(());
    };
    world.records.outside().backups.insert(id, backup.clone());
    match open_store(world)? {
        Some(store) => restore(world, &store, id, &backup),
        None => Ok(()),
    }
}

/// Decides the prepared transactions left by the previous incarnation, concurrently with the
/// clients.
fn decide_all(world: &World) -> Checked<()> {
    let Some(xids) = world.known(world.db.prepared())? else {
        return Ok(());
    };
    for xid in xids {
        let tag = tag_of_xid(&xid)?;
        // A client's transaction prepared in this incarnation is decided by that client.
        if !world.inherited.contains(&tag) {
            continue;
        }
        let Some(transaction) = world.known(world.db.take_prepared(&xid))? else {
            continue;
        };
        world.records.count("prepared transactions taken up", 1);
        let decided = decide(world, transaction, tag, tag % 3 != 0)?;
        if let Some(seqno) = decided {
            check_inherited(world, tag, seqno)?;
        }
    }
    Ok(())
}

/// Runs the operations of one client.
fn serve(mut client: Client, ops: &[Numbered<Op>]) -> Checked<()> {
    for op in ops {
        if client.is_over() {
            break;
        }
        simulation::note(op.number as u64);
        let perform = AssertUnwindSafe(|| client.perform(&op.item));
        let result = catch_unwind(perform)
            .unwrap_or_else(|panic| Err(format!("panicked: {}", message_of(&*panic))));
        if let Err(failure) = result {
            client.world.stop.store(true, Ordering::Relaxed);
            return Err(format!(
                "client {}, operation {}: {:?}\n  {failure}",
                client.number, op.number, op.item
            ));
        }
    }
    Ok(())
}
