//! Random histories: a server is edited, fails and is killed at in the middle of runs; after
//! a few quiet ones the database holds what the server shows, and no item was lost.
//!
//! The steps are called as the runner calls them, on a database of their own per history,
//! against a server of its own. `LORE_HISTORIES` sets how many, `LORE_SEED` which.

mod bench;
mod compare;
mod edits;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use bench::{Bench, Kill, Plan, What};
use edits::Edit;

/// What happens around one run.
#[derive(Debug, Clone)]
struct Round {
    before: Vec<Edit>,
    /// Between `ingest` and `fetch-discussions`.
    between: Vec<Edit>,
    fault: Option<Plan>,
    kill: Option<Kill>,
    full: bool,
    reconciles: bool,
}

/// One history.
#[derive(Debug, Clone)]
struct History {
    n_projects: usize,
    /// Whether the group is configured, or its projects.
    by_group: bool,
    /// Nothing but the incremental sync: no daily look, no full run, no reconciliation, and
    /// nothing that only those can see.
    plain: bool,
    begin: Vec<Edit>,
    rounds: Vec<Round>,
}

fn pick() -> impl Strategy<Value = (u8, u8)> {
    (any::<u8>(), any::<u8>())
}

fn edit() -> impl Strategy<Value = Edit> {
    let wait = prop_oneof![
        Just(0),
        Just(1),
        Just(999),
        Just(30_000),
        Just(59_000),
        Just(60_001),
        Just(61_000),
        Just(600_000),
        Just(86_400_000),
    ];
    prop_oneof![
        8 => wait.prop_map(Edit::Wait),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(project, is_issue)| Edit::Add(project, is_issue)),
        2 => pick().prop_map(Edit::Title),
        2 => (pick(), any::<u8>()).prop_map(|(at, n)| Edit::Labels(at, n)),
        2 => pick().prop_map(Edit::State),
        2 => pick().prop_map(Edit::Confidential),
        4 => pick().prop_map(Edit::Note),
        1 => pick().prop_map(Edit::InternalNote),
        1 => pick().prop_map(Edit::SystemNote),
        3 => (pick(), any::<u8>()).prop_map(|(at, n)| Edit::Reply(at, n)),
        3 => (pick(), any::<u8>()).prop_map(|(at, n)| Edit::ChangeNote(at, n)),
        3 => (pick(), any::<u8>(), any::<u8>()).prop_map(|(at, n, place)| Edit::DeleteNote(at, n, place)),
        1 => (pick(), any::<u8>(), any::<bool>()).prop_map(|(at, n, on)| Edit::Resolve(at, n, on)),
        1 => pick().prop_map(Edit::Move),
        1 => pick().prop_map(Edit::DeleteItem),
        1 => pick().prop_map(|(project, which)| Edit::RenameLabel(project, which)),
        1 => any::<u8>().prop_map(Edit::RenameProject),
        1 => (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(p, kind, on)| Edit::Feature(p, kind, on)),
        1 => (any::<u8>(), 0..3_u8).prop_map(|(project, level)| Edit::Access(project, level)),
    ]
}

fn fault() -> impl Strategy<Value = Plan> {
    let target = prop_oneof![
        4 => Just("/issues?"),
        2 => Just("/merge_requests?"),
        4 => Just("/discussions"),
        1 => Just("/labels"),
        1 => Just("/projects/"),
    ];
    let what = prop_oneof![
        Just(What::Html(502)),
        Just(What::Html(503)),
        Just(What::Json(500)),
        Just(What::Json(403)),
        Just(What::Json(404)),
        Just(What::Limited),
        Just(What::Reset),
        Just(What::Truncated),
        Just(What::Halved),
        Just(What::Empty),
        Just(What::TouchOldest),
        Just(What::SamePage),
    ];
    (target, 0..6_usize, 1..5_usize, what).prop_map(|(target, after, times, what)| Plan {
        target,
        after,
        times,
        what,
    })
}

fn round() -> impl Strategy<Value = Round> {
    (
        prop::collection::vec(edit(), 0..7),
        prop::collection::vec(edit(), 0..3),
        prop::option::weighted(0.4, fault()),
        prop::option::weighted(0.3, (any::<bool>(), 1..10_usize)),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.25),
    )
        .prop_map(|(before, between, fault, kill, full, reconciles)| Round {
            reconciles,
            before,
            between,
            fault,
            kill: kill.map(|(before_commit, nth)| Kill { before_commit, nth }),
            full,
        })
}

/// An item that is there from the beginning: enough for several pages, some of one time,
/// some so close that a second would skip them, some beyond every overlap.
fn seed() -> impl Strategy<Value = [Edit; 2]> {
    let gap = prop_oneof![3 => Just(0), 2 => Just(1), 3 => Just(400), 2 => Just(200_000)];
    (any::<u8>(), prop::bool::weighted(0.8), gap)
        .prop_map(|(project, is_issue, gap)| [Edit::Add(project, is_issue), Edit::Wait(gap)])
}

fn history() -> impl Strategy<Value = History> {
    (
        1..=2_usize,
        any::<(bool, bool)>(),
        (prop::collection::vec(seed(), 0..16), prop::collection::vec(edit(), 0..8)),
        prop::collection::vec(round(), 1..4),
    )
        .prop_map(|(n_projects, (by_group, plain), (seed, edits), mut rounds)| {
            let mut begin: Vec<Edit> = seed.into_iter().flatten().chain(edits).collect();
            if plain {
                begin.retain(Edit::shows);
                for round in &mut rounds {
                    round.before.retain(Edit::shows);
                    round.between.retain(Edit::shows);
                    (round.full, round.reconciles) = (false, false);
                }
            }
            History { n_projects, by_group, plain, begin, rounds }
        })
}

/// Lives through a history; panics where it does not come out right.
fn live(history: &History) {
    let mut bench = Bench::new(history);
    bench.edit(&history.begin);
    for round in &history.rounds {
        bench.edit(&round.before);
        bench.run(round);
    }
    bench.settle(history.plain);
    compare::same(&bench);
    bench.stays_quiet();
    compare::same(&bench);
}

fn number(name: &str, default: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "how much to test, no configuration")]
    let text = std::env::var(name);
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `cases` histories from a seed; panics with the smallest one that fails.
fn explore(seed: u64, cases: u32) {
    let mut bytes = [0_u8; 32];
    for (place, byte) in bytes.iter_mut().zip(seed.to_le_bytes().into_iter().cycle()) {
        *place = byte;
    }
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let out = runner.run(&history(), |history| {
        std::panic::catch_unwind(|| live(&history)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            TestCaseError::fail(text.unwrap_or_else(|| "panicked".to_owned()))
        })
    });
    match out {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => panic!("LORE_SEED={seed}: {why}\n{history:#?}"),
        Err(TestError::Abort(why)) => panic!("LORE_SEED={seed}: {why}"),
    }
}

#[test]
fn after_any_history_the_database_is_what_the_server_shows() {
    let (seed, cases) = (number("LORE_SEED", 20_260_301), number("LORE_HISTORIES", 2_000));
    let n_threads = std::thread::available_parallelism().map_or(2, usize::from).min(8) as u64;
    let each = u32::try_from(cases.div_ceil(n_threads)).unwrap();
    let threads: Vec<_> =
        (0..n_threads).map(|n| std::thread::spawn(move || explore(seed.wrapping_add(n), each))).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
