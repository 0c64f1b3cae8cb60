//! Escaping of text for the HTML report. Control characters become a visible replacement character.
//! All text passes through this module.
//!
//! Engine names, settings, error texts and command lines come from outside. Numbers and class names
//! that the neighboring modules create are written as they are.

/// Escapes text for the content of an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            // HTML does not allow these characters. Marks that change the direction of writing
            // could also disguise one name as another.
            c if c.is_control() || is_invisible(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn is_invisible(c: char) -> bool {
    let noncharacter = u32::from(c) & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}');
    noncharacter
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Renders an element with escaped text; `attributes` is written as it is and begins with a space
/// unless it is empty.
pub fn element(name: &str, attributes: &str, text: &str) -> String {
    format!("<{name}{attributes}>{}</{name}>", escape(text))
}

/// Renders a heading with its anchor.
pub fn heading(level: usize, id: &str, text: &str) -> String {
    format!("<h{level} id=\"{id}\">{}</h{level}>\n", escape(text))
}

/// Renders a collapsed section, which a reader can unfold without scripts.
pub fn details(summary: &str, content: &str) -> String {
    format!(
        "<details><summary>{}</summary>\n{content}</details>\n",
        escape(summary)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_quotes_and_control_characters_are_defused() {
        assert_eq!(
            escape("</script><img src=x onerror=\"a('&')\">"),
            "&lt;/script&gt;&lt;img src=x onerror=&quot;a(&#39;&amp;&#39;)&quot;&gt;"
        );
        assert_eq!(
            escape("a\0b\u{202e}c\u{ffff}d\ne"),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\ne"
        );
    }
}
