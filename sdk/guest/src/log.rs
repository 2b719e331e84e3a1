//! Lines for the operator: the only thing that a policy may send besides its answers.

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is odd; decisions go on.
    Warn,
    /// Something is broken.
    Error,
}

/// Sends one line to the host's log. The host cuts long lines and drops lines above its rate; never log per decision.
///
/// Natively the line is kept for [`crate::testing::take_logs`].
pub fn log(level: Level, line: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::guest::log(level, line);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::keep_log(level, line);
}
