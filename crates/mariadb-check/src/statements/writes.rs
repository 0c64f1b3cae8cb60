//! Statements that change rows.

use alluvium_testkit::Rng;

use super::reads::condition;
use super::schema::{Column, Table};
use super::statement::{Compare, Statement};

/// Rows of an insert of several rows.
const ROWS_MAX: usize = 8;

/// Returns a random statement that changes rows.
pub fn random(tables: &[Table], rng: &mut Rng) -> Statement {
    let table = rng.pick(tables);
    let other = rng.pick(tables);
    match rng.weighted(&[14, 18, 10, 10, 10, 8, 22, 6, 14, 4]) {
        0 => insert(table, rng),
        1 => insert_many(table, rng),
        2 => insert_ignore(table, rng),
        3 => replace(table, rng),
        4 => on_duplicate(table, rng),
        5 => insert_select(table, other, rng),
        6 => update(table, rng),
        7 => update_keys(table, rng),
        8 => delete(table, rng),
        _ => delete_join(table, other, rng),
    }
}

fn insert(table: &Table, rng: &mut Rng) -> Statement {
    let row = assignments(table, rng);
    let sets: Vec<String> = row
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    let sql = format!("INSERT INTO {} SET {}", table.name, sets.join(", "));
    Statement::new("INSERT", sql, Compare::Exactly)
}

/// Returns an insert of several rows.
pub fn insert_many(table: &Table, rng: &mut Rng) -> Statement {
    let sql = format!("INSERT INTO {}", values(table, rng));
    Statement::new("INSERT of several rows", sql, Compare::Exactly)
}

fn insert_ignore(table: &Table, rng: &mut Rng) -> Statement {
    let sql = format!("INSERT IGNORE INTO {}", values(table, rng));
    Statement::new("INSERT IGNORE", sql, Compare::Exactly)
}

fn replace(table: &Table, rng: &mut Rng) -> Statement {
    let sql = format!("REPLACE INTO {}", values(table, rng));
    Statement::new("REPLACE", sql, Compare::Exactly)
}

fn on_duplicate(table: &Table, rng: &mut Rng) -> Statement {
    // Otherwise the row that is updated is not defined.
    if table.order_unknown && table.unique_count() > 1 {
        return replace(table, rng);
    }
    let columns = table.plain_columns();
    let column = *rng.pick(&columns);
    let name = &column.name;
    let value = match rng.below(3) {
        0 => format!("VALUES({name})"),
        1 => literal(column, rng),
        _ => changed(column, rng),
    };
    let rows = values(table, rng);
    let sql = format!("INSERT INTO {rows} ON DUPLICATE KEY UPDATE {name} = {value}");
    Statement::new("ON DUPLICATE KEY UPDATE", sql, Compare::Exactly)
}

fn insert_select(to: &Table, from: &Table, rng: &mut Rng) -> Statement {
    // Rows in an undefined order get undefined numbers and duplicates.
    let Some(order) = from.row_key() else {
        return insert_many(to, rng);
    };
    let sources = from.plain_columns();
    let mut names = Vec::new();
    let mut values = Vec::new();
    for column in to.plain_columns() {
        let same = |source: &&&Column| source.kind.family() == column.kind.family();
        let fitting: Vec<&Column> = sources.iter().filter(same).copied().collect();
        names.push(column.name.clone());
        values.push(match fitting.is_empty() || rng.percent(30) {
            true => literal(column, rng),
            false => rng.pick(&fitting).name.clone(),
        });
    }
    let verb = rng.pick(&["INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO"]);
    let sql = format!(
        "{verb} {} ({}) SELECT {} FROM {} ORDER BY {} LIMIT {}",
        to.name,
        names.join(", "),
        values.join(", "),
        from.name,
        order.join(", "),
        rng.range(1..6),
    );
    Statement::new("INSERT SELECT", sql, Compare::Changes)
}

fn update(table: &Table, rng: &mut Rng) -> Statement {
    let columns = table.plain_columns();
    let is_free = |column: &&&Column| !table.is_in_unique(&column.name);
    let free: Vec<&Column> = columns.iter().filter(is_free).copied().collect();
    if free.is_empty() {
        return update_keys(table, rng);
    }
    let column = *rng.pick(&free);
    // A second assignment cannot fail in one row only, so the first error is defined.
    let mut sets = vec![format!("{} = {}", column.name, changed(column, rng))];
    let second = *rng.pick(&free);
    if second.name != column.name && rng.percent(40) {
        sets.insert(0, format!("{} = {}", second.name, literal(second, rng)));
    }
    let place = condition(table, "", rng);
    let verb = if rng.percent(10) {
        "UPDATE IGNORE"
    } else {
        "UPDATE"
    };
    let sql = format!(
        "{verb} {} SET {} WHERE {place}",
        table.name,
        sets.join(", ")
    );
    Statement::new("UPDATE", sql, Compare::Changes)
}

