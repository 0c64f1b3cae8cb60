//! Files of custom workloads with mistakes, and the error message of each.

use rumbench_core::custom::Config;

/// A file without a mistake, in which the tests replace a text. Error messages count lines from 1.
const GOOD: &str = r#"description = "two tables"

[[table]]
name = "accounts"
rows = 100
[[table.column]]
name = "branch"
type = "u32"
distinct = 10
[[table.column]]
name = "note"
type = "bytes"
bytes = { min = 8, max = 20 }
[[table.index]]
name = "by_branch"
columns = ["branch"]

[[table]]
name = "history"
rows = 10
keys = "ordered"
column = [{ name = "text", type = "bytes", bytes = 30 }]

[[phase]]
kind = "load"

[[phase]]
kind = "run"
seconds = 1.5
rate = 100
arrivals = "poisson"

[[phase.operation]]
do = "read"
table = "accounts"
percent = 60
keys = { distribution = "zipfian", theta = 0.9 }

[[phase.operation]]
do = "scan"
table = "accounts"
index = "by_branch"
rows = 5
percent = 40
"#;

/// Returns the error message for the file with `from` replaced by `to`.
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from} is in the file");
    let text = GOOD.replacen(from, to, 1);
    let refused = Config::read("my.toml", &text).expect_err(to);
    refused.to_string()
}

fn assert_refused(from: &str, to: &str, line: usize, expected: &str) {
    let message = refusal(from, to);
    let start = format!("my.toml:{line}: ");
    assert!(message.starts_with(&start), "{start} of {message}");
    assert!(message.contains(expected), "{expected} in {message}");
}

#[test]
fn the_file_without_a_mistake_is_read() {
    let config = Config::read("my.toml", GOOD).unwrap();
    assert_eq!(config.definition.tables.len(), 2);
    assert_eq!(config.definition.operations().count(), 2);
}

#[test]
fn invalid_toml_is_refused_with_its_line() {
    assert_refused("rows = 100", "rows = ", 5, "not TOML");
    assert_refused("rows = 10\n", "rows = 10\nrows = 11\n", 21, "not TOML");
}

#[test]
fn unknown_keys_and_names_are_answered_with_the_nearest_or_with_all() {
    assert_refused("rows = 100", "row = 100", 5, "did you mean `rows`?");
    assert_refused(
        "percent = 60",
        "weight = 60",
        36,
        "there are: do, table, percent",
    );
    assert_refused(
        "description",
        "descriptio",
        1,
        "did you mean `description`?",
    );
    assert_refused("\"read\"", "\"reed\"", 34, "did you mean `read`?");
    assert_refused(
        "\"load\"",
        "\"fill\"",
        25,
        "there are: load, index, settle, run",
    );
    assert_refused(
        "index = \"by_b",
        "index = \"b_b",
        42,
        "did you mean `by_branch`?",
    );
    assert_refused("\"zipfian\"", "\"zipf\"", 37, "did you mean `zipfian`?");
    assert_refused(
        "[\"branch\"]",
        "[\"branches\"]",
        16,
        "did you mean `branch`?",
    );
    assert_refused("\"poisson\"", "\"poison\"", 31, "did you mean `poisson`?");
    assert_refused("\"u32\"", "\"text\"", 8, "there are: bytes, u32, u64, i64");
    assert_refused(
        "rows = 5",
        "write = \"row\"",
        43,
        "no key of a scan is named `write`",
    );
}

#[test]
fn an_undefined_table_is_refused_with_the_defined_ones() {
    let from = "table = \"accounts\"\npercent";
    assert_refused(
        from,
        "table = \"account\"\npercent",
        35,
        "did you mean `accounts`?",
    );
    assert_refused(
        from,
        "table = \"xyz\"\npercent",
        35,
        "there are: accounts, history",
    );
    assert_refused(
        from,
        "percent",
        33,
        "needs `table`: one of accounts, history",
    );
}

