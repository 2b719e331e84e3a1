//! Model graphs and chains, on a tiny random model: against an independent reference, and cut and batched in every way.
#![cfg(test)]

mod naive;
mod reference;
mod tiny;

mod harness;

mod chain;
mod graph;
mod load;
mod prefix;
