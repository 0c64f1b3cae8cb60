//! Statements that read rows.

use alluvium_testkit::Rng;

use super::plans::{is_cut_by_sorts, may_cut};
use super::schema::{Column, Index, Table};
use super::statement::{Compare, Statement};
use super::types::Kind;

/// Returns a random query.
pub fn random(tables: &[Table], rng: &mut Rng) -> Statement {
    let table = rng.pick(tables);
    let other = rng.pick(tables);
    match rng.weighted(&[20, 16, 16, 14, 14, 10, 10, 4, 4]) {
        0 => plain(table, rng),
        1 => by_index(table, rng),
        2 => ordered(table, rng),
        3 => covering(table, rng),
        4 => grouped(table, rng),
        5 => joined(table, other, rng),
        6 => with_subquery(table, other, rng),
        7 => aggregates(table, rng),
        _ => united(table, other, rng),
    }
}

/// Returns reads of a whole table: its rows, and the entries of each of its indexes.
pub fn whole(table: &Table) -> Vec<Statement> {
    let name = &table.name;
    let rows = format!("SELECT * FROM {name}");
    let mut all = vec![Statement::new(
        "SELECT of a whole table",
        rows,
        Compare::AnyOrder,
    )];
    for index in table.indexes.iter().filter(|index| index.is_whole()) {
        let columns: Vec<&str> = index
            .parts
            .iter()
            .map(|part| part.column.as_str())
            .collect();
        let (columns, index) = (columns.join(", "), &index.name);
        let sql = format!("SELECT {columns} FROM {name} FORCE INDEX ({index}) ORDER BY {columns}");
        all.push(Statement::new(
            "SELECT of a whole index",
            sql,
            Compare::AnyOrder,
        ));
    }
    all
}

fn plain(table: &Table, rng: &mut Rng) -> Statement {
    let columns = some_columns(table, "", rng);
    let end = match rng.below(20) {
        0 => " FOR UPDATE",
        1 => " LOCK IN SHARE MODE",
        _ => "",
    };
    let place = conditions(table, "", rng);
    let sql = format!("SELECT {columns} FROM {} WHERE {place}{end}", table.name);
    let statement = Statement::new("SELECT", sql, Compare::AnyOrder);
    match end {
        "" => statement,
        _ => statement.mark("statement: locking SELECT"),
    }
}

/// Returns a query by the first columns of an index.
fn by_index(table: &Table, rng: &mut Rng) -> Statement {
    let Some(index) = some_index(table, rng) else {
        return plain(table, rng);
    };
    let count = rng.range(1..index.parts.len() + 1);
    let last = count - 1;
    let mut tests = Vec::new();
    for (number, part) in index.parts.iter().take(count).enumerate() {
        let column = table.column(&part.column);
        tests.push(match number < last {
            true => format!("{} = {}", part.column, column.kind.constant(rng)),
            false => test(column, "", rng),
        });
    }
    let hint = hint(&index, rng);
    let columns = some_columns(table, "", rng);
    let sql = format!(
        "SELECT {columns} FROM {} {hint} WHERE {}",
        table.name,
        tests.join(" AND ")
    );
    Statement::new("SELECT by an index", sql, Compare::AnyOrder)
}

/// Returns a query with an ORDER BY that an index can give, mostly with LIMIT.
fn ordered(table: &Table, rng: &mut Rng) -> Statement {
    let (Some(index), Some(key)) = (some_index(table, rng), table.row_key()) else {
        return covering(table, rng);
    };
    let backward = rng.percent(50);
    let mut order = index.order(backward);
    let direction = if backward { " DESC" } else { "" };
    let is_new = |name: &&String| index.parts.iter().all(|part| part.column != **name);
    order.extend(
        key.iter()
            .filter(is_new)
            .map(|name| format!("{name}{direction}")),
    );
    let limit = match rng.below(4) {
        0 => String::new(),
        1 => format!(" LIMIT {}, {}", rng.below(4), rng.range(1..6)),
        _ => format!(" LIMIT {}", rng.range(1..8)),
    };
    let columns = some_columns(table, "", rng);
    let (hint, place) = (hint(&index, rng), conditions(table, "", rng));
    let sql = format!(
        "SELECT {columns} FROM {} {hint} WHERE {place} ORDER BY {}{limit}",
        table.name,
        order.join(", ")
    );
    let statement = Statement::new("SELECT with ORDER BY", sql, Compare::Exactly);
    match backward {
        true => statement.mark("read: backward"),
        false => statement,
    }
}

