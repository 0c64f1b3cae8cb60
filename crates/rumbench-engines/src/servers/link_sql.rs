//! SQL of LinkBench's tables for both servers, in the form that `sql` describes.
//!
//! Tables and statements are those of the published MySQL and PostgreSQL stores, with columns of
//! bytes. The list index is ordered by time descending, then id2, except in MyRocks, which has no
//! sort direction per column: its index is ascending, in a column family in reverse order, and read
//! backwards, so its files are scanned forward. For any order other than the exact reverse, MyRocks
//! reads and sorts the whole list, which may have millions of links.

use rumbench_core::linkbench::EqualTimes;

use super::sql::{Dialect, Form};

/// Statement kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Query {
    LoadNodes {
        rows: usize,
    },
    InsertLinks {
        rows: usize,
    },
    InsertCounts {
        rows: usize,
    },
    /// Inserts a link unless it exists.
    AddLink,
    UpdateLink,
    HideLink,
    RemoveLink,
    /// Reads a link; `locked` if the transaction then changes it.
    ReadLink {
        locked: bool,
    },
    Multiget {
        ids: usize,
    },
    ListLinks,
    AddToCount,
    TakeFromCount,
    ReadCount,
    AddNode,
    UpdateNode,
    DeleteNode,
    ReadNode,
}

impl Query {
    pub(super) fn text(self, dialect: Dialect) -> String {
        dialect.text(&self.common(dialect))
    }

    fn common(self, dialect: Dialect) -> String {
        match self {
            Query::LoadNodes { rows } => {
                insert("nodetable (id, type, version, time, data)", 5, rows)
            }
            Query::InsertLinks { rows } => insert(LINK_COLUMNS, 7, rows),
            Query::InsertCounts { rows } => {
                insert("counttable (id, link_type, count, time, version)", 5, rows)
            }
            Query::AddLink => add_link(dialect),
            Query::UpdateLink => format!(
                "UPDATE linktable SET visibility = ?, time = ?, version = ?, data = ? WHERE {KEY}"
            ),
            Query::HideLink => format!("UPDATE linktable SET visibility = 0 WHERE {KEY}"),
            Query::RemoveLink => format!("DELETE FROM linktable WHERE {KEY}"),
            Query::ReadLink { locked } => format!(
                "SELECT visibility, time, version, data FROM linktable WHERE {KEY}{}",
                if locked { " FOR UPDATE" } else { "" }
            ),
            Query::Multiget { ids } => format!(
                "SELECT id2, visibility, time, version, data FROM linktable \
                 WHERE link_type = ? AND id1 = ? AND id2 IN ({})",
                vec!["?"; ids].join(", ")
            ),
            Query::ListLinks => list_links(dialect),
            Query::AddToCount => add_to_count(dialect),
            Query::TakeFromCount => {
                "UPDATE counttable SET count = count - 1, time = ?, version = version + 1 \
                 WHERE id = ? AND link_type = ? AND count > 0"
                    .to_string()
            }
            Query::ReadCount => {
                "SELECT count, time, version FROM counttable WHERE id = ? AND link_type = ?"
                    .to_string()
            }
            Query::AddNode => {
                insert("nodetable (type, version, time, data)", 4, 1) + " RETURNING id"
            }
            Query::UpdateNode => {
                "UPDATE nodetable SET version = ?, time = ?, data = ? WHERE id = ? AND type = ?"
                    .to_string()
            }
            Query::DeleteNode => "DELETE FROM nodetable WHERE id = ? AND type = ?".to_string(),
            Query::ReadNode => {
                "SELECT type, version, time, data FROM nodetable WHERE id = ?".to_string()
            }
        }
    }
}

const KEY: &str = "link_type = ? AND id1 = ? AND id2 = ?";

fn add_link(dialect: Dialect) -> String {
    let insert = insert(LINK_COLUMNS, 7, 1);
    match dialect {
        Dialect::Postgres => insert + " ON CONFLICT DO NOTHING",
        Dialect::Maria(_) => insert.replacen("INSERT", "INSERT IGNORE", 1),
    }
}

fn list_links(dialect: Dialect) -> String {
    let (forced, limit) = match dialect {
        Dialect::Postgres => ("", "LIMIT ? OFFSET ?"),
        Dialect::Maria(_) => (" FORCE INDEX (id1_type)", "LIMIT ?, ?"),
    };
    let direction = match equal_times(dialect) {
        EqualTimes::Ascending => "",
        EqualTimes::Descending => " DESC",
    };
    format!(
        "SELECT time, id2, version, data FROM linktable{forced} \
         WHERE id1 = ? AND link_type = ? AND visibility = 1 AND time >= ? AND time <= ? \
         ORDER BY time DESC, id2{direction} {limit}"
    )
}

/// Returns the order of links with equal times that the list index yields without sorting.
pub(super) fn equal_times(dialect: Dialect) -> EqualTimes {
    match dialect {
        Dialect::Maria(Form::MyRocks) => EqualTimes::Descending,
        Dialect::Maria(_) | Dialect::Postgres => EqualTimes::Ascending,
    }
}

fn add_to_count(dialect: Dialect) -> String {
    let otherwise = match dialect {
        Dialect::Postgres => {
            "ON CONFLICT (id, link_type) DO UPDATE SET count = counttable.count + 1, \
             time = excluded.time, version = counttable.version + 1"
        }
        Dialect::Maria(_) => {
            "ON DUPLICATE KEY UPDATE count = count + 1, time = VALUES(time), version = version + 1"
        }
    };
    format!(
        "INSERT INTO counttable (id, link_type, count, time, version) VALUES (?, ?, 1, ?, 0) {otherwise}"
    )
}

