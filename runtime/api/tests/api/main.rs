//! The HTTP layer against a scripted service and a vocabulary of bytes: everything that a client can see.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers, too")]

mod admin;
mod disconnects;
mod errors;
mod fake;
mod generation;
mod logprobs;
mod operations;
