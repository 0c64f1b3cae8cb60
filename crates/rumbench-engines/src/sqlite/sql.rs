//! SQL statements of the SQLite engine, as text.
//!
//! All statements except the list find rows by primary key. The covering index `id1_type` alone
//! answers lists: it holds all columns in the order of the list query, so SQLite sorts nothing.
//! Links and counts are `WITHOUT ROWID`: their primary key is the table's tree, as in the other
//! engines. Nodes have an integer key, which is SQLite's own row id.

/// Tables of LinkBench.
pub(super) const CREATE_TABLES: &str = "
CREATE TABLE IF NOT EXISTS nodetable (
    id      INTEGER PRIMARY KEY,
    type    INTEGER NOT NULL,
    version INTEGER NOT NULL,
    time    INTEGER NOT NULL,
    data    BLOB    NOT NULL
);
CREATE TABLE IF NOT EXISTS linktable (
    link_type  INTEGER NOT NULL,
    id1        INTEGER NOT NULL,
    id2        INTEGER NOT NULL,
    visibility INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    data       BLOB    NOT NULL,
    PRIMARY KEY (link_type, id1, id2)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counttable (
    id        INTEGER NOT NULL,
    link_type INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    time      INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (id, link_type)
) WITHOUT ROWID;
";

/// Covering index of the list query.
pub(super) const CREATE_INDEX: &str = "
CREATE INDEX IF NOT EXISTS id1_type
    ON linktable (id1, link_type, visibility, time DESC, id2, version, data);
";

/// Highest node id, 0 without nodes.
pub(super) const HIGHEST_NODE: &str = "SELECT coalesce(max(id), 0) FROM nodetable";

pub(super) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

pub(super) const INSERT_NODE: &str =
    "INSERT INTO nodetable (id, type, version, time, data) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const UPDATE_NODE: &str =
    "UPDATE nodetable SET version = ?3, time = ?4, data = ?5 WHERE id = ?1 AND type = ?2";
pub(super) const DELETE_NODE: &str = "DELETE FROM nodetable WHERE id = ?1 AND type = ?2";
pub(super) const READ_NODE: &str = "SELECT type, version, time, data FROM nodetable WHERE id = ?1";

pub(super) const INSERT_LINK: &str = "
INSERT INTO linktable (link_type, id1, id2, visibility, time, version, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(super) const UPDATE_LINK: &str = "
UPDATE linktable SET visibility = ?4, time = ?5, version = ?6, data = ?7
WHERE link_type = ?1 AND id1 = ?2 AND id2 = ?3";
pub(super) const HIDE_LINK: &str = "
UPDATE linktable SET visibility = 0 WHERE link_type = ?1 AND id1 = ?2 AND id2 = ?3";
pub(super) const REMOVE_LINK: &str =
    "DELETE FROM linktable WHERE link_type = ?1 AND id1 = ?2 AND id2 = ?3";
pub(super) const READ_LINK: &str = "
SELECT visibility, time, version, data FROM linktable
WHERE link_type = ?1 AND id1 = ?2 AND id2 = ?3";
pub(super) const LIST_LINKS: &str = "
SELECT time, id2, version, data FROM linktable
WHERE id1 = ?1 AND link_type = ?2 AND visibility = 1 AND time BETWEEN ?3 AND ?4
ORDER BY time DESC, id2 LIMIT ?6 OFFSET ?5";

pub(super) const INSERT_COUNT: &str =
    "INSERT INTO counttable (id, link_type, count, time, version) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const ADD_TO_COUNT: &str = "
INSERT INTO counttable (id, link_type, count, time, version) VALUES (?1, ?2, 1, ?3, 0)
ON CONFLICT (id, link_type) DO UPDATE
SET count = count + 1, time = excluded.time, version = version + 1";
pub(super) const TAKE_FROM_COUNT: &str = "
UPDATE counttable SET count = count - 1, time = ?3, version = version + 1
WHERE id = ?1 AND link_type = ?2 AND count > 0";
pub(super) const READ_COUNT: &str =
    "SELECT count, time, version FROM counttable WHERE id = ?1 AND link_type = ?2";

/// Sizes of the `IN` list that have a statement of their own. A list is padded to the next size
/// with its last id, which changes nothing because a row is returned once.
pub(super) const MULTIGET_SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Returns the multiget statement for `ids` ids. Parameters 1 and 2 are type and id1.
pub(super) fn multiget(ids: usize) -> String {
    let marks = vec!["?"; ids].join(", ");
    format!(
        "SELECT id2, visibility, time, version, data FROM linktable \
         WHERE link_type = ? AND id1 = ? AND id2 IN ({marks})"
    )
}

pub(super) const TOTALS: &str = "
SELECT (SELECT count(*) FROM nodetable),
       (SELECT count(*) FROM linktable),
       (SELECT count(*) FROM linktable WHERE visibility = 1),
       (SELECT count(*) FROM counttable)";

/// Selects a count that differs from the number of visible links; an absent count is 0.
pub(super) const WRONG_COUNTS: &str = "
WITH visible AS (
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

/// Compares every index entry with its row, and each row with the index. Returns one row `ok` if
/// all agree.
pub(super) const CHECK_INDEX: &str = "PRAGMA integrity_check(1)";
