//! Listing of one backup: a file of text lines with names, lengths and checksums.
//!
//! ```text
//! alluvium-backup 1
//! seqno 1234
//! created 1795000000
//! state 000007.state 512 0123456789abcdef
//! table 000017.sst 89abcdef01234567.table 4096 0123456789abcdef
//! end fedcba9876543210
//! ```
//!
//! The last line has the checksum of all bytes before it. The codec is pure;
//! `docs/format/backup.md` has the rules.

use std::path::Path;

use crate::base::checksum::checksum;
use crate::error::{Error, Result};

/// The newest format of backups that this build reads, and the one it writes.
pub(super) const FORMAT_VERSION: u32 = 1;

/// File of the store, as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedFile {
    /// Its name in the store, tables in their subdirectory.
    pub name: String,
    pub bytes: u64,
    pub checksum: u64,
}

/// Listing of one backup, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    /// The newest commit in the backup.
    pub seqno: u64,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    pub state: ListedFile,
    /// Tables with their names in a database.
    pub tables: Vec<(String, ListedFile)>,
}

impl Listing {
    pub fn encode(&self) -> String {
        let mut out = format!("alluvium-backup {FORMAT_VERSION}\n");
        out += &format!("seqno {}\n", self.seqno);
        out += &format!("created {}\n", self.created);
        out += &format!("state {}\n", shown(&self.state));
        for (name, file) in &self.tables {
            out += &format!("table {name} {}\n", shown(file));
        }
        let sum = checksum(out.as_bytes(), 0);
        out += &format!("end {sum:016x}\n");
        out
    }

    /// Reads the bytes of the listing at `path`.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Listing> {
        let damaged = |found: &str| {
            let expected = "lines with their checksum";
            Error::corruption(path, 0, "listing of a backup", expected, found)
        };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("other bytes"))?;
        let body = checked_body(text).ok_or_else(|| damaged("a wrong checksum"))?;
        let mut lines = body.lines();
        let version = lines
            .next()
            .and_then(|line| line.strip_prefix("alluvium-backup "))
            .and_then(|version| version.parse::<u32>().ok());
        match version {
            Some(FORMAT_VERSION) => parse(lines).ok_or_else(|| damaged("malformed lines")),
            Some(found) if found > FORMAT_VERSION => Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found,
                supported: FORMAT_VERSION,
            }),
            _ => Err(damaged("no version")),
        }
    }
}

/// Returns the text before the last line, if that line has the right checksum.
fn checked_body(text: &str) -> Option<&str> {
    let lines = text.strip_suffix('\n')?;
    let body = &text[..lines.rfind('\n')? + 1];
    let end = format!("end {:016x}", checksum(body.as_bytes(), 0));
    (lines[body.len()..] == *end).then_some(body)
}

fn parse<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<Listing> {
    let mut next = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
    let seqno = next("seqno")?.parse().ok()?;
    let created = next("created")?.parse().ok()?;
    let state = parse_file(next("state")?)?;
    let mut tables = Vec::new();
    for line in lines {
        let (name, file) = line.strip_prefix("table ")?.split_once(' ')?;
        tables.push((plain(name)?, parse_file(file)?));
    }
    Some(Listing {
        seqno,
        created,
        state,
        tables,
    })
}

fn shown(file: &ListedFile) -> String {
    format!("{} {} {:016x}", file.name, file.bytes, file.checksum)
}

fn parse_file(words: &str) -> Option<ListedFile> {
    let mut words = words.split(' ');
    let file = ListedFile {
        name: plain(words.next()?)?,
        bytes: words.next()?.parse().ok()?,
        checksum: u64::from_str_radix(words.next()?, 16).ok()?,
    };
    words.next().is_none().then_some(file)
}

/// Returns a name that stays in its directory: not empty, no leading dot, no slash.
fn plain(name: &str) -> Option<String> {
    let sound = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    sound.then(|| name.to_owned())
}

pub(super) fn listing_name(id: u64) -> String {
    format!("{id:06}.backup")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    fn file(name: &str, bytes: u64) -> ListedFile {
        ListedFile {
            name: name.into(),
            bytes,
            checksum: bytes.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    fn sample() -> Listing {
        Listing {
            seqno: 77,
            created: 1_795_000_000,
            state: file("000003.state", 400),
            tables: vec![
                ("000001.sst".into(), file("00000000000000aa.table", 4096)),
                ("000009.sst".into(), file("00000000000000bb.table", 8192)),
            ],
        }
    }

    #[test]
    fn a_listing_survives_its_encoding_and_no_flip_in_it_does() {
        let path = Path::new("000003.backup");
        let bytes = sample().encode().into_bytes();
        assert_eq!(Listing::decode(&bytes, path).unwrap(), sample());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let result = Listing::decode(&bad, path);
            assert!(matches!(result, Err(Error::Corruption { .. })), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Listing::decode(&bytes[..cut], path).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn a_newer_listing_is_refused_as_such_and_names_stay_in_the_store() {
        let with_sum = |body: &str| format!("{body}end {:016x}\n", checksum(body.as_bytes(), 0));
        let newer = with_sum("alluvium-backup 2\nwhatever\n");
        let result = Listing::decode(newer.as_bytes(), Path::new("x"));
        assert!(matches!(result, Err(Error::NewerFormat { found: 2, .. })));
        for name in ["../x", "/x", "..", ""] {
            let mut listing = sample();
            listing.state.name = name.into();
            let bytes = listing.encode();
            assert!(Listing::decode(bytes.as_bytes(), Path::new("x")).is_err());
        }
    }

    /// Each text gets a valid checksum, so that the lines themselves are parsed.
    #[test]
    fn fuzz_listings_are_refused_or_round_trip() {
        let text = sample().encode();
        let body = &text[..text.find("end ").unwrap()];
        let path = Path::new("000003.backup");
        fuzz_decoder("listings of backups", &[body.into()], 64, |body| {
            let _ = Listing::decode(body, path);
            let mut bytes = body.to_vec();
            bytes.extend(format!("end {:016x}\n", checksum(body, 0)).bytes());
            if let Ok(read) = Listing::decode(&bytes, path) {
                assert_eq!(
                    Listing::decode(read.encode().as_bytes(), path).unwrap(),
                    read
                );
            }
        });
    }
}
