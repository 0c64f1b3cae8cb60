//! Output of answers: with `--json` one document on stdout, otherwise text for people. Advice and
//! damage go to stderr.
//!
//! Long lists are written while they are read. A scan of a large database thus needs no memory, and
//! ends when the reader closes the pipe (`| head`).

use std::io::{BufWriter, ErrorKind, Write};

use serde_json::{Map, Value};

/// The reader has closed the output. Not a failure.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output went away")]
pub struct ReaderGone;

/// Output of one command.
pub struct Output {
    /// True if the answer is a JSON document.
    pub json: bool,
    out: BufWriter<std::io::Stdout>,
    /// True once anything has been written.
    begun: bool,
}

impl Output {
    /// Creates an output to stdout.
    pub fn new(json: bool) -> Output {
        Output {
            json,
            out: BufWriter::new(std::io::stdout()),
            begun: false,
        }
    }

    /// Writes one line.
    pub fn line(&mut self, line: impl AsRef<str>) -> anyhow::Result<()> {
        self.raw(line.as_ref())?;
        self.raw("\n")
    }

    fn raw(&mut self, text: &str) -> anyhow::Result<()> {
        self.begun = true;
        let written = self.out.write_all(text.as_bytes());
        written.map_err(write_failed)
    }

    /// Writes and flushes the document or the lines, so that advice follows the answer.
    pub fn answer(&mut self, document: &Value, lines: impl AsRef<str>) -> anyhow::Result<()> {
        if self.json {
            self.line(format!("{document:#}"))?
        } else {
            self.raw(lines.as_ref())?
        }
        self.flush()
    }

    /// Begins a document with these fields and a list that is written item by item.
    pub fn list(&mut self, fields: &Map<String, Value>, name: &str) -> anyhow::Result<List<'_>> {
        if self.json {
            self.raw("{\n")?;
            for (field, value) in fields {
                self.raw(&format!("  {}: {value},\n", Value::from(field.as_str())))?;
            }
            self.raw(&format!("  {}: [", Value::from(name)))?;
        }
        Ok(List {
            output: self,
            items: 0,
        })
    }

    /// Flushes all output to stdout.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.out.flush().map_err(write_failed)
    }

    /// Reports the reason for a missing answer; with `--json` also as a document, unless one has
    /// begun.
    pub fn failure(&mut self, message: &str, exit: u8) {
        if self.json && !self.begun {
            let document = serde_json::json!({ "error": message, "exit_code": exit });
            let _ = self.line(format!("{document:#}"));
        }
        let _ = self.flush();
        advise(&format!("alluvium: {message}"));
    }
}

fn write_failed(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow::Error::new(ReaderGone),
        _ => anyhow::Error::new(error).context("cannot write the output"),
    }
}

/// List in progress.
pub struct List<'a> {
    output: &'a mut Output,
    items: u64,
}

impl List<'_> {
    /// Adds an item; only the requested form is built.
    pub fn item(
        &mut self,
        document: impl FnOnce() -> Value,
        line: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        self.items += 1;
        if !self.output.json {
            return self.output.line(line());
        }
        let comma = if self.items > 1 { "," } else { "" };
        let item = document();
        self.output.raw(&format!("{comma}\n    {item}"))
    }

    /// Ends the list and the document with these fields.
    pub fn end(self, fields: &Map<String, Value>) -> anyhow::Result<()> {
        if !self.output.json {
            return self.output.flush();
        }
        let close = if self.items > 0 { "\n  ]" } else { "]" };
        self.output.raw(close)?;
        for (field, value) in fields {
            let field = Value::from(field.as_str());
            self.output.raw(&format!(",\n  {field}: {value}"))?;
        }
        self.output.raw("\n}\n")?;
        self.output.flush()
    }
}

/// Returns the fields of a JSON object written with `json!`.
pub fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Prints a line to stderr, separate from the answer.
pub fn advise(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
