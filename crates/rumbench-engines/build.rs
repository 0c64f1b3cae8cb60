//! Links the engine libraries that are built outside of cargo, and compiles their C shims.
//!
//! LevelDB comes from the system. `cargo xtask wiredtiger` builds WiredTiger and prints the
//! environment variable that this script reads.

#[cfg(feature = "wiredtiger")]
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The system's library; the linker reports it if it is missing.
    #[cfg(feature = "leveldb")]
    println!("cargo::rustc-link-lib=leveldb");
    #[cfg(feature = "wiredtiger")]
    wiredtiger();
}

/// Compiles the shim against the headers of the linked WiredTiger library.
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
    println!("cargo::rustc-link-lib=static=snappy");
    // The first two are part of newer C libraries, and separate libraries with older ones; snappy
    // is C++.
    for library in ["pthread", "dl", "stdc++"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
