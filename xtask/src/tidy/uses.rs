//! Uses between files: the item of another file that an import or a path names.
//!
//! A name is followed through imports and reexports to the file that defines it. An import of a
//! module uses nothing yet, and neither does a reexport from an inner module.

use std::slice;

use super::modules::{Import, Module, Modules};

/// Use of an item in another file.
pub struct Use<'m> {
    /// File that names the item.
    pub from: &'m str,
    /// Line there.
    pub line: usize,
    /// Path as the file writes it.
    pub path: String,
    /// File that defines the item.
    pub to: &'m str,
    /// Name of the item there.
    pub item: String,
}

/// Destination of a path.
enum Found {
    Module(usize),
    /// Item of the module with this index.
    Item(usize, String),
}

/// Reexports between a use and the definition, at most: reexports may form a circle.
const STEPS_MAX: usize = 12;

/// Returns all uses between different files.
pub fn uses(modules: &Modules) -> Vec<Use<'_>> {
    let mut found = Vec::new();
    for (index, module) in modules.all.iter().enumerate() {
        let mut add = |names: &[String], line, to: Option<Found>| {
            let Some(Found::Item(to, item)) = to else {
                return;
            };
            let (from, to) = (module.file.as_str(), modules.all[to].file.as_str());
            if from != to {
                let path = names.join("::");
                found.push(Use {
                    from,
                    line,
                    path,
                    to,
                    item,
                });
            }
        };
        for path in &module.paths {
            add(
                &path.names,
                path.line,
                resolve(modules, index, &path.names, 0),
            );
        }
        for import in &module.imports {
            let (names, line) = (&import.path.names, import.path.line);
            match resolve(modules, index, names, 0) {
                Some(Found::Module(to)) if import.name == "*" => {
                    for word in &module.words {
                        let names = [names, slice::from_ref(word)].concat();
                        add(&names, line, member(modules, to, word, 0));
                    }
                }
                to if only_exports(modules, index, import, to.as_ref()) => {}
                to => add(names, line, to),
            }
        }
    }
    found
}

/// Returns true if an import only passes on an item of an inner module.
fn only_exports(modules: &Modules, module: usize, import: &Import, to: Option<&Found>) -> bool {
    let Some(Found::Item(to, _)) = to else {
        return false;
    };
    let mut outer = modules.all[*to].parent;
    while outer.is_some_and(|outer| outer != module) {
        outer = outer.and_then(|outer| modules.all[outer].parent);
    }
    import.exported && outer.is_some() && !modules.all[module].words.contains(&import.name)
}

/// Follows a path that module `from` names.
fn resolve(modules: &Modules, from: usize, names: &[String], steps: usize) -> Option<Found> {
    let (first, rest) = names.split_first()?;
    let mut found = match first.as_str() {
        "crate" => Found::Module(root(modules, from)),
        "self" => Found::Module(from),
        "super" => Found::Module(modules.all[from].parent?),
        name => member(modules, from, name, steps)
            .or_else(|| modules.libraries.get(name).copied().map(Found::Module))?,
    };
    for name in rest {
        let Found::Module(module) = found else {
            break;
        };
        found = match name.as_str() {
            "self" => found,
            "super" => Found::Module(modules.all[module].parent?),
            // Without a definition in sight, a macro of the module defines it.
            name => member(modules, module, name, steps)
                .unwrap_or_else(|| Found::Item(module, name.to_string())),
        };
    }
    Some(found)
}

fn root(modules: &Modules, mut module: usize) -> usize {
    while let Some(parent) = modules.all[module].parent {
        module = parent;
    }
    module
}