#[test]
fn values_of_a_wrong_type_or_out_of_range_are_refused_with_what_is_allowed() {
    assert_refused(
        "rows = 100",
        "rows = \"100\"",
        5,
        "a whole number from 1 to 34359738368, not a string",
    );
    assert_refused("rows = 100", "rows = 0", 5, "from 1 to 34359738368, not 0");
    assert_refused("rows = 100", "rows = 1.5", 5, "not a float");
    assert_refused(
        "seconds = 1.5",
        "seconds = true",
        29,
        "a number from 0.1 to 10000000, not a boolean",
    );
    assert_refused(
        "name = \"branch\"",
        "name = 7",
        7,
        "`name` must be a string, not an integer",
    );
    assert_refused("bytes = 30", "bytes = 7", 22, "from 8 to 1048576, not 7");
    assert_refused("min = 8, max = 20", "min = 8", 13, "`bytes` needs `max`");
    assert_refused("min = 8", "min = 80", 13, "min = 80 above max = 20");
    assert_refused(
        "[\"branch\"]",
        "\"branch\"",
        16,
        "a list of strings, not a string",
    );
    assert_refused(
        "distinct = 10",
        "bytes = 10",
        9,
        "`bytes` is for columns of type bytes",
    );
    assert_refused("[\"branch\"]", "[\"note\"]", 16, "is no number");
}

#[test]
fn distributions_want_their_parameters() {
    let keys = "{ distribution = \"zipfian\", theta = 0.9 }";
    let example = "keys = { distribution = \"zipfian\", theta = 0.99 }";
    assert_refused(keys, "\"zipfian\"", 37, example);
    assert_refused(", theta = 0.9", "", 37, example);
    assert_refused(", theta = 0.9", ", theta = 1", 37, "cannot be 1");
    assert_refused(keys, "\"hotspot\"", 37, "hot_rows_percent = 20");
    assert_refused(keys, "\"normal\"", 37, "there are: uniform, zipfian");
    assert_refused(
        "\"zipfian\", theta = 0.9",
        "\"uniform\", theta = 0.9",
        37,
        "named `theta`",
    );
}

#[test]
fn mixes_that_do_not_add_up_and_phases_out_of_order_are_refused() {
    assert_refused(
        "percent = 40",
        "percent = 41",
        33,
        "add up to 101, not to 100",
    );
    assert_refused(
        "seconds = 1.5",
        "requests = 5\nseconds = 1",
        27,
        "one of them",
    );
    assert_refused("seconds = 1.5\n", "", 27, "needs `seconds` or `requests`");
    assert_refused("rate = 100\n", "", 30, "`arrivals` needs `rate`");
    assert_refused("\"load\"", "\"settle\"", 24, "the first phase must be");
    let twice = "kind = \"load\"\n[[phase]]\nkind = \"load\"";
    assert_refused("kind = \"load\"", twice, 26, "the load must be the first");
    let late = "percent = 40\n[[phase]]\nkind = \"index\"";
    assert_refused(
        "percent = 40",
        late,
        27,
        "put the phase of kind index before",
    );
    assert_refused(
        "\"history\"",
        "\"Accounts\"",
        18,
        "there is a table `Accounts` already",
    );
    assert_refused(
        "name = \"note\"",
        "name = \"Branch\"",
        10,
        "a column `Branch` already",
    );
    assert_refused(
        "name = \"note\"",
        "name = \"id\"",
        10,
        "every table's key is `id`",
    );
    assert_refused("\"history\"", "\"order\"", 19, "word of SQL");
    assert_refused("\"history\"", "\"hi story\"", 19, "letters, digits");
    assert_refused("rows = 5\n", "", 39, "needs `rows`");
}

#[test]
fn a_file_without_tables_or_phases_says_what_it_lacks() {
    let refused = |text: &str| Config::read("my.toml", text).unwrap_err().to_string();
    assert!(refused("").contains("1 to 16 tables as [[table]], not 0"));
    let table =
        &GOOD[GOOD.find("[[table]]\nname = \"history\"").unwrap()..GOOD.find("[[phase]]").unwrap()];
    assert!(refused(table).contains("must have a [[phase]]"));
    let two = "[[table]]\nname = \"t\"\nrows = 1\n[[phase]]\nkind = \"load\"\n";
    assert!(refused(two).contains("1 to 15 columns"), "{}", refused(two));
}