fn update_keys(table: &Table, rng: &mut Rng) -> Statement {
    let columns = table.plain_columns();
    let is_key = |column: &&&Column| table.is_in_unique(&column.name);
    let keys: Vec<&Column> = columns.iter().filter(is_key).copied().collect();
    let (Some(order), false) = (table.row_key(), keys.is_empty()) else {
        return delete(table, rng);
    };
    let column = *rng.pick(&keys);
    let sql = format!(
        "UPDATE {} SET {} = {} WHERE {} ORDER BY {} LIMIT {}",
        table.name,
        column.name,
        changed(column, rng),
        condition(table, "", rng),
        order.join(", "),
        rng.range(1..5),
    );
    Statement::new("UPDATE of keys", sql, Compare::Changes)
}

fn delete(table: &Table, rng: &mut Rng) -> Statement {
    let place = condition(table, "", rng);
    let order = table.row_key().filter(|_| rng.percent(60));
    let end = match order {
        Some(order) => format!(" ORDER BY {} LIMIT {}", order.join(", "), rng.range(1..5)),
        None => format!(" AND {}", condition(table, "", rng)),
    };
    let sql = format!("DELETE FROM {} WHERE {place}{end}", table.name);
    Statement::new("DELETE", sql, Compare::Changes)
}

fn delete_join(table: &Table, other: &Table, rng: &mut Rng) -> Statement {
    let sql = format!(
        "DELETE a FROM {} a JOIN {} b ON {} WHERE {} AND {}",
        table.name,
        other.name,
        super::reads::join_condition(table, other, rng),
        condition(table, "a.", rng),
        condition(other, "b.", rng),
    );
    Statement::new("DELETE with a join", sql, Compare::Changes)
}

/// Returns the columns and rows of an INSERT or REPLACE.
fn values(table: &Table, rng: &mut Rng) -> String {
    let count = rng.range(1..ROWS_MAX + 1);
    let mut columns: Vec<&Column> = table.plain_columns();
    // A column without default that is left out is an error in strict modes.
    columns.retain(|column| !may_be_left_out(column) || rng.percent(80));
    let automatic = table.columns.iter().find(|column| column.auto_increment);
    let automatic = automatic.filter(|_| rng.percent(40));
    // A mixture in one statement leaves gaps that each engine may choose.
    let given = rng.percent(30);
    let names: Vec<&str> = columns
        .iter()
        .chain(&automatic)
        .map(|c| c.name.as_str())
        .collect();
    let mut row = || {
        let mut values: Vec<String> = columns.iter().map(|column| literal(column, rng)).collect();
        if automatic.is_some() {
            values.push(number_or_none(given, rng));
        }
        format!("({})", values.join(", "))
    };
    let rows: Vec<String> = (0..count).map(|_| row()).collect();
    format!(
        "{} ({}) VALUES {}",
        table.name,
        names.join(", "),
        rows.join(", ")
    )
}

fn assignments(table: &Table, rng: &mut Rng) -> Vec<(String, String)> {
    let columns = table.plain_columns().into_iter();
    let row = columns.map(|column| (column.name.clone(), literal(column, rng)));
    row.collect()
}

fn may_be_left_out(column: &Column) -> bool {
    column.nullable || column.default.is_some()
}

/// Returns a value for an AUTO_INCREMENT column: a given one, or one that lets the server choose.
fn number_or_none(given: bool, rng: &mut Rng) -> String {
    match given {
        true => rng.range(1..60).to_string(),
        false => rng.pick(&["0", "NULL", "DEFAULT"]).to_string(),
    }
}

/// Returns a literal for a column, rarely one that it refuses.
fn literal(column: &Column, rng: &mut Rng) -> String {
    match rng.below(200) {
        0 => column.kind.bad_literal(rng),
        1 if !column.nullable => "NULL".to_string(),
        2..=5 if may_be_left_out(column) => "DEFAULT".to_string(),
        6..=40 if column.nullable => "NULL".to_string(),
        _ => column.kind.literal(rng),
    }
}

/// Returns an expression for the new value of a column, possibly of its old value.
fn changed(column: &Column, rng: &mut Rng) -> String {
    use super::types::{Family, Kind};
    let name = &column.name;
    match (column.kind, column.kind.family()) {
        _ if rng.percent(40) => literal(column, rng),
        (Kind::Float | Kind::Double, _) => format!("{name} / 2"),
        (_, Family::Number) => {
            let change = rng.pick(&["+ 1", "- 1", "* 2", "+ 10"]);
            format!("{name} {change}")
        }
        (_, Family::Text) => {
            let form = rng.pick(&[
                "UPPER(#)",
                "LOWER(#)",
                "CONCAT(#, ' ')",
                "RTRIM(#)",
                "REVERSE(#)",
            ]);
            form.replace('#', name)
        }
        (_, Family::Bytes) => format!("CONCAT({name}, x'00')"),
        (_, Family::Moment) => format!("{name} - INTERVAL 1 DAY"),
        _ => literal(column, rng),
    }
}
