//! Block formats against an independent decoder, and the GGUF reader against its writer and against damaged files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod blocks;
mod damaged;
mod hostile;
mod round_trip;