/// Returns a query that an index answers alone.
fn covering(table: &Table, rng: &mut Rng) -> Statement {
    let whole: Vec<&Index> = table
        .indexes
        .iter()
        .filter(|index| index.is_whole())
        .collect();
    if whole.is_empty() {
        return plain(table, rng);
    }
    let index = *rng.pick(&whole);
    let columns: Vec<&str> = index
        .parts
        .iter()
        .map(|part| part.column.as_str())
        .collect();
    let column = table.column(rng.pick::<&str>(&columns));
    let backward = rng.percent(40);
    let order = index.order(backward).join(", ");
    let sql = format!(
        "SELECT {} FROM {} FORCE INDEX ({}) WHERE {} ORDER BY {order}",
        columns.join(", "),
        table.name,
        index.name,
        test(column, "", rng),
    );
    // Rows that are equal in this order may differ in other ways.
    let is_exact = columns.iter().all(|name| table.column(name).is_exact());
    let compare = if is_exact {
        Compare::Exactly
    } else {
        Compare::AnyOrder
    };
    let statement = Statement::new("SELECT from an index", sql, compare);
    let statement = statement.mark("hint: FORCE INDEX");
    match backward {
        true => statement.mark("read: backward"),
        false => statement,
    }
}

fn grouped(table: &Table, rng: &mut Rng) -> Statement {
    let column = rng.pick(&table.columns);
    let other = rng.pick(&table.columns);
    if is_cut_by_sorts(column) {
        return plain(table, rng);
    }
    let shown = match column.is_exact() {
        true => format!("{}, ", column.name),
        false => String::new(),
    };
    let sql = format!(
        "SELECT {shown}COUNT(*), {} FROM {} WHERE {} GROUP BY {}{}",
        aggregate(other, rng),
        table.name,
        condition(table, "", rng),
        column.name,
        rng.pick(&["", " HAVING COUNT(*) > 1"]),
    );
    Statement::new("GROUP BY", sql, Compare::AnyOrder)
}

fn aggregates(table: &Table, rng: &mut Rng) -> Statement {
    let parts: Vec<String> = (0..3)
        .map(|_| aggregate(rng.pick(&table.columns), rng))
        .collect();
    let sql = format!(
        "SELECT COUNT(*), {} FROM {} WHERE {}",
        parts.join(", "),
        table.name,
        condition(table, "", rng),
    );
    Statement::new("aggregates", sql, Compare::Exactly)
}

fn joined(table: &Table, other: &Table, rng: &mut Rng) -> Statement {
    let join = rng.pick(&["JOIN", "LEFT JOIN", "STRAIGHT_JOIN"]);
    let sql = format!(
        "SELECT {}, {} FROM {} a {join} {} b ON {} WHERE {}",
        some_columns(table, "a.", rng),
        some_columns(other, "b.", rng),
        table.name,
        other.name,
        join_condition(table, other, rng),
        condition(table, "a.", rng),
    );
    Statement::new("join", sql, Compare::AnyOrder)
}

fn with_subquery(table: &Table, other: &Table, rng: &mut Rng) -> Statement {
    let (left, right) = comparable(table, other, rng);
    let inner = condition(other, "b.", rng);
    let other_name = &other.name;
    let place = match rng.below(3) {
        0 => format!("{left} IN (SELECT {right} FROM {other_name} b WHERE {inner})"),
        1 => format!("EXISTS (SELECT 1 FROM {other_name} b WHERE {right} = {left} AND {inner})"),
        _ => format!("(SELECT COUNT(*) FROM {other_name} b WHERE {right} = {left}) > 1"),
    };
    let columns = some_columns(table, "a.", rng);
    let sql = format!("SELECT {columns} FROM {} a WHERE {place}", table.name);
    Statement::new("subquery", sql, Compare::AnyOrder)
}

fn united(table: &Table, other: &Table, rng: &mut Rng) -> Statement {
    let (left, right) = comparable(table, other, rng);
    let sql = format!(
        "SELECT {left} FROM {} a WHERE {} UNION ALL SELECT {right} FROM {} b WHERE {}",
        table.name,
        condition(table, "a.", rng),
        other.name,
        condition(other, "b.", rng),
    );
    Statement::new("UNION", sql, Compare::AnyOrder)
}

