# All commands for developers and for continuous integration. `make help` lists them.

# Folder outside the checkout for expensive build results. ALLUVIUM_CACHE sets it.
CACHE ?= $(or $(ALLUVIUM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/alluvium)

.DEFAULT_GOAL := help
.PHONY: help bench bench-rocksdb claims ledger history peers test soak miri loom asan tsan lines planted sim mariadb test-mariadb clean-cache

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

bench: ## build the laboratory and run its quick comparison of embedded engines (results under out/)
	cargo build --locked --release -p rumbench
	cargo run --quiet --locked --release -p rumbench -- quick --out out/quick-$$(date -u +%Y%m%d-%H%M%S)

test: ## run all checks of continuous integration
	ALLUVIUM_CACHE='$(CACHE)' CARGO_TARGET_DIR='$(CACHE)/target' bash .ci/steps.sh

soak: ## test every crash point, failing call, flipped bit, random input, many kills; with figures (1 hour)
	CARGO_PROFILE_DEV_OPT_LEVEL=2 ALLUVIUM_ONE_IN=1 CARGO_TARGET_DIR='$(CACHE)/soak' \
	  cargo test --locked -p alluvium --test it -- reliability:: --nocapture --test-threads=1
	CARGO_PROFILE_DEV_OPT_LEVEL=2 ALLUVIUM_FUZZ_SECONDS=60 CARGO_TARGET_DIR='$(CACHE)/soak' \
	  cargo test --locked -p alluvium --lib --test it -- fuzz_ --nocapture
	ALLUVIUM_CACHE='$(CACHE)' CARGO_TARGET_DIR='$(CACHE)/target' ALLUVIUM_KILLS=25 bash .ci/steps.sh system build kill plugin
	ALLUVIUM_CACHE='$(CACHE)' mariadb/tests/suites/run.sh long
	ALLUVIUM_CACHE='$(CACHE)' '$(CACHE)/target/debug/mariadb-check' kills --rounds 200
	ALLUVIUM_CACHE='$(CACHE)' '$(CACHE)/target/debug/mariadb-check' statements --statements 1000000 --differences 1000

miri: ## run the tests of the unsafe code under miri (needs the nightly toolchain)
	@cargo +nightly miri --version >/dev/null 2>&1 || { \
	  echo 'miri is missing: rustup toolchain install nightly --component miri' >&2; exit 1; }
	CARGO_TARGET_DIR='$(CACHE)/miri' cargo +nightly miri test --locked -p alluvium-mem

loom: ## check the models of the concurrent structures in all their interleavings
	CARGO_TARGET_DIR='$(CACHE)/loom' RUSTFLAGS='--cfg loom' \
	  cargo test --locked --release -p alluvium-mem --test loom
	CARGO_TARGET_DIR='$(CACHE)/loom' RUSTFLAGS='--cfg loom' \
	  cargo test --locked --release -p alluvium --lib -- model::model_

# Tests that use unsafe code and threads most; `make asan TESTS=` runs all tests.
# rustix_use_libc makes rustix call libc, because the sanitizers see only mappings made by libc.
# Otherwise they mistake a page that is mapped again for the old one.
TESTS ?= anomalies bank cursors resting held_cursor values bulk_load checkpoint ingest two_phase
SANITIZED = CARGO_TARGET_DIR='$(CACHE)/$(1)san' RUSTFLAGS='-Zsanitizer=$(2) --cfg rustix_use_libc' RUSTDOCFLAGS='-Zsanitizer=$(2)' \
  cargo +nightly test --locked --target $$(rustc +nightly -vV | sed -n 's/^host: //p')
define nightly
	@cargo +nightly --version >/dev/null 2>&1 || { \
	  echo 'nightly is missing: rustup toolchain install nightly --component rust-src' >&2; exit 1; }
endef

asan: ## run tests of the engine under the address sanitizer (needs the nightly toolchain)
	$(call nightly)
	$(call SANITIZED,a,address) -p alluvium-mem --lib --test it
	$(call SANITIZED,a,address) -p alluvium --lib --test it -- $(TESTS)

tsan: ## run tests of the engine under the thread sanitizer (needs nightly with rust-src)
	$(call nightly)
	$(call SANITIZED,t,thread) -Zbuild-std -p alluvium-mem --lib --test it
	$(call SANITIZED,t,thread) -Zbuild-std -p alluvium --lib --test it -- $(TESTS)

# The model of the caches takes the place of the sanitizer's library.
LINES = -Zsanitizer=thread -Zexternal-clangrt -Cunsafe-allow-abi-mismatch=sanitizer -Cllvm-args=-tsan-instrument-func-entry-exit=0
SCALABILITY = docs/results/scalability.md
lines: ## count cache lines that operations of 16 clients take from each other (writes docs/results/scalability.md; needs nightly)
	$(call nightly)
	CARGO_TARGET_DIR='$(CACHE)/lines' CARGO_PROFILE_RELEASE_DEBUG=limited RUSTFLAGS='$(LINES)' \
	  cargo +nightly run --quiet --locked --release --target $$(rustc +nightly -vV | sed -n 's/^host: //p') \
	  -p alluvium-lines > '$(SCALABILITY).new'
	mv '$(SCALABILITY).new' '$(SCALABILITY)'

SECONDS ?= 60
SIZE ?= small
JOBS ?= $(shell nproc)
FAILURES ?= sim-failures.txt
sim: ## simulate on all cores: SEEDS seeds or SECONDS (60), SIZE small or long, FROM the first seed
	@case '$(SIZE)' in small|long) ;; *) echo 'SIZE must be small or long' >&2; exit 1;; esac
	CARGO_TARGET_DIR='$(CACHE)/target' cargo run --quiet --locked --profile sim -p alluvium-sim --features simulation -- \
	  --jobs $(JOBS) --failures '$(FAILURES)' $(if $(SEEDS),--seeds $(SEEDS),--seconds $(SECONDS)) \
	  $(if $(FROM),--from $(FROM)) $(if $(filter long,$(SIZE)),--long)

