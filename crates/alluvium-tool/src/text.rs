//! Conversion between bytes and text. Keys and values are shown as printable ASCII with `\xNN` for
//! all other bytes, or as hexadecimal digits.

use std::fmt::Write as _;

use anyhow::{Context, bail};

/// Text form of keys and values, on the command line and in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Text with escapes: `\\`, and `\xNN` for every byte that is not printable ASCII.
    Escaped,
    /// Two hexadecimal digits for each byte.
    Hex,
}

impl Coding {
    /// Returns the bytes as text.
    pub fn show(self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len());
        for &byte in bytes {
            // Writing to a string never fails.
            let _ = match (self, byte) {
                (Coding::Hex, _) => write!(out, "{byte:02x}"),
                (Coding::Escaped, b'\\') => write!(out, "\\\\"),
                (Coding::Escaped, b' '..=b'~') => write!(out, "{}", char::from(byte)),
                (Coding::Escaped, _) => write!(out, "\\x{byte:02x}"),
            };
        }
        out
    }

    /// Decodes a word of the command line.
    ///
    /// # Errors
    ///
    /// A message that names the invalid part of the word.
    pub fn read(self, word: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Coding::Escaped => unescape(word),
            Coding::Hex => unhex(word),
        }
    }
}

/// Lists numbers for a message about another one.
pub fn listed(numbers: &[u64]) -> String {
    if numbers.is_empty() {
        return "there are none".to_owned();
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("there are: {}", numbers.join(", "))
}

fn unescape(word: &str) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(word.len());
    let mut bytes = word.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'\\') => out.push(b'\\'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'0') => out.push(0),
            Some(b'x') => {
                let digits = [bytes.next(), bytes.next()];
                let byte = digits.map(|d| d.and_then(|d| char::from(d).to_digit(16)));
                let [Some(high), Some(low)] = byte else {
                    bail!("`{word}` has a `\\x` without two hexadecimal digits after it");
                };
                out.push((high * 16 + low) as u8);
            }
            _ => bail!(
                "`{word}` has a backslash that begins no escape: write `\\\\` for a backslash, `\\xNN` for a byte"
            ),
        }
    }
    Ok(out)
}

fn unhex(word: &str) -> anyhow::Result<Vec<u8>> {
    let digits: Option<Vec<u32>> = word.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.with_context(|| format!("`{word}` has other than hexadecimal digits"))?;
    if digits.len() % 2 != 0 {
        bail!("`{word}` has an odd number of hexadecimal digits");
    }
    let pair = |pair: &[u32]| pair.iter().fold(0, |sum, digit| sum * 16 + digit) as u8;
    Ok(digits.chunks(2).map(pair).collect())
}

/// Formats a number of bytes for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Formats a count with its noun.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats a time in seconds since 1970 as a date, by the algorithm of proleptic Gregorian days.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    // Years begin in March, so that a leap day is the last day of one; 400 years always have the
    // same number of days.
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Formats an error and its causes in one line without repetition: messages of the engine include
/// their own cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for message in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = message;
        } else if !line.contains(&message) {
            line = format!("{line}: {message}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_a_message_names_is_said_once() {
        let cause = std::io::Error::from_raw_os_error(2);
        let path = std::path::Path::new("db/CURRENT");
        let error = anyhow::Error::new(alluvium::Error::io("open", path, cause));
        let line = with_causes(&error.context("cannot open db"));
        let expected =
            "cannot open db: cannot open db/CURRENT: No such file or directory (os error 2)";
        assert_eq!(line, expected);
    }

    #[test]
    fn every_byte_comes_back_in_both_codings() {
        let all: Vec<u8> = (0..=255).collect();
        for coding in [Coding::Escaped, Coding::Hex] {
            let shown = coding.show(&all);
            assert!(shown.is_ascii());
            assert_eq!(coding.read(&shown).unwrap(), all);
        }
    }

    #[test]
    fn escapes_are_read_and_text_is_utf8() {
        let read = |word| Coding::Escaped.read(word).unwrap();
        assert_eq!(read(r"a\x00\\\n\0"), b"a\0\\\n\0");
        assert_eq!(read("ü"), [0xC3, 0xBC]);
        assert_eq!(Coding::Hex.read("00fF").unwrap(), [0, 255]);
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for word in [r"\", r"\q", r"\x1", r"\xg0", r"\x"] {
            assert!(Coding::Escaped.read(word).is_err(), "{word}");
        }
        for word in ["0", "0g", "ü1"] {
            assert!(Coding::Hex.read(word).is_err(), "{word}");
        }
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(utc(1_735_689_600), "2025-01-01 00:00 UTC");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
    }
}