/// Returns an aggregate that does not depend on the order of rows.
fn aggregate(column: &Column, rng: &mut Rng) -> String {
    let name = &column.name;
    match rng.below(4) {
        0 => format!("COUNT({name})"),
        1 if !is_cut_by_sorts(column) => format!("COUNT(DISTINCT {name})"),
        2 if column.kind.has_sum() => format!("SUM({name})"),
        _ if column.is_exact() && !matches!(column.kind, Kind::Bit(_)) => {
            let function = rng.pick(&["MIN", "MAX"]);
            format!("{function}({name})")
        }
        _ => format!("COUNT({name})"),
    }
}

/// Returns an equality between two tables `a` and `b`.
pub fn join_condition(table: &Table, other: &Table, rng: &mut Rng) -> String {
    let (left, right) = comparable(table, other, rng);
    format!("{left} = {right}")
}

/// Returns expressions of tables `a` and `b` that can be compared: two columns of one family, or
/// tests of the first columns.
fn comparable(table: &Table, other: &Table, rng: &mut Rng) -> (String, String) {
    let mut pairs = Vec::new();
    for left in &table.columns {
        let fits = |right: &&Column| match left.kind.family() {
            super::types::Family::Other => left.kind == right.kind,
            family => right.kind.family() == family && !may_cut(left, right),
        };
        let fitting = other.columns.iter().filter(fits);
        pairs.extend(fitting.map(|right| (&left.name, &right.name)));
    }
    if pairs.is_empty() {
        let (left, right) = (&table.columns[0].name, &other.columns[0].name);
        return (
            format!("(a.{left} IS NULL)"),
            format!("(b.{right} IS NULL)"),
        );
    }
    let (left, right) = rng.pick(&pairs);
    (format!("a.{left}"), format!("b.{right}"))
}

fn some_columns(table: &Table, alias: &str, rng: &mut Rng) -> String {
    if rng.percent(40) {
        return format!("{alias}*");
    }
    let count = rng.range(1..4);
    let names = (0..count).map(|_| format!("{alias}{}", rng.pick(&table.columns).name));
    names.collect::<Vec<String>>().join(", ")
}

fn some_index(table: &Table, rng: &mut Rng) -> Option<Index> {
    match table.indexes.is_empty() {
        true => None,
        false => Some(rng.pick(&table.indexes).clone()),
    }
}

fn hint(index: &Index, rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => String::new(),
        1 => format!("IGNORE INDEX ({})", index.name),
        _ => format!("FORCE INDEX ({})", index.name),
    }
}

/// Returns one test or two tests of rows.
fn conditions(table: &Table, alias: &str, rng: &mut Rng) -> String {
    let first = condition(table, alias, rng);
    match rng.below(4) {
        0 => format!("{first} AND {}", condition(table, alias, rng)),
        1 => format!("({first} OR {})", condition(table, alias, rng)),
        _ => first,
    }
}

/// Returns a test of rows of a table. Its columns get a prefix such as `a.`.
pub fn condition(table: &Table, alias: &str, rng: &mut Rng) -> String {
    test(rng.pick(&table.columns), alias, rng)
}

fn test(column: &Column, alias: &str, rng: &mut Rng) -> String {
    let name = format!("{alias}{}", column.name);
    let kind = column.kind;
    match rng.weighted(&[30, 30, 12, 12, 8, 6, 6]) {
        0 => format!("{name} = {}", kind.constant(rng)),
        1 => format!(
            "{name} {} {}",
            rng.pick(&["<", "<=", ">", ">=", "<>"]),
            kind.constant(rng)
        ),
        2 => format!(
            "{name} BETWEEN {} AND {}",
            kind.constant(rng),
            kind.constant(rng)
        ),
        3 => {
            let count = rng.range(1..5);
            let list: Vec<String> = (0..count).map(|_| kind.constant(rng)).collect();
            format!("{name} IN ({})", list.join(", "))
        }
        4 => format!("{name} {}", rng.pick(&["IS NULL", "IS NOT NULL"])),
        5 if matches!(kind, Kind::Char(_) | Kind::VarChar(_) | Kind::Text(_)) => {
            // No text has a character below the space right after such a beginning. With PAD SPACE
            // the server's range for LIKE leaves those out, and its scans do not.
            let patterns = ["'z%'", "'Ab%'", "'ab_'", "'%b'", "'s%'", "'ch%'"];
            format!("{name} LIKE {}", rng.pick(&patterns))
        }
        _ => format!("{name} <=> {}", kind.constant(rng)),
    }
}
