//! The slots: the places for a policy, each of them an interface of the contract.

use std::fmt;
use std::str::FromStr;

use pointsman_engine::window::Kind;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotKind {
    /// Where requests go.
    Route,
    /// What runs in the next micro-batch.
    Batch,
    /// What leaves the prefix cache, and how keys and values are stored.
    Cache,
    /// Which server holds which blocks of the model.
    Place,
}

impl SlotKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Route, Self::Batch, Self::Cache, Self::Place];
    /// Those that a running engine asks.
    pub const LIVE: [Self; 3] = [Self::Route, Self::Batch, Self::Cache];

    /// The name in the contract, on the command line and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Batch => "batch",
            Self::Cache => "cache",
            Self::Place => "place",
        }
    }

    /// The question of this slot, if it is one that is asked with a window.
    #[must_use]
    pub fn window(self) -> Option<Kind> {
        match self {
            Self::Batch => Some(Kind::Step),
            Self::Cache => Some(Kind::Victims),
            Self::Route | Self::Place => None,
        }
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SlotKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|slot| slot.name() == name);
        known.ok_or_else(|| format!("there is no slot `{name}`; slots: {}", Self::ALL.map(Self::name).join(", ")))
    }
}
