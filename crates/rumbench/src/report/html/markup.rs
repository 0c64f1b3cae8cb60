//! Additions to maud: replacement of characters that must not be shown, and short markup that all
//! parts use.
//!
//! Engine names, settings, error texts and command lines come from outside. maud escapes all text
//! that is not [`Markup`]; [`visible`] works on the finished page, so no part can forget it.

use maud::{Markup, PreEscaped, Render, html};

/// Replaces characters that HTML does not allow by a visible one, and also marks that change the
/// direction of writing, which could disguise one name as another.
pub fn visible(page: &str) -> String {
    let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_invisible(c);
    let replaced = |c| if hidden(c) { '\u{fffd}' } else { c };
    page.chars().map(replaced).collect()
}

fn is_invisible(c: char) -> bool {
    let noncharacter = u32::from(c) & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}');
    noncharacter
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Escapes text for the content of an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    visible(&html! { (text) }.into_string())
}

/// Renders a path of a drawing, unless it is empty. maud would write an end tag, but a large page
/// has thousands of paths.
pub fn path(class: impl Render, d: &str) -> Markup {
    html! {
        @if !d.is_empty() {
            (PreEscaped("<path class=\"")) (class) (PreEscaped("\" d=\"")) (d) (PreEscaped("\"/>"))
        }
    }
}

/// Renders an engine's line of a list: a sample of its curve, its name and a sentence.
pub fn engine_line(style: usize, name: &str, sentence: impl Render) -> Markup {
    html! { li data-k=(style) { (swatch(style)) b { (name) } " " (sentence) } }
}

/// Renders a sample of an engine's line.
pub fn swatch(style: usize) -> Markup {
    html! {
        svg.swatch viewBox="0 0 28 8" aria-hidden="true" {
            (path(format_args!("s{style}"), "M1 4H27"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_quotes_and_control_characters_are_defused() {
        assert_eq!(
            escape("</script><img src=x onerror=\"a('&')\">"),
            "&lt;/script&gt;&lt;img src=x onerror=&quot;a('&amp;')&quot;&gt;"
        );
        assert_eq!(
            escape("a\0b\u{202e}c\u{ffff}d\ne"),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\ne"
        );
    }
}
