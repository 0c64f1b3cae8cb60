//! `cargo xtask wiredtiger`: builds WiredTiger's library, which no crate carries, once per machine.
//!
//! The source comes from the Python package index: the source package of a release has the whole C
//! code, and pip checks the pinned hash before it opens the file. CMake and Ninja build it. If one
//! of the two is missing, pip installs both from the same index into the build's folder; they are
//! deleted with it. WiredTiger uses the zstd and the zlib of this workspace (`zstd-sys` and
//! `libz-sys`): the build needs only their headers, because a program with WiredTiger links both.
//! Its snappy is the one that RocksDB carries (`librocksdb-sys`), compiled here, because a program
//! with WiredTiger need not have RocksDB.
//!
//! The cache keeps the static libraries and the header; see `cached`. The command prints the
//! variable that the build script of `rumbench-engines` reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cached;
use crate::licenses::{cargo_metadata, host_platform};

/// Release, and the hash that pip must find.
const VERSION: &str = "11.3.1";
const SHA256: &str = "95052d1b6fc06921dd617aafa1ba2a773d8dbbbf2eb74f77147290a630e598d0";

const FILES: [&str; 3] = [
    "lib/libwiredtiger.a",
    "lib/libsnappy.a",
    "include/wiredtiger.h",
];

/// Source files of snappy's library, in its folder.
const SNAPPY: [&str; 3] = ["snappy.cc", "snappy-sinksource.cc", "snappy-c.cc"];

/// Options of CMake. Warnings are not errors, since newer compilers have new ones; libraries
/// installed on the machine are not used.
const OPTIONS: [&str; 16] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DENABLE_STRICT=OFF",
    "-DENABLE_STATIC=ON",
    "-DENABLE_SHARED=OFF",
    "-DWITH_PIC=ON",
    "-DENABLE_PYTHON=OFF",
    "-DENABLE_CPPSUITE=OFF",
    "-DHAVE_UNITTEST=OFF",
    "-DENABLE_ZLIB=OFF",
    "-DENABLE_LZ4=OFF",
    "-DENABLE_SNAPPY=OFF",
    "-DENABLE_ZSTD=OFF",
    "-DENABLE_SODIUM=OFF",
    "-DHAVE_BUILTIN_EXTENSION_SNAPPY=ON",
    "-DHAVE_BUILTIN_EXTENSION_ZLIB=ON",
    "-DHAVE_BUILTIN_EXTENSION_ZSTD=ON",
];

/// Ensures that the library is in the cache, and returns the shell line that exports its folder as
/// `WIREDTIGER_DIR`.
pub fn ensure_built(root: &Path) -> Result<String> {
    let host = host_platform()?;
    let metadata = cargo_metadata(root, &host)?;
    let compressors = [
        Compressor::of_metadata(&metadata, "zstd-sys", "ZSTD", "")?,
        Compressor::of_metadata(&metadata, "libz-sys", "Z", "src/zlib")?,
        Compressor::of_metadata(&metadata, "librocksdb-sys", "SNAPPY", "snappy")?,
    ];
    let options = OPTIONS.join(" ");
    let versions = compressors.each_ref().map(|own| own.version.as_str());
    let depends_on = [&[&host, SHA256, &options], &versions[..]].concat();
    let name = cached::folder_name("wiredtiger", VERSION, &depends_on);
    let folder = cached::ensure(&cached::folder()?, &name, FILES, |project| {
        build(project, &compressors, &host)
    })?;
    Ok(format!(
        "export WIREDTIGER_DIR={}\n",
        cached::quoted(&folder)
    ))
}

/// Library of a compressor as the workspace resolves its crate.
#[derive(Debug, PartialEq, Eq)]
struct Compressor {
    version: String,
    /// Name in CMake's variables.
    name: &'static str,
    /// Folder with the library's header.
    include: PathBuf,
}

impl Compressor {
    /// Finds the crate `package`, whose header is in `folder` of its sources.
    fn of_metadata(
        metadata: &[u8],
        package: &str,
        name: &'static str,
        folder: &str,
    ) -> Result<Compressor> {
        let metadata: Value =
            serde_json::from_slice(metadata).context("cargo metadata is no JSON")?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let found = packages.find(|own| own["name"] == package);
        let found = found.with_context(|| format!("the workspace does not use {package}"))?;
        let text = |field: &str| found[field].as_str().unwrap_or_default();
        let include = Path::new(text("manifest_path")).parent();
        let include = include.with_context(|| format!("{package} has no folder"))?;
        Ok(Compressor {
            version: text("version").to_string(),
            name,
            include: include.join(folder),
        })
    }
}

fn build(project: &Path, compressors: &[Compressor; 3], host: &str) -> Result<[PathBuf; 3]> {
    eprintln!(
        "building WiredTiger {VERSION} in {}: once, some two minutes on two cores",
        project.display()
    );
    let source = download(project)?;
    let tools = Tools::find(project)?;
    let output = project.join("build");
    fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    // CMake requires a file of each compressor's library, although nothing is linked into a static
    // library: an empty file will do.
    let placeholder = output.join("no-library");
    fs::write(&placeholder, "").context("cannot write in the build folder")?;
    let mut configure = tools.command("cmake");
    configure
        .current_dir(&output)
        .arg("-G")
        .arg("Ninja")
        .arg(&source)
        .args(OPTIONS);
    for Compressor { name, include, .. } in compressors {
        configure
            .arg(format!("-DHAVE_LIB{name}={}", placeholder.display()))
            .arg(format!("-DHAVE_LIB{name}_INCLUDES={}", include.display()));
    }
    run(&mut configure, "CMake did not accept the machine")?;
    let mut make = tools.command("ninja");
    make.current_dir(&output).arg("libwiredtiger.a");
    run(&mut make, "WiredTiger was not built")?;
    let [_, _, snappy] = compressors;
    Ok([
        output.join("libwiredtiger.a"),
        compile_snappy(&snappy.include, &output, host)?,
        output.join("include/wiredtiger.h"),
    ])
}

