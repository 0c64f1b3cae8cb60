//! C programs, compiled by the system's compiler and linked against the libraries in the same way
//! as by users.
//!
//! The test runs cargo to build the libraries, in the target directory and profile of the test:
//! cargo does not guarantee that a test build leaves them there, or leaves them current.
//! `.ci/steps.sh` has built them together with the tests, and names their folder in
//! `ALLUVIUM_BUILT`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// System libraries that the static library needs in addition to the C library: see
/// `rustc --print native-static-libs`.
const SYSTEM_LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// Returns the manifest directory, read at run time. Checkouts may share a target directory, so a
/// compiled-in path could be that of another checkout.
fn package() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo"))
}

struct Libraries {
    shared: PathBuf,
    fixed: PathBuf,
}

/// Builds the libraries once and returns their paths.
fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        if let Some(built) = std::env::var_os("ALLUVIUM_BUILT") {
            let file = |ending: &str| Path::new(&built).join(format!("liballuvium_c.{ending}"));
            return Libraries {
                shared: file(std::env::consts::DLL_EXTENSION),
                fixed: file("a"),
            };
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["build", "--locked", "--lib", "--message-format=json"])
            .current_dir(package());
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let messages = output_of(&mut command);
        let files: Vec<PathBuf> = messages.lines().flat_map(files_of).collect();
        let find = |ending: &str| {
            let has = |file: &&PathBuf| file.extension() == Some(OsStr::new(ending));
            let found = files.iter().find(has).cloned();
            found.unwrap_or_else(|| panic!("cargo built no .{ending} library"))
        };
        let shared = find(std::env::consts::DLL_EXTENSION);
        Libraries {
            shared,
            fixed: find("a"),
        }
    })
}

/// Returns the files of the library named in a message of cargo.
fn files_of(message: &str) -> Vec<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).unwrap_or_default();
    let of_library = message["target"]["name"] == "alluvium_c";
    let files = message["filenames"].as_array().filter(|_| of_library);
    let files = files.into_iter().flatten().filter_map(|file| file.as_str());
    files.map(PathBuf::from).collect()
}

/// Runs a command that must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles C files into `program` with warnings as errors; the arguments `link` come last.
fn compile(sources: &[PathBuf], program: &Path, link: &[&OsStr]) {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let present = Command::new(&compiler).arg("--version").output().is_ok();
    assert!(
        present,
        "no C compiler {compiler:?}: install one as cc, or name one in CC"
    );
    output_of(
        Command::new(compiler)
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
            .arg("-D_POSIX_C_SOURCE=200809L")
            .arg("-I")
            .arg(package().join("include"))
            .args(sources)
            .arg("-o")
            .arg(program)
            .args(link),
    );
}

fn c_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(package().join(folder)).expect("the folder of C files");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension() == Some(OsStr::new("c")))
        .collect();
    files.sort();
    files
}

fn run(program: &Path, directory: &Path) -> String {
    let libraries = libraries().shared.parent().expect("a folder");
    // Needed for the shared library only.
    output_of(
        Command::new(program)
            .arg(directory)
            .env("LD_LIBRARY_PATH", libraries),
    )
}

fn all_calls(link: &[&OsStr]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, data) = (folder.path().join("program"), folder.path().join("data"));
    std::fs::create_dir(&data).expect("a folder for databases");
    compile(&c_files("tests/c"), &program, link);
    let said = run(&program, &data);
    assert_eq!(said, "all calls answered as they should\n");
}

/// Returns the compiler's arguments for the shared library: `-L folder -l name`.
fn link_shared() -> [&'static OsStr; 3] {
    let folder = libraries().shared.parent().expect("a folder");
    ["-L".as_ref(), folder.as_os_str(), "-lalluvium_c".as_ref()]
}

fn link_static() -> Vec<&'static OsStr> {
    let system = SYSTEM_LIBRARIES.iter().map(|library| OsStr::new(*library));
    std::iter::once(libraries().fixed.as_os_str())
        .chain(system)
        .collect()
}

#[test]
fn every_call_works_from_c_with_the_static_library() {
    all_calls(&link_static());
}

#[test]
fn every_call_works_from_c_with_the_shared_library() {
    // The folder has both libraries, and the linker prefers the shared one.
    all_calls(&link_shared());
}

#[test]
fn the_example_of_the_guide_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    compile(
        &[package().join("examples/counter.c")],
        &program,
        &link_shared(),
    );
    let data = folder.path().join("data");
    assert_eq!(run(&program, &data), "visits: 1\n");
    assert_eq!(run(&program, &data), "visits: 2\n");
}

#[test]
fn the_guide_shows_the_example_as_it_is() {
    let read = |path: &str| std::fs::read_to_string(package().join(path)).expect("a text file");
    let (guide, example) = (read("../../docs/guide/c.md"), read("examples/counter.c"));
    assert!(
        guide.contains(&format!("```c\n{example}```\n")),
        "copy examples/counter.c into docs/guide/c.md"
    );
}

#[test]
fn the_programs_of_the_guide_compile() {
    let folder = tempfile::tempdir().expect("a folder");
    let guide = package().join("../../docs/guide/c.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let blocks: Vec<_> = guide.split("```c\n").skip(1).collect();
    assert!(blocks.len() >= 2, "only {} programs", blocks.len());
    for block in blocks {
        let program = block.split("```").next().expect("the block's end");
        let source = folder.path().join("program.c");
        std::fs::write(&source, program).expect("a source file");
        compile(&[source], &folder.path().join("object"), &["-c".as_ref()]);
    }
}

#[test]
fn every_function_of_the_header_is_called_from_c() {
    let header = std::fs::read_to_string(package().join("include/alluvium.h")).expect("the header");
    let tests: Vec<_> = c_files("tests/c")
        .iter()
        .map(std::fs::read_to_string)
        .collect();
    let tests = tests.into_iter().map(|text| text.expect("a C file"));
    let tests: String = tests.collect();
    let declared = header.lines().filter(|line| !line.starts_with("//"));
    let names: Vec<_> = declared.filter_map(function_name).collect();
    assert!(names.len() > 100, "only {} functions found", names.len());
    let uncalled: Vec<_> = names
        .into_iter()
        .filter(|name| !tests.contains(&format!("{name}(")))
        .collect();
    assert!(uncalled.is_empty(), "not called: {uncalled:?}");
}

/// Returns the function declared on a line, if there is one.
fn function_name(line: &str) -> Option<&str> {
    let (before, _) = line.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    (!before.starts_with(' ') && name.starts_with("alluvium_")).then_some(name)
}
