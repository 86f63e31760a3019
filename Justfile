# Lists the recipes.
default:
    @just --list

# Everything that CI checks, in its order.
check: fmt-check lint doc test

fmt-check:
    cargo fmt --check

lint:
    cargo clippy --locked --all-targets -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

# All tests. The only prerequisites are Rust and a C compiler.
test:
    cargo test --locked

# Indexes the built-in sample project and asks it a question.
demo:
    cargo run --release -- run demo
    cargo run --release -- query "session expires too early"

# Writes the generated files again: docs/, and what carries schedules in deploy/.
gen:
    UPDATE_DOCS=1 cargo test --locked --test it -- docs manifests_with_schedules

# Benchmarks: rates and latencies, release build.
bench:
    cargo bench --locked

# Quality of answers on the committed collection and on others: corpus.jsonl, queries.jsonl, qrels.tsv, plain or gzipped.
quality *DIRS:
    cargo bench --locked --bench quality -- tests/fixtures/quality {{ DIRS }}

# An empty migration with the next number.
migration NAME:
    @next=$(printf '%04d' $(( $(ls migrations | tail -1 | cut -c1-4 | sed 's/^0*//') + 1 ))); \
      echo "-- {{ NAME }}" > migrations/${next}_{{ NAME }}.sql; \
      echo "migrations/${next}_{{ NAME }}.sql: now add its line to MIGRATIONS in src/store/open.rs"

# Looks for input that breaks a target of tests/fuzz. Needs `cargo install cargo-fuzz`.
fuzz TARGET SECONDS="60":
    RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz {{ TARGET }} tests/fuzz/seeds/{{ TARGET }} -- -max_total_time={{ SECONDS }} -timeout=10

# Kills and stops syncs at random until that many were, or the time is up; then everything must be there.
soak RUNS="500" SECONDS="1200" SEED="1" LANES="2":
    LORE_SOAK_RUNS={{ RUNS }} LORE_SOAK_SECONDS={{ SECONDS }} LORE_SOAK_SEED={{ SEED }} LORE_SOAK_LANES={{ LANES }} cargo test --locked --test it soak -- --nocapture
