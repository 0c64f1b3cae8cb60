//! Parses the phases and operations in the file of a custom workload.

use std::collections::HashSet;

use toml::de::DeTable;

use super::definition::{
    Action, DefinitionError, OperationDef, PhaseDef, PhaseKind, RunDef, TableDef, Written,
};
use super::read_keys::keys;
use super::read_tables::{column_place, span};
use super::source::{At, Section, Source};
use crate::names::unknown;
use crate::tables::Path;
use crate::trial::{Arrivals, Pace, PhaseEnd};

type Result<T> = std::result::Result<T, DefinitionError>;

const CLIENTS_MAX: u64 = 1024;
/// Maximum number of rows of one operation, or of one transaction of a load.
const ROWS_MAX: u64 = 100_000;
const SECONDS_MAX: f64 = 1e7;
/// Tolerance of the sum of the percents of a mix, for the rounding of decimal fractions.
const PERCENT_SLACK: f64 = 1e-6;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Load,
    Index,
    Settle,
    Run,
}

const KINDS: [(&str, Kind); 4] = [
    ("load", Kind::Load),
    ("index", Kind::Index),
    ("settle", Kind::Settle),
    ("run", Kind::Run),
];

/// Value of the key `do`: decides which other keys an operation may have.
#[derive(Clone, Copy, PartialEq)]
enum Do {
    Read,
    ReadMissing,
    Update,
    Insert,
    Delete,
    Scan,
    ReadModifyWrite,
}

const OPERATIONS: [(&str, Do); 7] = [
    ("read", Do::Read),
    ("read_missing", Do::ReadMissing),
    ("update", Do::Update),
    ("insert", Do::Insert),
    ("delete", Do::Delete),
    ("scan", Do::Scan),
    ("read_modify_write", Do::ReadModifyWrite),
];

/// Parses the phases of a file and checks their order.
pub(super) fn phases(file: Section<'_>, tables: &[TableDef]) -> Result<Vec<PhaseDef>> {
    let mut phases: Vec<PhaseDef> = Vec::new();
    let (mut loads, mut indexes) = (0, None);
    let found = file.tables("phase")?;
    let builds = found.iter().any(|phase| {
        let kind = phase
            .value
            .get("kind")
            .and_then(|kind| kind.get_ref().as_str());
        kind == Some("index")
    });
    for phase in found {
        let read = self::phase(file.source, phase, tables)?;
        let refuse = |message: &str| Err(file.refuse(phase.at, message));
        match &read.kind {
            PhaseKind::Load { .. } if !phases.is_empty() => {
                return refuse("the load must be the first phase, and there is one");
            }
            _ if phases.is_empty() && !matches!(read.kind, PhaseKind::Load { .. }) => {
                return refuse("the first phase must be kind = \"load\"");
            }
            PhaseKind::Load { .. } => loads += 1,
            PhaseKind::Index if indexes.replace(()).is_some() => {
                return refuse("there is a phase of kind index already");
            }
            PhaseKind::Run(run) if builds && indexes.is_none() => {
                let scan = |one: &&OperationDef| matches!(one.action, Action::Scan(Path::Index(_)));
                if let Some(scan) = run.operations.iter().find(scan) {
                    let name = &scan.name;
                    let message =
                        format!("{name} needs its index: put the phase of kind index before");
                    return refuse(&message);
                }
            }
            _ => {}
        }
        phases.push(read);
    }
    if loads == 0 {
        return Err(file.refuse(0, "the file must have a [[phase]] with kind = \"load\""));
    }
    number_names(&mut phases);
    Ok(phases)
}

/// Makes names unique: the second phase called `run` becomes `run#2`.
fn number_names(phases: &mut [PhaseDef]) {
    let names: Vec<String> = phases.iter().map(|phase| phase.name.clone()).collect();
    for (place, phase) in phases.iter_mut().enumerate() {
        let earlier = names[..place].iter().filter(|name| **name == phase.name);
        let occurrence = earlier.count() + 1;
        if occurrence > 1 {
            phase.name = format!("{}#{occurrence}", phase.name);
        }
    }
}

