//! Lines and figures for the operator: the only things that a policy may send besides its answers.

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

/// Adds to the counter that [`crate::Policy::METRICS`] declares under `id`. Costs a call of the host, about 50 ns.
///
/// Natively it does nothing.
pub fn count(id: u32, by: u64) {
    #[cfg(target_arch = "wasm32")]
    crate::guest::count(id, by);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (id, by);
}

/// Sets the gauge that [`crate::Policy::METRICS`] declares under `id`. Costs a call of the host, about 50 ns.
///
/// Natively it does nothing.
pub fn gauge(id: u32, value: f64) {
    #[cfg(target_arch = "wasm32")]
    crate::guest::gauge(id, value);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (id, value);
}
