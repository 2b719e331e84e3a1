//! The HTTP layer: OpenAI-compatible requests in, JSON and server-sent events out.
//!
//! In the order of a request: `server` routes it, `openai` reads its body through `parse` and turns its text into tokens
//! with [`text`], `generation` runs it on a [`service::Service`] and turns the events into text again, and `answer` or
//! `sse` write that out. `admin` changes who decides. Every error is a row of the table in `error`.
//!
//! The application makes an [`ApiState`], calls [`serve`] with a [`router`] at once, so that health can be asked while the
//! model is being loaded, and completes it with [`ApiState::set_model`].

mod admin;
mod answer;
mod error;
mod generation;
mod ids;
pub mod limits;
mod log;
mod metrics;
mod openai;
mod parse;
mod server;
pub mod service;
mod sse;
mod state;
pub mod text;

pub use server::{Routes, router, serve};
pub use state::ApiState;