fn phase<'a>(
    source: Source<'a>,
    found: At<&'a DeTable<'a>>,
    tables: &[TableDef],
) -> Result<PhaseDef> {
    const RUN: &[&str] = &[
        "kind",
        "name",
        "seconds",
        "requests",
        "clients",
        "rate",
        "arrivals",
        "recorded",
        "operation",
    ];
    let open = |what, allowed: &[&str]| Section::new(source, what, found.at, found.value, allowed);
    // The kind comes first because it decides the allowed keys.
    let section = open("[[phase]]", &keys_of(found.value))?;
    let kind = section.choice("kind", &KINDS)?;
    let kind = match section.required("kind", "load, index, settle or run", kind)? {
        Kind::Load => {
            let section = open("a phase of kind load", &["kind", "batch", "clients"])?;
            PhaseKind::Load {
                batch: section.whole("batch", 1..ROWS_MAX + 1)?.unwrap_or(100),
                clients: clients(section)?,
            }
        }
        Kind::Index => {
            open("a phase of kind index", &["kind"])?;
            PhaseKind::Index
        }
        Kind::Settle => {
            open("a phase of kind settle", &["kind"])?;
            PhaseKind::Settle
        }
        Kind::Run => PhaseKind::Run(run(open("a phase of kind run", RUN)?, tables)?),
    };
    let name = match (&kind, section.text("name")?) {
        (PhaseKind::Load { .. }, _) => "load",
        (PhaseKind::Index, _) => "index",
        (PhaseKind::Settle, _) => "settle",
        (PhaseKind::Run(_), None) => "run",
        (PhaseKind::Run(_), Some(name)) => phase_name(section, name)?,
    };
    Ok(PhaseDef {
        name: name.to_owned(),
        kind,
    })
}

/// Returns every key of a TOML table.
fn keys_of<'a>(table: &'a DeTable<'a>) -> Vec<&'a str> {
    table.keys().map(|key| &**key.get_ref()).collect()
}

fn phase_name<'a>(section: Section<'_>, name: At<&'a str>) -> Result<&'a str> {
    let taken = ["load", "index", "settle"].contains(&name.value);
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if taken || name.value.is_empty() || name.value.len() > 48 || !name.value.bytes().all(good) {
        let message = format!(
            "the name `{}` of a phase must be at most 48 letters, digits, `_`, `-` and `.`, and not load, index or settle",
            name.value
        );
        return Err(section.refuse(name.at, message));
    }
    Ok(name.value)
}

fn clients(section: Section<'_>) -> Result<u32> {
    let clients = section.whole("clients", 1..CLIENTS_MAX + 1)?;
    Ok(clients.unwrap_or(1) as u32)
}

fn run(section: Section<'_>, tables: &[TableDef]) -> Result<RunDef> {
    let seconds = section.decimal("seconds", 0.1, SECONDS_MAX)?;
    let requests = section.whole("requests", 1..1 << 60)?;
    let end = match (seconds, requests) {
        (Some(seconds), None) => PhaseEnd::Seconds(seconds),
        (None, Some(requests)) => PhaseEnd::Operations(requests),
        _ => {
            let message = "a phase of kind run needs `seconds` or `requests`, one of them";
            return Err(section.refuse(section.at, message));
        }
    };
    let mut operations = Vec::new();
    for found in section.tables("operation")? {
        operations.push(operation(section.source, found, tables)?);
    }
    if operations.is_empty() {
        let message = "a phase of kind run needs operations as [[phase.operation]]";
        return Err(section.refuse(section.at, message));
    }
    let sum: f64 = operations.iter().map(|one| one.percent).sum();
    if (sum - 100.0).abs() > PERCENT_SLACK {
        let message =
            format!("the percents of the operations of this phase add up to {sum}, not to 100");
        return Err(section.refuse(section.place_of("operation"), message));
    }
    number_equal_names(&mut operations);
    Ok(RunDef {
        end,
        clients: clients(section)?,
        pace: pace(section)?,
        recorded: section.flag("recorded")?.unwrap_or(true),
        operations,
    })
}

/// Gives each operation a name of its own: the first one keeps it, and the others get the lowest
/// number that makes a name that no operation has.
fn number_equal_names(operations: &mut [OperationDef]) {
    let mut taken: HashSet<String> = operations.iter().map(|one| one.name.clone()).collect();
    let mut seen = HashSet::new();
    for operation in operations {
        let name = operation.name.clone();
        if seen.insert(name.clone()) {
            continue;
        }
        let mut numbered = (2..).map(|number| format!("{name}_{number}"));
        operation.name = numbered
            .find(|free| taken.insert(free.clone()))
            .unwrap_or(name);
    }
}

fn pace(section: Section<'_>) -> Result<Option<Pace>> {
    let names = [
        ("even", Arrivals::Even),
        ("poisson", Arrivals::Poisson),
        ("burst", Arrivals::Burst),
    ];
    let arrivals = section.choice("arrivals", &names)?;
    let rate = section.decimal("rate", 0.001, 1e9)?;
    if arrivals.is_some() && rate.is_none() {
        let message = "`arrivals` needs `rate`: operations per second of all clients together";
        return Err(section.refuse(section.place_of("arrivals"), message));
    }
    Ok(rate.map(|per_second| Pace {
        per_second,
        arrivals: arrivals.unwrap_or(Arrivals::Even),
    }))
}

