//! Tests of the step.
