//! What a policy may answer, and the ways in which it can fail.
//!
//! Decoded here from the packed word of the contract (`sdk/wit`, interface `route`); checked against the host's
//! tables by `guard`. A decision is advice until the guard has passed it.

use crate::ids::{ChainId, Micros};

/// The answer of `route.pick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteDecision {
    /// Reserve KV on this chain and run there.
    Dispatch(ChainId),
    /// Wait in the central queue until a chain has room.
    Queue,
    /// Refuse; the code is the policy's own and is shown to the operator.
    Reject(u32),
    /// Ask again after this long (bounded by [`crate::limits::DEFER_MICROS_MAX`]).
    Defer(Micros),
}

impl RouteDecision {
    /// Decodes the packed word: bits 63..60 are 0 dispatch, 1 queue, 2 reject, 3 defer; bits 31..0 the operand.
    ///
    /// # Errors
    /// Any other kind, or a bit set between 59 and 32.
    pub fn decode(word: u64) -> Result<Self, Fault> {
        let operand = (word & 0xffff_ffff) as u32;
        if word & 0x0fff_ffff_0000_0000 != 0 {
            return Err(Fault::new(
                FaultClass::Invalid,
                format!("decision {word:#018x} has bits set between 59 and 32"),
            ));
        }
        match word >> 60 {
            0 => Ok(Self::Dispatch(ChainId(operand))),
            1 => Ok(Self::Queue),
            2 => Ok(Self::Reject(operand)),
            3 => Ok(Self::Defer(Micros(u64::from(operand)))),
            kind => Err(Fault::new(FaultClass::Invalid, format!("decision {word:#018x} has the unknown kind {kind}"))),
        }
    }

    /// The packed word of this decision; the inverse of [`Self::decode`].
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            Self::Dispatch(chain) => u64::from(chain.0),
            Self::Queue => 1 << 60,
            Self::Reject(code) => 2 << 60 | u64::from(code),
            Self::Defer(after) => 3 << 60 | (after.0 & 0xffff_ffff),
        }
    }
}

/// Why a policy's answer was not used. Each class is a metric label and a line in the operator's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultClass {
    /// The guest trapped (panic, unreachable, division by zero, out of bounds).
    Trap,
    /// The call used up its fuel.
    Fuel,
    /// The wall-clock backstop ended the call.
    Deadline,
    /// The guest asked for more memory or table space than its limit.
    Memory,
    /// The guest's call stack was exhausted.
    Stack,
    /// The call returned more than the host takes, or called the host too often.
    Oversize,
    /// The answer is not one that the host's tables allow.
    Invalid,
    /// `init` returned an error of its own.
    Init,
    /// A request that fitted was left waiting, or a sequence that was ready was held back, beyond the starvation bound.
    Stall,
}

impl FaultClass {
    /// Every class, in the order of the metrics page.
    pub const ALL: [Self; 9] = [
        Self::Trap,
        Self::Fuel,
        Self::Deadline,
        Self::Memory,
        Self::Stack,
        Self::Oversize,
        Self::Invalid,
        Self::Init,
        Self::Stall,
    ];

    /// The place of this class in [`Self::ALL`], which lists them in the order of their declaration.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name used in metrics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Fuel => "fuel",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Oversize => "oversize",
            Self::Invalid => "invalid",
            Self::Init => "init",
            Self::Stall => "stall",
        }
    }
}

/// A policy's failure to decide: its class and one line for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", class.name())]
pub struct Fault {
    /// What kind of failure.
    pub class: FaultClass,
    /// What exactly, for the log.
    pub detail: String,
}

impl Fault {
    /// A fault of `class` with its explanation.
    pub fn new(class: FaultClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_classes_are_listed_in_the_order_of_their_declaration() {
        for (index, class) in FaultClass::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index);
        }
    }
}