fn operation<'a>(
    source: Source<'a>,
    found: At<&'a DeTable<'a>>,
    tables: &[TableDef],
) -> Result<OperationDef> {
    let common = ["do", "table", "percent", "name"];
    let open = |what, own: &[&str]| {
        let allowed: Vec<&str> = common.iter().chain(own).copied().collect();
        Section::new(source, what, found.at, found.value, &allowed)
    };
    // The action comes first because it decides the allowed keys.
    let what = "[[phase.operation]]";
    let section = Section::new(source, what, found.at, found.value, &keys_of(found.value))?;
    let what = section.choice("do", &OPERATIONS)?;
    let what = section.required("do", &names(&OPERATIONS), what)?;
    match what {
        Do::Read | Do::ReadMissing => open("a read", &["keys", "rows"])?,
        Do::Update => open("an update", &["keys", "columns", "write"])?,
        Do::Insert => open("an insert", &["rows"])?,
        Do::Delete => open("a delete", &["keys"])?,
        Do::Scan => open("a scan", &["keys", "rows", "index"])?,
        Do::ReadModifyWrite => open("a read_modify_write", &["keys", "columns", "write"])?,
    };
    let place = table_place(section, tables)?;
    let table = &tables[place];
    let action = match what {
        Do::Read => Action::Read,
        Do::ReadMissing => Action::ReadMissing,
        Do::Update => Action::Update(written(section, table)?),
        Do::Insert => Action::Insert,
        Do::Delete => Action::Delete,
        Do::Scan => Action::Scan(path(section, table)?),
        Do::ReadModifyWrite => Action::ReadModifyWrite(written(section, table)?),
    };
    let percent = section.decimal("percent", 0.0001, 100.0)?;
    let rows = span(section, "rows", 1..ROWS_MAX + 1)?;
    if what == Do::Scan {
        section.required("rows", "a number, or { min = 1, max = 100 }", rows)?;
    }
    Ok(OperationDef {
        name: operation_name(section, what, table, tables.len() > 1)?,
        action,
        table: place,
        percent: section.required("percent", "its share of the mix", percent)?,
        keys: keys(section)?,
        rows: rows.unwrap_or((1, 1)),
    })
}

fn names<T>(of: &[(&str, T)]) -> String {
    let names: Vec<&str> = of.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Returns the name given to the operation, or by default its action in capitals, followed by the
/// table's name if the file has several tables.
fn operation_name(
    section: Section<'_>,
    what: Do,
    table: &TableDef,
    several: bool,
) -> Result<String> {
    if let Some(name) = section.text("name")? {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.value.is_empty() || name.value.len() > 48 || !name.value.bytes().all(good) {
            let message = "the name of an operation must be at most 48 letters, digits and `_`";
            return Err(section.refuse(name.at, message));
        }
        return Ok(name.value.to_owned());
    }
    let found = OPERATIONS.iter().find(|(_, one)| *one == what);
    let name = found.map_or("", |(name, _)| name).to_ascii_uppercase();
    Ok(if several {
        format!("{name}_{}", table.name.to_ascii_uppercase())
    } else {
        name
    })
}

fn table_place(section: Section<'_>, tables: &[TableDef]) -> Result<usize> {
    let known: Vec<&str> = tables.iter().map(|table| &*table.name).collect();
    match (section.text("table")?, &known[..]) {
        (None, [_]) => Ok(0),
        (given, _) => {
            let form = format!("one of {}", known.join(", "));
            let name = section.required("table", &form, given)?;
            let found = known.iter().position(|table| *table == name.value);
            found.ok_or_else(|| section.refuse(name.at, unknown("table", name.value, &known)))
        }
    }
}

fn path(section: Section<'_>, table: &TableDef) -> Result<Path> {
    let Some(name) = section.text("index")? else {
        return Ok(Path::Primary);
    };
    let known: Vec<&str> = table.indexes.iter().map(|(name, _)| &**name).collect();
    match known.iter().position(|index| *index == name.value) {
        Some(place) => Ok(Path::Index(place)),
        None => {
            let what = format!("index of table `{}`", table.name);
            Err(section.refuse(name.at, unknown(&what, name.value, &known)))
        }
    }
}

fn written(section: Section<'_>, table: &TableDef) -> Result<Written> {
    let whole = section.choice("write", &[("column", false), ("row", true)])?;
    let columns = section.texts("columns")?;
    match (whole.unwrap_or(false), columns) {
        (true, None) => Ok(Written::Row),
        (true, Some(_)) => {
            let message =
                "`columns` chooses the one column that is written; write = \"row\" writes all";
            Err(section.refuse(section.place_of("columns"), message))
        }
        (false, None) => Ok(Written::One((0..table.columns.len()).collect())),
        (false, Some(names)) => {
            if names.is_empty() {
                let message = "`columns` names no column";
                return Err(section.refuse(section.place_of("columns"), message));
            }
            let places = names.iter().map(|name| column_place(section, table, *name));
            places.collect::<Result<_>>().map(Written::One)
        }
    }
}
