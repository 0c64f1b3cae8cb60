//! Options of all reports.

use super::table::Format;

/// Options for printing a result.
#[derive(Debug, Clone, Default)]
pub struct ReportOptions {
    /// Base of ratios, `engine[:variant]`. `None` for the first engine.
    pub base: Option<String>,
    /// Text or Markdown.
    pub format: Format,
    /// True to put engines with different durability into the same tables.
    pub mix_durability: bool,
    /// True to print all tables of every point and step of a sweep.
    pub all_tables: bool,
    /// Endurance of the device in terabytes written. `None` for [`super::decision::ENDURANCE_TB`].
    pub endurance_tb: Option<f64>,
}
