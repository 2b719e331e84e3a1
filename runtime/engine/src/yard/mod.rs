//! Where requests wait and where they can go: the chains, the one central queue, and the decisions between them.
//!
//! [`chains`] are the host's tables and so the truth; [`view`] is what the policy has been told of them; [`dispatch`] asks
//! it. Invariant: what the policy was told differs from the tables only by changes that it is told before its next answer.

pub(crate) mod chains;

pub(crate) mod dispatch;

pub(crate) mod queue;

pub(crate) mod view;
