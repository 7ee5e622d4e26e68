//! Tests of the whole runner.

mod simulation;
