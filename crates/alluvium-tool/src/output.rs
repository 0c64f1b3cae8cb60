//! Where answers go: with `--json` one document on stdout, otherwise text for people. Advice and damage go to stderr.
//!
//! Long lists are written as they are read, so that a scan of a large database needs no memory and a reader who has seen
//! enough (`| head`) ends it.

use std::io::{BufWriter, ErrorKind, Write};

use serde_json::{Map, Value};

/// Nobody reads the output any more. Not a failure.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output went away")]
pub struct ReaderGone;

/// The output of one command.
pub struct Output {
    /// Whether the answer is a JSON document.
    pub json: bool,
    out: BufWriter<std::io::Stdout>,
    /// Whether anything was written.
    begun: bool,
}

impl Output {
    /// Output to stdout.
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

    /// Writes the document, or the lines, for good: advice comes behind the answer.
    pub fn answer(&mut self, document: &Value, lines: impl AsRef<str>) -> anyhow::Result<()> {
        match self.json {
            true => self.line(format!("{document:#}"))?,
            false => self.raw(lines.as_ref())?,
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

    /// Hands everything to the reader.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.out.flush().map_err(write_failed)
    }

    /// Says why there is no answer, as a document where one was asked for and none was begun.
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

/// A list that is being written.
pub struct List<'a> {
    output: &'a mut Output,
    items: u64,
}

impl List<'_> {
    /// Adds an item; only the form that is asked for is made.
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

/// The fields of a JSON object that was written with `json!`.
pub fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Says something to the person, beside the answer.
pub fn advise(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
