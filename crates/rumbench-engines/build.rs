//! Builds what lies between Rust and the engines whose libraries are built outside of cargo.
//!
//! LevelDB's library is the system's. WiredTiger's is made by `cargo xtask wiredtiger`, which prints the variable that is read here.

#[cfg(feature = "wiredtiger")]
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The system's library; its linker says so where it is missing.
    #[cfg(feature = "leveldb")]
    println!("cargo::rustc-link-lib=leveldb");
    #[cfg(feature = "wiredtiger")]
    wiredtiger();
}

/// Compiles the shim against the header of the library that it is linked with.
#[cfg(feature = "wiredtiger")]
fn wiredtiger() {
    const FOLDER: &str = "WIREDTIGER_DIR";
    const SHIM: &str = "src/wiredtiger/shim.c";
    println!("cargo::rerun-if-env-changed={FOLDER}");
    println!("cargo::rerun-if-changed={SHIM}");
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        println!(
            "cargo::error={FOLDER} is not set: run `eval \"$(cargo xtask wiredtiger)\"` in the same shell, which builds \
             WiredTiger once for this machine"
        );
        return;
    };
    cc::Build::new()
        .file(SHIM)
        .include(folder.join("include"))
        .warnings_into_errors(true)
        .compile("rumbench_wiredtiger_shim");
    println!(
        "cargo::rustc-link-search=native={}",
        folder.join("lib").display()
    );
    println!("cargo::rustc-link-lib=static=wiredtiger");
    // Parts of the C library by now, libraries of their own in older ones.
    for library in ["pthread", "dl"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
