//! The graph of a job: order, waves, cycles, and which steps a command line selects.

use std::collections::BTreeSet;

use super::Job;
use crate::diagnostic::nearest;
use crate::error::{Error, Result};

/// Steps as a command line selects them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// `--only`: these steps and no others.
    pub only: Vec<String>,
    /// `--from`: these steps and everything that needs them, directly or not.
    pub from: Vec<String>,
    /// `--skip`: not these; wins over the others.
    pub skip: Vec<String>,
}

/// Returns an order in which every step comes after its needs, and steps that may come in
/// any order stay in that of the list. `needs[i]` holds the places of what step `i` needs.
///
/// Returns nothing when there is a cycle.
pub fn order(needs: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (step, needs) in needs.iter().enumerate() {
        for need in needs {
            dependents.get_mut(*need)?.push(step);
        }
    }
    let mut ready: BTreeSet<usize> = (0..needs.len()).filter(|step| left.get(*step) == Some(&0)).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(step) = ready.pop_first() {
        order.push(step);
        for dependent in dependents.get(step).into_iter().flatten() {
            if let Some(count) = left.get_mut(*dependent) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(*dependent);
                }
            }
        }
    }
    (order.len() == needs.len()).then_some(order)
}

/// Returns cycles, one for each knot of steps that need each other. A cycle is the list of
/// its steps, each needing the next and the last one the first, from the earliest on.
pub fn cycles(needs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for start in 0..needs.len() {
        if found.iter().any(|cycle| same_knot(needs, start, cycle)) {
            continue;
        }
        if let Some(cycle) = path(needs, start, start) {
            found.push(cycle);
        }
    }
    found
}

fn same_knot(needs: &[Vec<usize>], step: usize, cycle: &[usize]) -> bool {
    let Some(first) = cycle.first() else {
        return false;
    };
    step == *first || (path(needs, step, *first).is_some() && path(needs, *first, step).is_some())
}

/// A shortest path from `from` over at least one need to `to`, without `to` itself.
fn path(needs: &[Vec<usize>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut came_from: Vec<Option<usize>> = vec![None; needs.len()];
    let mut queue = std::collections::VecDeque::from([from]);
    while let Some(step) = queue.pop_front() {
        for need in needs.get(step)? {
            if *need == to {
                let mut path = vec![step];
                let mut at = step;
                while at != from {
                    at = came_from.get(at).copied().flatten()?;
                    path.push(at);
                }
                path.reverse();
                return Some(path);
            }
            let seen = came_from.get_mut(*need)?;
            if seen.is_none() && *need != from {
                *seen = Some(step);
                queue.push_back(*need);
            }
        }
    }
    None
}

impl Job {
    /// What each step needs, as places in [`Job::steps`].
    pub fn need_places(&self) -> Vec<Vec<usize>> {
        let place = |id: &String| self.steps.iter().position(|step| step.id == *id);
        self.steps.iter().map(|step| step.needs.iter().filter_map(place).collect()).collect()
    }

    /// Places of the steps in an order that respects needs, else that of the file.
    pub fn order(&self) -> Vec<usize> {
        // A job that was parsed has no cycle.
        order(&self.need_places()).unwrap_or_else(|| (0..self.steps.len()).collect())
    }

    /// Places of the steps in waves: the steps of a wave need only steps of earlier ones.
    pub fn waves(&self) -> Vec<Vec<usize>> {
        let needs = self.need_places();
        let mut wave_of = vec![0_usize; needs.len()];
        let mut waves: Vec<Vec<usize>> = Vec::new();
        for step in self.order() {
            let needs = needs.get(step).into_iter().flatten();
            let wave = needs.filter_map(|need| wave_of.get(*need)).max().map_or(0, |last| last + 1);
            if let Some(slot) = wave_of.get_mut(step) {
                *slot = wave;
            }
            match waves.get_mut(wave) {
                Some(steps) => steps.push(step),
                None => waves.push(vec![step]),
            }
        }
        for wave in &mut waves {
            wave.sort_unstable();
        }
        waves
    }

    /// Steps that need not be run again: those that succeeded, when all that they need,
    /// directly or not, need not be run again either. What a step made of the work of one
    /// that is done anew is no longer the whole of it.
    pub fn done(&self, succeeded: &BTreeSet<String>) -> BTreeSet<String> {
        let mut done = BTreeSet::new();
        for step in self.order().into_iter().filter_map(|place| self.steps.get(place)) {
            if succeeded.contains(&step.id) && step.needs.iter().all(|need| done.contains(need)) {
                done.insert(step.id.clone());
            }
        }
        done
    }

    /// Says for each step whether the command line selects it. The others are skipped as
    /// [`SkipReason::NotSelected`](super::state::SkipReason::NotSelected), which satisfies
    /// the steps that need them.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) when a name is no step of the job, or nothing is selected.
    pub fn select(&self, selection: &Selection) -> Result<Vec<bool>> {
        for (flag, names) in
            [("--only", &selection.only), ("--from", &selection.from), ("--skip", &selection.skip)]
        {
            for name in names {
                self.known_step(flag, name)?;
            }
        }
        let everything = selection.only.is_empty() && selection.from.is_empty();
        let mut selected: Vec<bool> = self
            .steps
            .iter()
            .map(|step| everything || selection.only.contains(&step.id) || selection.from.contains(&step.id))
            .collect();
        let mut after: Vec<bool> = self.steps.iter().map(|step| selection.from.contains(&step.id)).collect();
        let needs = self.need_places();
        for step in self.order() {
            let mut needs = needs.get(step).into_iter().flatten();
            if needs.any(|need| after.get(*need) == Some(&true)) {
                for flags in [&mut after, &mut selected] {
                    if let Some(flag) = flags.get_mut(step) {
                        *flag = true;
                    }
                }
            }
        }
        for (flag, step) in selected.iter_mut().zip(&self.steps) {
            *flag = *flag && !selection.skip.contains(&step.id);
        }
        if selected.contains(&true) {
            return Ok(selected);
        }
        Err(Error::usage(format!("no step of job {} is left to run", self.name))
            .hint("name fewer steps in --skip"))
    }

    /// # Errors
    /// A usage error with the nearest name when there is no such step.
    fn known_step(&self, flag: &str, name: &str) -> Result<()> {
        if self.step(name).is_some() {
            return Ok(());
        }
        let known = || self.steps.iter().map(|step| step.id.as_str());
        let error = Error::usage(format!("{flag} {name}: job {} has no such step", self.name));
        Err(match nearest(name, known()) {
            Some(near) => error.hint(format!("did you mean {flag} {near}?")),
            None => error.hint(format!("its steps: {}", known().collect::<Vec<_>>().join(", "))),
        })
    }
}
