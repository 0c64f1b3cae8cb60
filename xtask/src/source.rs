//! A scanner of Rust source that separates code, comments and literals, and finds test code and
//! functions.
//!
//! This is a scanner of characters, not a parser: it recognizes comments (nested too), string, raw
//! string, byte and character literals, lifetimes and brackets. The checks need no more, and it has
//! no dependencies to build.

use std::ops::Range;

/// Class of a byte of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// Rust source with the class of each byte.
pub struct Source<'a> {
    text: &'a str,
    classes: Vec<Class>,
}

impl<'a> Source<'a> {
    /// Scans `text`.
    pub fn new(text: &'a str) -> Source<'a> {
        let classes = classify(text.as_bytes());
        Source { text, classes }
    }

    /// Returns the source with comments and the inside of literals blanked. Offsets and lines stay.
    pub fn code(&self) -> String {
        self.only(|class| class == Class::Code)
    }

    /// Returns the source with everything but comments blanked. Offsets and lines stay.
    pub fn comments(&self) -> String {
        self.only(|class| class == Class::Comment)
    }

    /// Returns the source with comments blanked and literals kept. Offsets and lines stay.
    pub fn without_comments(&self) -> String {
        self.only(|class| class != Class::Comment)
    }

    fn only(&self, keep: impl Fn(Class) -> bool) -> String {
        let kept = self.text.bytes().zip(&self.classes);
        let bytes = kept.map(|(byte, class)| match byte {
            b'\n' => b'\n',
            _ if keep(*class) && byte.is_ascii() => byte,
            // One blank for each byte, so that offsets also stay after non-ASCII text.
            _ if keep(*class) => b'?',
            _ => b' ',
        });
        bytes.map(char::from).collect()
    }
}

fn classify(text: &[u8]) -> Vec<Class> {
    let mut classes = vec![Class::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (end, class) = match token(text, at) {
            Some(found) => found,
            None => (at + 1, Class::Code),
        };
        let end = end.min(text.len());
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// Returns the end and class of the comment or literal that starts at `at`, if there is one.
fn token(text: &[u8], at: usize) -> Option<(usize, Class)> {
    let rest = &text[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|byte| *byte == b'\n');
        return Some((at + length.unwrap_or(rest.len()), Class::Comment));
    }
    if rest.starts_with(b"/*") {
        return Some((at + block_comment(rest), Class::Comment));
    }
    let inside_word = at > 0 && is_word(text[at - 1]);
    match rest.first()? {
        b'"' => Some((at + quoted(rest, b'"'), Class::Literal)),
        b'\'' => character(rest).map(|length| (at + length, Class::Literal)),
        b'r' | b'b' | b'c' if !inside_word => raw_string(rest).map(|n| (at + n, Class::Literal)),
        _ => None,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of a literal in quotes with backslash escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal; `None` if the quote starts a lifetime or label.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let first = std::str::from_utf8(&rest[1..rest.len().min(5)])
        .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
        .ok()?;
    let length = 1 + first.chars().next()?.len_utf8();
    (rest.get(length) == Some(&b'\'')).then_some(length + 1)
}

/// Returns the length of a raw string (`r`, `br`, `cr`, any number of hashes), if one starts here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let start = match rest {
        [b'b' | b'c', b'r', ..] => 2,
        [b'r', ..] => 1,
        _ => return None,
    };
    let hashes = rest[start..].iter().take_while(|b| **b == b'#').count();
    if rest.get(start + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = start + hashes + 1;
    let length = rest[body..]
        .windows(close.len())
        .position(|window| window == close);
    Some(length.map_or(rest.len(), |length| body + length + close.len()))
}

/// Returns true if a byte can be part of an identifier.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the offsets of `word` in `text` as a whole word, not as a part of a longer identifier.
pub fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).map(|before| bytes[before]);
            let after = bytes.get(at + word.len()).copied();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// Returns the line of a byte offset, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
}