const LINK_COLUMNS: &str = "linktable (link_type, id1, id2, visibility, time, version, data)";

fn insert(columns: &str, count: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; count].join(", "));
    format!(
        "INSERT INTO {columns} VALUES {}",
        vec![row; rows].join(", ")
    )
}

/// Sizes of the `IN` list with a statement of their own. A list is padded to the next size with its
/// last id; a row is returned only once, so the padding changes nothing.
pub(super) const MULTIGET_SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Returns the `CREATE TABLE` statements. On MyRocks a comment assigns each index its column
/// family.
pub(super) fn create_tables(dialect: Dialect) -> Vec<String> {
    let options = dialect.table_options();
    let (whole, small, short, node_id, bytes, node_bytes) = match dialect {
        Dialect::Postgres => ("bigint", "int", "smallint", "bigserial", "bytea", "bytea"),
        Dialect::Maria(_) => (
            "BIGINT UNSIGNED",
            "INT UNSIGNED",
            "TINYINT UNSIGNED",
            "BIGINT UNSIGNED AUTO_INCREMENT",
            "VARBINARY(255)",
            "MEDIUMBLOB",
        ),
    };
    let family = |name: &str| match dialect {
        Dialect::Maria(Form::MyRocks) => format!(" COMMENT 'cfname={name}'"),
        _ => String::new(),
    };
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS nodetable (id {node_id} NOT NULL, type {small} NOT NULL, \
             version {whole} NOT NULL, time {small} NOT NULL, data {node_bytes} NOT NULL, \
             PRIMARY KEY (id){}){options}",
            family("cf_node_pk")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS linktable (link_type {whole} NOT NULL, id1 {whole} NOT NULL, \
             id2 {whole} NOT NULL, visibility {short} NOT NULL, time {whole} NOT NULL, version {small} NOT NULL, \
             data {bytes} NOT NULL, PRIMARY KEY (link_type, id1, id2){}){options}",
            family("cf_link_pk")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS counttable (id {whole} NOT NULL, link_type {whole} NOT NULL, \
             count {whole} NOT NULL, time {whole} NOT NULL, version {whole} NOT NULL, \
             PRIMARY KEY (id, link_type){}){options}",
            family("cf_count_pk")
        ),
    ]
}

/// Returns the statement that creates the covering index of the list query.
pub(super) fn create_index(dialect: Dialect) -> String {
    let (time, family) = match dialect {
        Dialect::Maria(Form::MyRocks) => ("time", " COMMENT 'cfname=rev:cf_link_id1_type'"),
        _ => ("time DESC", ""),
    };
    format!(
        "CREATE INDEX IF NOT EXISTS id1_type ON linktable \
         (id1, link_type, visibility, {time}, id2, version, data){family}"
    )
}

pub(super) const TOTALS: &str = "SELECT (SELECT count(*) FROM nodetable), (SELECT count(*) FROM linktable), \
     (SELECT count(*) FROM linktable WHERE visibility = 1), (SELECT count(*) FROM counttable)";

/// Query for a count that differs from the visible links it counts; an absent count is 0.
pub(super) const WRONG_COUNTS: &str = "WITH visible AS (
    SELECT id1, link_type, count(*) AS links FROM linktable
    WHERE visibility = 1 GROUP BY id1, link_type
)
SELECT counttable.id, counttable.link_type, counttable.count, coalesce(links, 0)
FROM counttable LEFT JOIN visible
    ON visible.id1 = counttable.id AND visible.link_type = counttable.link_type
WHERE counttable.count <> coalesce(links, 0)
UNION ALL
SELECT visible.id1, visible.link_type, 0, links
FROM visible LEFT JOIN counttable
    ON visible.id1 = counttable.id AND visible.link_type = counttable.link_type
WHERE counttable.id IS NULL
LIMIT 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_differ_only_where_the_servers_do() {
        assert_eq!(
            Query::HideLink.text(Dialect::Postgres),
            "UPDATE linktable SET visibility = 0 WHERE link_type = $1 AND id1 = $2 AND id2 = $3"
        );
        assert!(
            Query::AddLink
                .text(Dialect::Maria(Form::InnoDb))
                .starts_with("INSERT IGNORE INTO linktable")
        );
        assert!(
            Query::AddLink
                .text(Dialect::Postgres)
                .ends_with("$7) ON CONFLICT DO NOTHING")
        );
        let two = Query::LoadNodes { rows: 2 }.text(Dialect::Maria(Form::InnoDb));
        assert!(
            two.ends_with("VALUES (?, ?, ?, ?, ?), (?, ?, ?, ?, ?)"),
            "{two}"
        );
    }

    #[test]
    fn only_myrocks_has_column_families() {
        let text = |dialect| create_tables(dialect).concat() + &create_index(dialect);
        assert!(
            text(Dialect::Maria(Form::MyRocks)).contains("COMMENT 'cfname=rev:cf_link_id1_type'")
        );
        for dialect in [
            Dialect::Maria(Form::InnoDb),
            Dialect::Maria(Form::Alluvium),
            Dialect::Postgres,
        ] {
            assert!(!text(dialect).contains("cfname") && text(dialect).contains("time DESC"));
        }
    }
}
