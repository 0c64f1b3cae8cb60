//! Modules of all crates outside tests: the items, imports and paths that the source of each has.
//!
//! A scanner of words and brackets reads them, not a parser. It sees no items that macros define,
//! and takes an import of a function for one of its module. `uses.rs` looks up the names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::files::TextFile;
use crate::source::{self, Source};

/// Module of a crate: a file or an inline part of one.
pub struct Module {
    /// Path of its file from the root of the workspace.
    pub file: String,
    /// Index of the enclosing module; `None` for the root of a crate.
    pub parent: Option<usize>,
    /// Indexes of inner modules by name.
    pub children: BTreeMap<String, usize>,
    /// Items defined here, with the number of named fields of a struct.
    pub items: BTreeMap<String, usize>,
    /// Imports, also those in functions.
    pub imports: Vec<Import>,
    /// Paths of two or more names outside imports.
    pub paths: Vec<NamedPath>,
    /// Words of the code outside imports.
    pub words: BTreeSet<String>,
}

/// Path with the line that has it.
pub struct NamedPath {
    pub names: Vec<String>,
    pub line: usize,
}

/// One name that a `use` brings in.
pub struct Import {
    /// Name in this module; `*` for all names of the path.
    pub name: String,
    /// Imported path.
    pub path: NamedPath,
    /// True if other modules may import the name from here.
    pub exported: bool,
}

/// All modules of the workspace.
#[derive(Default)]
pub struct Modules {
    /// Modules; indexes into this list name them.
    pub all: Vec<Module>,
    /// Index of the root of each library by its name.
    pub libraries: BTreeMap<String, usize>,
}

impl Modules {
    /// Reads all crates: from each `src/lib.rs` and `src/main.rs`, the files that `mod` names.
    pub fn read(files: &[TextFile]) -> Modules {
        let texts = files.iter().map(|f| (f.path.as_str(), f.text.as_str()));
        let texts: HashMap<&str, &str> = texts.collect();
        let mut modules = Modules::default();
        for file in files {
            let root = ["/src/lib.rs", "/src/main.rs"].map(|end| file.path.strip_suffix(end));
            let Some(folder) = root.into_iter().flatten().next() else {
                continue;
            };
            let index = modules.read_file(&texts, &file.path, &format!("{folder}/src"), None);
            if file.path.ends_with("lib.rs") {
                let name = folder.rsplit('/').next().unwrap_or_default();
                modules.libraries.insert(name.replace('-', "_"), index);
            }
        }
        modules
    }

    fn read_file(
        &mut self,
        texts: &HashMap<&str, &str>,
        path: &str,
        folder: &str,
        parent: Option<usize>,
    ) -> usize {
        let code = without_tests(texts.get(path).copied().unwrap_or_default());
        let mut reader = Reader {
            tokens: tokens(&code),
            at: 0,
            texts,
            modules: self,
        };
        let module = reader.module(path, parent);
        reader.body(module, folder);
        module
    }
}

/// Returns the code of a file with the items blanked that only exist in tests.
fn without_tests(text: &str) -> String {
    let mut code = Source::new(text).code().into_bytes();
    let ranges = source::test_ranges(&String::from_utf8_lossy(&code));
    for range in ranges {
        for byte in &mut code[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Word, `::` or other character of the code, with its line.
struct Token<'c> {
    text: &'c str,
    line: usize,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.text.bytes().next().is_some_and(source::is_word)
    }
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let word = rest.bytes().take_while(|byte| source::is_word(*byte));
            let length = match word.count() {
                0 if rest.starts_with("::") => 2,
                length => length.max(1),
            };
            let (text, after) = rest.split_at(length);
            found.push(Token { text, line });
            rest = after.trim_start();
        }
    }
    found
}

/// Reader of the tokens of one file.
struct Reader<'a, 'c> {
    tokens: Vec<Token<'c>>,
    at: usize,
    texts: &'a HashMap<&'a str, &'a str>,
    modules: &'a mut Modules,
}

