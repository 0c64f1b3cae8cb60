//! Text, Markdown, CSV and HTML reports from a stored result: the same numbers for people, wikis,
//! terminals and programs.

pub mod compare;
pub mod csv;
pub mod decision;
pub mod doctor;
pub mod explain;
pub mod find_rate;
pub mod html;
pub mod insert_benchmark;
pub mod kv_sequence;
pub mod large_values;
pub mod latency;
pub mod linkbench;
pub mod marks;
pub mod oltp_range;
pub mod options;
pub mod profile;
#[cfg(test)]
pub mod sample;
pub mod selection;
pub mod spread;
pub mod sweep;
pub mod table;
pub mod tables;
pub mod theory;
pub mod throughput;

pub use options::ReportOptions;
pub use tables::render;

/// Compares a report with its snapshot file; `UPDATE=1` writes the file instead.
#[cfg(test)]
pub fn assert_snapshot(name: &str, actual: &str) {
    let path = std::path::Path::new("tests/snapshots").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, actual).expect("the snapshot can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs (UPDATE=1 rewrites it); now:\n{actual}",
        path.display()
    );
}
