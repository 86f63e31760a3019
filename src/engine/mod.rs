//! Runs jobs: the contract of a step, what it may touch, and the loop that runs a graph.

pub mod cancel;
pub mod careful;
pub mod ctx;
pub mod lease;
pub mod process;
pub mod progress;
pub mod run;
pub mod shared;
pub mod signals;
pub mod step;