/// Returns the end of the group that opens with the bracket at `open`: the offset after its closing
/// bracket.
fn group_end(code: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// Returns the end of the item that starts at `from`: after its `;` or its block, or before the end
/// of the enclosing group.
fn item_end(code: &[u8], from: usize) -> (usize, Option<usize>) {
    let mut at = from;
    while at < code.len() {
        match code[at] {
            b';' => return (at + 1, None),
            b'{' => return (group_end(code, at), Some(at)),
            b'(' | b'[' => at = group_end(code, at),
            b'}' | b')' | b']' => return (at, None),
            _ => at += 1,
        }
    }
    (code.len(), None)
}

/// Returns the ranges of items that only exist in tests: `#[cfg(test)]` and `#[cfg(all(test,
/// ...))]`.
pub fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test,"] {
        for (start, _) in code.match_indices(attribute) {
            let mut from = group_end(code.as_bytes(), start + 1);
            // Further attributes belong to the same item.
            while code[from..].trim_start().starts_with("#[") {
                let skipped = code[from..].len() - code[from..].trim_start().len();
                from = group_end(code.as_bytes(), from + skipped + 1);
            }
            ranges.push(start..item_end(code.as_bytes(), from).0);
        }
    }
    ranges
}

/// Function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Function name.
    pub name: String,
    /// Line of its `fn`, counted from 1.
    pub line: usize,
    /// Number of lines from its `fn` to its closing brace.
    pub lines: usize,
}

/// Returns all functions of `code` (see [`Source::code`]) with a body, inner ones too.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii() && is_word(*c as u8))
            .collect();
        // `fn(u8)` is a type and `fn $name` a macro.
        if name.is_empty() {
            continue;
        }
        if let (end, Some(_)) = item_end(code.as_bytes(), at) {
            let line = line_of(code, at);
            let lines = line_of(code, end - 1) - line + 1;
            found.push(Function { name, line, lines });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).code()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "let a = \"x // \\\" y\"; // tail\nlet b = 1; /* in /* nested */ */ let c = '\"';";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains('x') && !code.contains("tail") && !code.contains("nested"));
        assert!(code.contains("let b = 1;") && code.contains("let c ="));
        assert!(Source::new(text).comments().contains("// tail"));
        assert!(Source::new(text).without_comments().contains("x // "));
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let code = code("a(r#\"one \" two\"#); b(br\"three\"); c(r\"\"); for_r\"s\"; end");
        assert!(!code.contains("two") && !code.contains("three"));
        assert!(code.contains("b(") && code.contains("end"));
    }

    #[test]
    fn lifetimes_are_not_character_literals() {
        let code = code("fn f<'a>(x: &'a str) { g('a', '\\'', 'é', b'x') } 'outer: loop {}");
        assert!(code.contains("<'a>(x: &'a str)") && code.contains("'outer: loop"));
        assert!(!code.contains('x') || code.matches('x').count() == 1);
    }

    #[test]
    fn offsets_stay_behind_other_scripts() {
        let text = "// äöü\nfn f() {}";
        assert_eq!(code(text).find("fn"), text.find("fn"));
    }

    #[test]
    fn test_ranges_cover_modules_functions_and_declarations() {
        let text = "fn a() {}\n#[cfg(test)]\n#[path = \"x.rs\"]\nmod t;\nfn b() {}\n#[cfg(test)] mod tests { fn c() {} }\nfn d() {}";
        let code = code(text);
        let inside = |name: &str| {
            let at = code.find(name).unwrap_or_default();
            test_ranges(&code).iter().any(|range| range.contains(&at))
        };
        assert!(inside("mod t;") && inside("fn c"));
        assert!(!inside("fn a") && !inside("fn b") && !inside("fn d"));
    }

    #[test]
    fn functions_are_measured_from_fn_to_closing_brace() {
        let text = "impl T {\n  fn one(\n    x: [u8; 3],\n  ) where Y: Z {\n    { '}'; }\n  }\n  fn none();\n}\nfn two() {}";
        let found = functions(&code(text));
        let shown: Vec<_> = found
            .iter()
            .map(|f| (f.name.as_str(), f.line, f.lines))
            .collect();
        assert_eq!(shown, [("one", 2, 5), ("two", 9, 1)]);
    }
}
