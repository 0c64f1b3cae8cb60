//! Programs of the guide as tests: `cargo test --doc -p alluvium` compiles each Rust block of these
//! pages and runs all that are not marked `no_run`. `cargo xtask tidy` checks that every page with
//! such a block is listed.

macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!(concat!("../../../docs/guide/", $file))]
        mod $name {}
    };
}

page!(background, "background.md");
page!(bulk_loads, "bulk-loads.md");
page!(changes, "changes.md");
page!(copies, "copies.md");
page!(expiry, "expiry.md");
page!(reading, "reading.md");
page!(start, "start.md");
page!(transactions, "transactions.md");
page!(writing, "writing.md");
