//! A flame graph of sampled stacks: one self-contained picture that is readable even if its script
//! may not run.
//!
//! Each box is a function, on top of the function that called it. Its width is the number of
//! samples in which it was on the stack. Threads are at the bottom. With scripts, a click makes a
//! box as wide as the picture; Escape goes back.

use super::stacks::Stacks;
use crate::report::html::markup::escape;

const WIDTH: f64 = 1200.0;
const BOX_HEIGHT: usize = 17;
const HEADER: usize = 44;
/// Boxes narrower than this are left out.
const LEAST_WIDTH: f64 = 0.4;
/// Average width of a letter.
const LETTER: f64 = 6.4;

const STYLE: &str = "text{font:11px sans-serif;pointer-events:none}\
rect{stroke:#fff;stroke-width:.5}.t rect{fill:#b9c4cf}.l rect{fill:#cfd8c0}.k rect{fill:#e8b07a}.e rect{fill:#f2d08b}\
g.b{cursor:pointer}g.b:hover rect{stroke:#000}.off{display:none}";

const SCRIPT: &str = include_str!("flame.js");

/// Function on top of its caller.
#[derive(Debug, PartialEq)]
struct Flame {
    name: String,
    depth: usize,
    /// Number of samples to the left of it.
    from: u64,
    samples: u64,
}

/// Returns the boxes of all stacks. Neighboring stacks share the boxes of their common frames.
fn boxes(stacks: &Stacks) -> Vec<Flame> {
    let mut done = Vec::new();
    let mut open: Vec<Flame> = Vec::new();
    let mut at = 0;
    for (frames, samples) in stacks.iter() {
        let common = open
            .iter()
            .zip(frames)
            .take_while(|(flame, name)| flame.name == **name);
        let common = common.count();
        done.extend(open.drain(common..));
        for flame in &mut open {
            flame.samples += samples;
        }
        for (depth, name) in frames.iter().enumerate().skip(common) {
            open.push(Flame {
                name: name.clone(),
                depth,
                from: at,
                samples,
            });
        }
        at += samples;
    }
    done.extend(open);
    done
}

/// Returns the picture as SVG.
pub fn svg(title: &str, stacks: &Stacks) -> String {
    let all = stacks.samples();
    let scale = WIDTH / all.max(1) as f64;
    let mut boxes = boxes(stacks);
    boxes.retain(|flame| flame.samples as f64 * scale >= LEAST_WIDTH);
    boxes.sort_by_key(|flame| (flame.depth, flame.from));
    let levels = boxes.iter().map(|flame| flame.depth + 1).max().unwrap_or(0);
    let height = HEADER + levels * BOX_HEIGHT + 8;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <title>{title}: CPU time by function, {all} samples</title>\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill:#fff;stroke:none\"/>\n\
         <text x=\"8\" y=\"18\" style=\"font-size:14px\">{title}: CPU time by function, {all} samples</text>\n\
         <text id=\"tip\" x=\"8\" y=\"36\">threads at the bottom; orange: the kernel, green: the laboratory; a click or Enter makes a box wide, Escape goes back</text>\n",
        title = escape(title),
    );
    for flame in &boxes {
        out += &flame.svg(scale, height, all);
    }
    out + "<script><![CDATA[\n" + SCRIPT + "]]></script>\n</svg>\n"
}

impl Flame {
    fn svg(&self, scale: f64, height: usize, all: u64) -> String {
        let (x, width) = (self.from as f64 * scale, self.samples as f64 * scale);
        let y = height - 8 - (self.depth + 1) * BOX_HEIGHT;
        let letters = (width / LETTER) as usize;
        let shown: String = match letters {
            0..4 => String::new(),
            _ if self.name.chars().count() <= letters => self.name.clone(),
            _ => self
                .name
                .chars()
                .take(letters - 2)
                .chain("..".chars())
                .collect(),
        };
        let share = 100.0 * self.samples as f64 / all as f64;
        format!(
            "<g class=\"b {}\" tabindex=\"0\" data-x=\"{x:.2}\" data-w=\"{width:.2}\"><title>{} ({} samples, {share:.2} %)</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BOX_HEIGHT}\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>\n",
            self.class(),
            escape(&self.name),
            self.samples,
            x + 3.0,
            y + 12,
            escape(&shown),
        )
    }

    fn class(&self) -> &'static str {
        match &self.name {
            _ if self.depth == 0 => "t",
            name if name.ends_with("_[k]") => "k",
            name if name.starts_with("rumbench") || name.starts_with("<rumbench") => "l",
            _ => "e",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(texts: &[(&str, u64)]) -> Stacks {
        let mut stacks = Stacks::default();
        for (text, n) in texts {
            for _ in 0..*n {
                stacks.add(text.split(';').map(str::to_string).collect());
            }
        }
        stacks
    }

    #[test]
    fn a_function_lies_on_its_caller_as_wide_as_its_samples() {
        let found = boxes(&stacks(&[
            ("t;a;b", 2),
            ("t;a;c;b", 1),
            ("t;d", 3),
            ("u;d", 1),
        ]));
        let mut told: Vec<_> = found
            .iter()
            .map(|f| (f.depth, f.from, f.samples, &*f.name))
            .collect();
        told.sort_unstable();
        assert_eq!(
            told,
            [
                (0, 0, 6, "t"),
                (0, 6, 1, "u"),
                (1, 0, 3, "a"),
                (1, 3, 3, "d"),
                (1, 6, 1, "d"),
                (2, 0, 2, "b"),
                (2, 2, 1, "c"),
                (3, 2, 1, "b")
            ]
        );
    }

    #[test]
    fn a_small_picture_is_unchanged() {
        let stacks = stacks(&[
            ("client;rumbench::run::client::go;get<&[u8]>;read_[k]", 3),
            ("client;rumbench::run::client::go", 1),
            (
                "flush;a name that is much too long for its box, which is as narrow as its part of all samples is small",
                4,
            ),
        ]);
        let picture = svg("alluvium & <co>", &stacks);
        crate::report::assert_snapshot("flame.svg", &picture);
        // Used by the test in a real browser.
        if let Some(folder) = std::env::var_os("RUMBENCH_TEST_PAGES") {
            std::fs::create_dir_all(&folder).expect("folder");
            let path = std::path::Path::new(&folder).join("flame.svg");
            std::fs::write(path, picture).expect("picture");
        }
    }

    #[test]
    fn nothing_sampled_is_an_empty_picture() {
        assert!(svg("t", &Stacks::default()).contains("0 samples"));
    }
}