/// Follows one name of a module.
fn member(modules: &Modules, module: usize, name: &str, steps: usize) -> Option<Found> {
    let own: &Module = &modules.all[module];
    if let Some(child) = own.children.get(name) {
        return Some(Found::Module(*child));
    }
    if own.items.contains_key(name) {
        return Some(Found::Item(module, name.to_string()));
    }
    if steps > STEPS_MAX {
        return None;
    }
    let named = own.imports.iter().filter(|import| import.name == name);
    let found = named.filter_map(|import| resolve(modules, module, &import.path.names, steps + 1));
    let globs = own.imports.iter().filter(|import| import.name == "*");
    let through_globs =
        globs.filter_map(
            |import| match resolve(modules, module, &import.path.names, steps + 1)? {
                Found::Module(inner) => member(modules, inner, name, steps + 1),
                Found::Item(..) => None,
            },
        );
    found.chain(through_globs).next()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    /// Returns the uses of `x/src/a.rs` as `line: file item`, for this text of it.
    fn used(text: &str) -> Vec<String> {
        let files = [
            file(
                "crates/some-lib/src/lib.rs",
                "mod inner;\npub use inner::Inner;\n",
            ),
            file("crates/some-lib/src/inner.rs", "pub struct Inner;\n"),
            file("x/src/lib.rs", "mod a;\nmod b;\npub use b::C as Renamed;\n"),
            file("x/src/a.rs", text),
            file(
                "x/src/b/mod.rs",
                "mod c;\npub mod d;\npub use c::{C, f};\npub struct B { x: u8, y: c::Z }\n",
            ),
            file(
                "x/src/b/c.rs",
                "pub struct C;\npub fn f() { super::B::new(); }\n",
            ),
            file("x/src/b/d.rs", "pub use super::c::*;\npub enum D { One }\n"),
        ];
        let modules = Modules::read(&files);
        let all = uses(&modules);
        let own = all.iter().filter(|used| used.from == "x/src/a.rs");
        own.map(|used| format!("{}: {} {}", used.line, used.to, used.item))
            .collect()
    }

    #[test]
    fn imports_and_paths_are_followed_to_the_definition() {
        let text = "use crate::b::{self, B,\n    d::{D as E}};\nfn g() { b::f(); E::One; }\n";
        let expected = [
            "3: x/src/b/c.rs f",
            "3: x/src/b/d.rs D",
            "1: x/src/b/mod.rs B",
            "2: x/src/b/d.rs D",
        ];
        assert_eq!(used(text), expected);
        assert_eq!(used("use crate::Renamed;"), ["1: x/src/b/c.rs C"]);
        assert_eq!(used("type T = super::b::d::C;"), ["1: x/src/b/c.rs C"]);
        assert_eq!(
            used("use some_lib::Inner;"),
            ["1: crates/some-lib/src/inner.rs Inner"]
        );
    }

    #[test]
    fn all_names_of_a_module_are_used_where_they_are_written() {
        let text = "use crate::b::*;\nfn g(b: B) { f(b) }\n";
        let expected = ["1: x/src/b/mod.rs B", "1: x/src/b/c.rs f"];
        assert_eq!(used(text), expected);
    }

    #[test]
    fn an_unknown_item_belongs_to_its_module() {
        assert_eq!(used("crate::b::made!();"), ["1: x/src/b/mod.rs made"]);
    }

    #[test]
    fn modules_tests_comments_and_other_crates_are_not_used() {
        for text in [
            "use crate::b;\npub(in crate::b) struct A;\n",
            "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            "// crate::b::B\nconst A: &str = \"crate::b::B\";\n",
            "use std::b::B;\nfn g() { self::A::new(); B::f(); }\nstruct A;\n",
        ] {
            assert_eq!(used(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_reexport_from_an_inner_module_counts_only_if_its_name_is_used() {
        let files = |text: &str| {
            [
                file("x/src/lib.rs", text),
                file("x/src/a.rs", "pub struct A;\n"),
            ]
        };
        let count = |text: &str| uses(&Modules::read(&files(text))).len();
        assert_eq!(count("mod a;\npub use a::A;\n"), 0);
        assert_eq!(count("mod a;\npub(crate) use a::A;\nfn f(_: A) {}\n"), 1);
        assert_eq!(count("mod a;\nuse a::A as _;\n"), 1);
        assert_eq!(count("mod a;\npub use a::A as a;\n"), 0);
    }
}
