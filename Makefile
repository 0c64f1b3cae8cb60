# Everything that is run by hand or by continuous integration. `make help` lists it.

# Build results that are costly to make again are kept outside the checkout. ALLUVIUM_CACHE moves them.
CACHE ?= $(or $(ALLUVIUM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/alluvium)

.DEFAULT_GOAL := help
.PHONY: help bench bench-rocksdb claims peers test soak miri loom asan tsan planted sim clean-cache

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

bench: ## build the laboratory and run its quick comparison of embedded engines (results under out/)
	cargo build --locked --release -p rumbench
	cargo run --quiet --locked --release -p rumbench -- quick --out out/quick-$$(date -u +%Y%m%d-%H%M%S)

test: ## everything that continuous integration checks
	ALLUVIUM_CACHE='$(CACHE)' CARGO_TARGET_DIR='$(CACHE)/target' bash .ci/steps.sh

soak: ## every crash point, failing call and flipped bit of the reliability tests, and random input, with figures (an hour)
	CARGO_PROFILE_DEV_OPT_LEVEL=2 ALLUVIUM_ONE_IN=1 CARGO_TARGET_DIR='$(CACHE)/soak' \
	  cargo test --locked -p alluvium --test it -- reliability:: --nocapture --test-threads=1
	CARGO_PROFILE_DEV_OPT_LEVEL=2 ALLUVIUM_FUZZ_SECONDS=60 CARGO_TARGET_DIR='$(CACHE)/soak' \
	  cargo test --locked -p alluvium --lib --test it -- fuzz_ --nocapture

miri: ## run the tests of the unsafe code under miri (needs the nightly toolchain)
	@cargo +nightly miri --version >/dev/null 2>&1 || { \
	  echo 'miri is missing: rustup toolchain install nightly --component miri' >&2; exit 1; }
	CARGO_TARGET_DIR='$(CACHE)/miri' cargo +nightly miri test --locked -p alluvium-mem

loom: ## run the models of the concurrent structures through all their interleavings
	CARGO_TARGET_DIR='$(CACHE)/loom' RUSTFLAGS='--cfg loom' \
	  cargo test --locked --release -p alluvium-mem -p alluvium --lib -- model loom

# The parts of the tests that meet unsafe code and threads most; `make asan TESTS=` runs them all.
# rustix goes through libc there: the sanitizers see mappings only where libc makes them, and take a page that is mapped
# again for the old one otherwise.
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

tsan: ## the same under the thread sanitizer (nightly with rust-src: the standard library is built too)
	$(call nightly)
	$(call SANITIZED,t,thread) -Zbuild-std -p alluvium-mem --lib --test it
	$(call SANITIZED,t,thread) -Zbuild-std -p alluvium --lib --test it -- $(TESTS)

SECONDS ?= 60
SIZE ?= small
JOBS ?= $(shell nproc)
FAILURES ?= sim-failures.txt
sim: ## run seeds of the simulator on all cores: SEEDS of them or for SECONDS (60), SIZE small or long, FROM a seed on
	@case '$(SIZE)' in small|long) ;; *) echo 'SIZE is small or long' >&2; exit 1;; esac
	CARGO_TARGET_DIR='$(CACHE)/target' cargo run --quiet --locked --profile sim -p alluvium-sim --features simulation -- \
	  --jobs $(JOBS) --failures '$(FAILURES)' $(if $(SEEDS),--seeds $(SEEDS),--seconds $(SECONDS)) \
	  $(if $(FROM),--from $(FROM)) $(if $(filter long,$(SIZE)),--long)

planted: ## are mistakes found that were planted? For the tests of the engine, then for the simulator
	CARGO_TARGET_DIR='$(CACHE)' crates/alluvium/tests/planted/run.sh
	CARGO_TARGET_DIR='$(CACHE)' crates/alluvium-sim/planted/run.sh

bench-rocksdb: ## as bench, with RocksDB beside the others (builds it once, some 11 minutes; needs a C++ compiler, libclang)
	bash .ci/steps.sh system
	libraries=$$(ALLUVIUM_CACHE='$(CACHE)' cargo xtask rocksdb) && eval "$$libraries" && \
	  cargo build --locked --release -p rumbench --features rocksdb && \
	  cargo run --quiet --locked --release -p rumbench --features rocksdb -- \
	    quick --out out/quick-$$(date -u +%Y%m%d-%H%M%S)

CLAIMS ?= out/claims
claims: ## measure every figure again that README quotes, and compare (half an hour; RELATIVE=1 on another machine than README's)
	bash .ci/steps.sh system
	libraries=$$(ALLUVIUM_CACHE='$(CACHE)' cargo xtask rocksdb) && eval "$$libraries" && \
	  cargo build --locked --release -p rumbench --features rocksdb && \
	  cargo xtask claims --binary "$${CARGO_TARGET_DIR:-target}/release/rumbench" --out '$(CLAIMS)' $(if $(RELATIVE),--relative)

peers: ## fetch the servers that the laboratory can drive: PostgreSQL, MariaDB with InnoDB and MyRocks (Debian, Ubuntu)
	ALLUVIUM_CACHE='$(CACHE)' bash .ci/peers.sh

clean-cache: ## delete the build results that are kept outside the checkout
	rm -rf '$(CACHE)/target' '$(CACHE)/soak' '$(CACHE)/miri' '$(CACHE)/loom' '$(CACHE)/asan' '$(CACHE)/tsan' '$(CACHE)/planted' \
	  '$(CACHE)'/rocksdb-* '$(CACHE)'/wiredtiger-* '$(CACHE)'/peers
	[ ! -w /var/cache/alluvium ] || rm -rf /var/cache/alluvium