impl<'c> Reader<'_, 'c> {
    fn module(&mut self, file: &str, parent: Option<usize>) -> usize {
        self.modules.all.push(Module {
            file: file.to_string(),
            parent,
            children: BTreeMap::new(),
            items: BTreeMap::new(),
            imports: Vec::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        });
        self.modules.all.len() - 1
    }

    fn text(&self, at: usize) -> &'c str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Reads up to the brace that closes the module, or to the end of the file.
    fn body(&mut self, module: usize, folder: &str) {
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            let (text, is_word) = (token.text, token.is_word());
            self.at += 1;
            match text {
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 0 => return,
                "}" | ")" | "]" => depth -= 1,
                "mod" => self.inner_module(module, folder),
                "use" => {
                    let before = self
                        .at
                        .checked_sub(2)
                        .map_or("", |before| self.text(before));
                    let exported = ["pub", ")"].contains(&before);
                    self.import(module, Vec::new(), exported);
                }
                _ if is_word => {
                    if depth == 0 {
                        self.item(module, text);
                    }
                    self.path(module);
                }
                _ => {}
            }
        }
    }

    /// Reads the rest of `mod name;` or `mod name { ... }`.
    fn inner_module(&mut self, module: usize, folder: &str) {
        let (name, opens) = (self.text(self.at), self.text(self.at + 1));
        let file = self.modules.all[module].file.clone();
        self.at += 2;
        let inner = format!("{folder}/{name}");
        let child = match opens {
            "{" => {
                let child = self.module(&file, Some(module));
                self.body(child, &inner);
                child
            }
            ";" => {
                let paths = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
                let exists = |path: &&String| self.texts.contains_key(path.as_str());
                let Some(path) = paths.iter().find(exists) else {
                    return;
                };
                let (texts, parent) = (self.texts, Some(module));
                self.modules.read_file(texts, path, &inner, parent)
            }
            _ => return,
        };
        let children = &mut self.modules.all[module].children;
        children.insert(name.to_string(), child);
    }

    /// Reads one path of a `use`, or a group of them, after the names `before`.
    fn import(&mut self, module: usize, before: Vec<String>, exported: bool) {
        let (mut names, mut renamed, line) = (before.clone(), None, self.line());
        // Each turn reads a token, and the file ends the loop.
        while self.at < self.tokens.len() {
            let text = self.text(self.at);
            self.at += 1;
            match text {
                "::" => {}
                "{" => {
                    while !["}", ""].contains(&self.text(self.at)) {
                        self.import(module, names.clone(), exported);
                    }
                    self.at += 1;
                    // The group has imported its names.
                    names.clear();
                }
                "as" => {
                    renamed = Some(self.text(self.at).to_string());
                    self.at += 1;
                }
                "," | ";" => break,
                "}" => {
                    self.at -= 1;
                    break;
                }
                name => names.push(name.to_string()),
            }
        }
        if names.len() > 1 && names.last().is_some_and(|last| last == "self") {
            names.pop();
        }
        let Some(last) = names.last() else {
            return;
        };
        let name = renamed.unwrap_or_else(|| last.clone());
        names.retain(|name| name != "*");
        let path = NamedPath { names, line };
        self.modules.all[module].imports.push(Import {
            name,
            path,
            exported,
        });
    }

    /// Records the item that `keyword` begins, if it begins one.
    fn item(&mut self, module: usize, keyword: &str) {
        let fields = match keyword {
            "struct" => self.fields(),
            "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" => 0,
            _ => return,
        };
        let named = self.tokens.get(self.at).filter(|token| token.is_word());
        if let Some(name) = named {
            let items = &mut self.modules.all[module].items;
            items.insert(name.text.to_string(), fields);
        }
    }

    /// Counts the named fields of the struct whose name comes next.
    fn fields(&self) -> usize {
        let (mut depth, mut fields) = (0, 0);
        for token in &self.tokens[self.at..] {
            match token.text {
                ";" if depth == 0 => break,
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 1 => break,
                "}" | ")" | "]" => depth -= 1,
                ":" if depth == 1 => fields += 1,
                _ => {}
            }
        }
        fields
    }

    /// Records the word before the current token, and the path that it begins.
    fn path(&mut self, module: usize) {
        let first = self.at - 1;
        let line = self.tokens[first].line;
        let mut names = vec![self.text(first).to_string()];
        let inside = first > 0 && self.text(first - 1) == "::";
        self.modules.all[module].words.insert(names[0].clone());
        while self.text(self.at) == "::" && self.tokens.get(self.at + 1).is_some_and(Token::is_word)
        {
            names.push(self.text(self.at + 1).to_string());
            self.at += 2;
        }
        if names.len() > 1 && !inside {
            self.modules.all[module]
                .paths
                .push(NamedPath { names, line });
        }
    }
}
