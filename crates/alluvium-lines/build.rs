//! Compiles the model of the caches, which must not be instrumented itself.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/model.c");
    cc::Build::new()
        .file("src/model.c")
        .opt_level(2)
        .inherit_rustflags(false)
        .compile("alluvium_lines_model");
}