planted: ## check that the tests of engine and laboratory, and the simulator, find planted mistakes
	CARGO_TARGET_DIR='$(CACHE)' crates/alluvium/tests/planted/run.sh
	CARGO_TARGET_DIR='$(CACHE)' crates/rumbench/tests/planted/run.sh
	CARGO_TARGET_DIR='$(CACHE)' crates/alluvium-sim/planted/run.sh

bench-rocksdb: ## run bench with RocksDB too (built once, 11 min; needs a C++ compiler and libclang)
	bash .ci/steps.sh system
	libraries=$$(ALLUVIUM_CACHE='$(CACHE)' cargo xtask rocksdb) && eval "$$libraries" && \
	  cargo build --locked --release -p rumbench --features rocksdb && \
	  cargo run --quiet --locked --release -p rumbench --features rocksdb -- \
	    quick --out out/quick-$$(date -u +%Y%m%d-%H%M%S)

CLAIMS ?= out/claims
claims: ## repeat the measurements in README and compare (30 min; RELATIVE=1 on other machines)
	bash .ci/steps.sh system
	libraries=$$(ALLUVIUM_CACHE='$(CACHE)' cargo xtask rocksdb) && eval "$$libraries" && \
	  cargo build --locked --release -p rumbench --features rocksdb && \
	  cargo xtask claims --binary "$${CARGO_TARGET_DIR:-target}/release/rumbench" --out '$(CLAIMS)' $(if $(RELATIVE),--relative)

PART ?= linkbench
LEDGER ?= out/ledger
ledger: ## try a PART of the published claims again at a reduced scale (docs/results/ledger.md)
	bash .ci/steps.sh system
	libraries=$$(export ALLUVIUM_CACHE='$(CACHE)' && cargo xtask rocksdb && cargo xtask wiredtiger) && eval "$$libraries" && \
	  cargo build --locked --release -p rumbench --features rocksdb,wiredtiger,mariadb,postgresql && \
	  ALLUVIUM_CACHE='$(CACHE)' cargo xtask ledger --binary "$${CARGO_TARGET_DIR:-target}/release/rumbench" \
	    --out '$(LEDGER)' --part '$(PART)'

COMMITS ?= HEAD
history: ## measure the engine of COMMITS and add them to docs/results/history.md (2 min each; counts need valgrind)
	ALLUVIUM_CACHE='$(CACHE)' cargo xtask history $(COMMITS)

peers: ## fetch the servers: PostgreSQL, MariaDB with InnoDB and MyRocks (Debian, Ubuntu)
	ALLUVIUM_CACHE='$(CACHE)' bash .ci/peers.sh

mariadb: ## build the storage engine for MariaDB, fetch a private server, and print how to start it (Debian, Ubuntu)
	@ALLUVIUM_CACHE='$(CACHE)' CARGO_TARGET_DIR='$(CACHE)/target' mariadb/build/all.sh

test-mariadb: ## run the tests of the storage engine for MariaDB
	ALLUVIUM_CACHE='$(CACHE)' CARGO_TARGET_DIR='$(CACHE)/target' bash .ci/steps.sh build plugin mariadb

clean-cache: ## delete the build results outside the checkout
	rm -rf '$(CACHE)/target' '$(CACHE)/soak' '$(CACHE)/miri' '$(CACHE)/loom' '$(CACHE)/asan' '$(CACHE)/tsan' '$(CACHE)/lines' '$(CACHE)/history' '$(CACHE)/planted' \
	  '$(CACHE)'/rocksdb-* '$(CACHE)'/wiredtiger-* '$(CACHE)'/peers \
	  '$(CACHE)'/mariadb-server '$(CACHE)'/mariadb-plugin '$(CACHE)'/mariadb-suites
	[ ! -w /var/cache/alluvium ] || rm -rf /var/cache/alluvium