/// Compiles snappy's library from the sources in a folder, and returns its path.
fn compile_snappy(sources: &Path, output: &Path, host: &str) -> Result<PathBuf> {
    let mut compiler = cc::Build::new();
    compiler
        .cpp(true)
        .std("c++11")
        .cargo_metadata(false)
        .target(host)
        .host(host)
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .define("NDEBUG", "1")
        .include(sources)
        // The header that snappy's own build would write is in the folder above.
        .include(sources.join(".."))
        .files(SNAPPY.map(|file| sources.join(file)))
        .out_dir(output);
    let built = compiler.try_compile("snappy");
    built.context("snappy was not compiled; it needs a C++ compiler (Debian: g++)")?;
    Ok(output.join("libsnappy.a"))
}

/// Downloads the source with pip, which checks it, and returns its folder.
fn download(project: &Path) -> Result<PathBuf> {
    let requirements = project.join("requirements.txt");
    let text = format!("wiredtiger=={VERSION} --hash=sha256:{SHA256}\n");
    fs::write(&requirements, text)
        .with_context(|| format!("cannot write {}", requirements.display()))?;
    let mut pip = Command::new("python3");
    pip.current_dir(project)
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--no-deps", "--no-binary", ":all:", "--require-hashes"])
        .args(["--requirement", "requirements.txt"]);
    run(
        &mut pip,
        "WiredTiger was not downloaded; it needs python3 with pip (Debian: python3-pip) and an index that pip reaches",
    )?;
    let name = format!("wiredtiger-{VERSION}");
    let mut tar = Command::new("tar");
    tar.current_dir(project)
        .arg("xzf")
        .arg(format!("{name}.tar.gz"));
    run(&mut tar, "WiredTiger's source could not be unpacked")?;
    Ok(project.join(name))
}

/// Folder with the CMake and Ninja installed for the build; `None` if the machine has both.
struct Tools(Option<PathBuf>);

impl Tools {
    /// Uses the machine's tools or, if one is missing, installs both from the index in a virtual
    /// environment of the build.
    fn find(project: &Path) -> Result<Tools> {
        if ["cmake", "ninja"].into_iter().all(is_installed) {
            return Ok(Tools(None));
        }
        let environment = project.join("tools");
        let mut create = Command::new("python3");
        create.args(["-m", "venv"]).arg(&environment);
        let hint = "install cmake and ninja-build, or what lets python3 make a virtual environment (Debian: python3-venv)";
        run(&mut create, hint)?;
        let bin = environment.join("bin");
        let mut install = Command::new(bin.join("python"));
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]);
        install.args(["cmake", "ninja"]);
        run(&mut install, hint)?;
        Ok(Tools(Some(bin)))
    }

    /// Returns a command with the tools' folder first in the path, because CMake looks for Ninja
    /// there.
    fn command(&self, name: &str) -> Command {
        let Some(bin) = &self.0 else {
            return Command::new(name);
        };
        let mut command = Command::new(bin.join(name));
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = [bin.clone()]
            .into_iter()
            .chain(std::env::split_paths(&others));
        if let Ok(path) = std::env::join_paths(all) {
            command.env("PATH", path);
        }
        command
    }
}

fn is_installed(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command and sends its output, which is progress, to stderr: stdout is for the line to
/// evaluate.
fn run(command: &mut Command, hint: &str) -> Result<()> {
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command
        .status()
        .with_context(|| format!("cannot run {}: {hint}", command.get_program().display()))?;
    ensure!(
        status.success(),
        "{} failed ({status}): {hint}",
        command.get_program().display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressors_are_the_ones_that_cargo_resolved() {
        let metadata = br#"{"packages": [
            {"name": "a", "version": "1.0.0", "manifest_path": "/r/a/Cargo.toml"},
            {"name": "libz-sys", "version": "1.1.31", "manifest_path": "/r/libz-sys/Cargo.toml"}
        ]}"#;
        let found = |package| Compressor::of_metadata(metadata, package, "Z", "src/zlib");
        let expected = Compressor {
            version: "1.1.31".to_string(),
            name: "Z",
            include: PathBuf::from("/r/libz-sys/src/zlib"),
        };
        assert_eq!(found("libz-sys").unwrap(), expected);
        let error = found("zstd-sys").unwrap_err().to_string();
        assert_eq!(error, "the workspace does not use zstd-sys");
    }

    #[test]
    fn tools_of_the_build_come_first_in_the_path() {
        let bin = std::env::temp_dir().join("no-such-folder");
        let command = Tools(Some(bin.clone())).command("cmake");
        assert_eq!(command.get_program(), bin.join("cmake"));
        let path = command.get_envs().find(|(name, _)| *name == "PATH");
        let path = path.and_then(|(_, value)| value).unwrap();
        assert_eq!(std::env::split_paths(path).next(), Some(bin));
        assert_eq!(Tools(None).command("cmake").get_program(), "cmake");
    }

    #[test]
    fn a_failed_command_says_what_may_be_missing() {
        let error = run(&mut Command::new("false"), "install it").unwrap_err();
        assert!(error.to_string().contains("install it"), "{error}");
        let error = run(&mut Command::new("no-such-program"), "install it").unwrap_err();
        assert!(error.to_string().contains("install it"), "{error}");
    }
}
