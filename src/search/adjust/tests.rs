use proptest::prelude::*;

use super::*;

fn entry(id: i64, score: f64) -> Entry {
    Entry { id, score, ..Entry::default() }
}

fn entries(scores: &[f64]) -> Vec<Entry> {
    (1..).zip(scores).map(|(id, score)| entry(id, *score)).collect()
}

fn ids(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.id).collect()
}

#[test]
fn a2_13_any_scale_gives_the_same_order_and_keeps_distances() {
    let logits = normalised(&[Some(10.0), Some(0.0), Some(-10.0)]);
    let small = normalised(&[Some(0.003), Some(0.0015), Some(0.0)]);
    assert_eq!(logits, [Some(1.0), Some(0.5), Some(0.0)]);
    assert_eq!(logits, small);
    let odd = normalised(&[Some(f64::NAN), None, Some(f64::INFINITY), Some(f64::MAX), Some(f64::MIN)]);
    assert_eq!(odd, [None, None, None, Some(1.0), Some(0.0)]);
    assert_eq!(normalised(&[Some(3.0), Some(3.0)]), [Some(0.5), Some(0.5)]);
    assert_eq!(normalised(&[]), []);
}

#[test]
fn a2_08_scores_go_to_the_texts_that_they_speak_of() {
    let mut list = entries(&[1.0, 0.9, 0.8, 0.7]);
    rerank(&mut list, &[Some(0.1), Some(0.9), Some(0.5)], 0.7);
    assert_eq!(ids(&list), [2, 3, 1, 4]);
    assert_eq!(list[0].reranked, Some(0.9));
    assert!(list.is_sorted_by(|a, b| a.score >= b.score));
    assert!((list[0].score - (0.3 * 0.9 + 0.7)).abs() < 1e-12);
    assert!((list[2].score - 0.3).abs() < 1e-12);
}

#[test]
fn a2_10_what_was_not_sent_keeps_its_place() {
    let mut list = entries(&[1.0, 0.9, 0.8]);
    rerank(&mut list, &[Some(-5.0), None, Some(5.0)], 0.7);
    assert_eq!(ids(&list), [3, 2, 1]);
    assert_eq!(list[1].reranked, None);
    let mut first = entries(&[1.0, 0.9, 0.8]);
    rerank(&mut first, &[None, Some(-5.0), Some(5.0)], 0.7);
    assert_eq!(ids(&first), [1, 3, 2]);
    assert!(first.is_sorted_by(|a, b| a.score >= b.score));
}

#[test]
fn what_is_named_stays_first_and_is_not_reranked() {
    let mut list = entries(&[1.0, 1.0, 0.9]);
    list[0].pinned = true;
    rerank(&mut list, &[Some(0.0), Some(1.0)], 0.7);
    assert_eq!(ids(&list), [1, 3, 2]);
}

#[test]
fn states_and_ages_count_by_their_coefficients() {
    let fact = |state: &str, waits, updated_at| Facts {
        state: state.to_owned(),
        waits,
        updated_at,
        project_path: "a/b".to_owned(),
    };
    let facts = BTreeMap::from([
        (1, fact("opened", false, Some(0))),
        (2, fact("opened", true, None)),
        (3, fact("closed", false, Some(1_000))),
        (4, fact("merged", false, Some(2_000))),
    ]);
    let boosts = Boosts {
        neighbour: 0.4,
        parents: 5,
        neighbours: 3,
        hub: 1.15,
        hub_least: 5,
        by_state: true,
        active: 1.2,
        pending: 0.8,
        stale: 0.5,
        half_life: None,
        away: 0.7,
        moved: 0.5,
    };
    let mut list = entries(&[1.0, 1.0, 1.0, 1.0, 1.0]);
    boost(&mut list, &facts, &boosts, 1_000);
    let scores: Vec<f64> = list.iter().map(|entry| entry.score).collect();
    assert_eq!(scores, [1.2, 0.8, 0.5, 1.0, 1.0]);
    assert_eq!(list[2].factors, [Factor { name: "stale", change: Change::Times(0.5) }]);
    let mut list = entries(&[1.0, 1.0, 1.0, 1.0]);
    boost(&mut list, &facts, &Boosts { by_state: false, half_life: Some(1_000), ..boosts }, 1_000);
    let scores: Vec<f64> = list.iter().map(|entry| entry.score).collect();
    assert_eq!(scores, [0.5, 1.0, 1.0, 1.0], "no age, and a time in the future, change nothing");
    let mut list = entries(&[1.0, 0.9]);
    home(&mut list, &facts, 0.7, |path| path != "a/b");
    hubs(&mut list, &BTreeMap::from([(1, 4), (2, 5)]), &boosts);
    assert!((list[0].score - 0.7).abs() < 1e-12 && (list[1].score - 0.9 * 0.7 * 1.15).abs() < 1e-12);
}

#[test]
fn a5_20_a_chain_of_moved_items_stands_below_its_end() {
    let mut list = entries(&[1.0, 0.8, 0.3]);
    below_copies(&mut list, &[(0, 1), (1, 2), (2, 2), (9, 0), (0, 9)], 0.5);
    settle(&mut list);
    assert_eq!(ids(&list), [3, 2, 1]);
    let mut circle = entries(&[1.0, 0.8]);
    below_copies(&mut circle, &[(0, 1), (1, 0)], 0.5);
    assert!(circle.iter().all(|entry| entry.score.is_finite()));
}

proptest! {
    #[test]
    fn reranking_keeps_everything_and_never_rises(
        scores in prop::collection::vec(0.0_f64..1.0, 0..30),
        said in prop::collection::vec(prop::option::of(prop::num::f64::ANY), 0..30),
        pinned in 0_usize..3,
        weight in 0.0_f64..=1.0,
    ) {
        let mut sorted = scores;
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mut list = entries(&sorted);
        list.iter_mut().take(pinned).for_each(|entry| entry.pinned = true);
        let before: Vec<i64> = ids(&list);
        rerank(&mut list, &said, weight);
        let rest: Vec<f64> = list.iter().filter(|entry| !entry.pinned).map(|entry| entry.score).collect();
        prop_assert!(rest.is_sorted_by(|a, b| a >= b), "{rest:?}");
        let mut after = ids(&list);
        let head = pinned.min(after.len());
        prop_assert_eq!(&after[..head], &before[..head]);
        let tail = (head + said.len()).min(after.len());
        prop_assert_eq!(&after[tail..], &before[tail..]);
        after.sort_unstable();
        prop_assert_eq!(after, before);
    }

    #[test]
    fn settled_scores_lie_between_one_and_nothing(scores in prop::collection::vec(0.0_f64..9.0, 1..30)) {
        let mut list = entries(&scores);
        settle(&mut list);
        prop_assert!(list.is_sorted_by(|a, b| a.score >= b.score));
        prop_assert!(list.iter().all(|entry| (0.0..=1.0).contains(&entry.score)));
        prop_assert!(scores.iter().all(|score| *score == 0.0) || list[0].score == 1.0);
    }
}
