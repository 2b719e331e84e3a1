//! Accounting of one chain's paged KV store and its prefix cache: counts and ids, never bytes.
//!
//! Each block is in exactly one state:
//!
//! - *in use*: in the table of at least one sequence, of several if they share a prefix;
//! - *idle*: in no table, but what it holds is known and can be found, so that the next prompt like it need not be run;
//! - *free*: in no table, and what it holds is worth nothing.
//!
//! The life of a block:
//!
//! 1. [`BlockPool::reserve`] gives a sequence all the blocks it can ever need at once: those of its prompt that are cached
//!    are shared, the rest are free ones or, if these run short, idle ones that are evicted.
//! 2. [`BlockPool::publish`] makes a full block findable once the last stage has answered for its tokens; only then have
//!    all stages written it. Nobody writes it any more, since a sequence only writes behind the tokens it has run.
//! 3. [`BlockPool::release`] takes a table back. Blocks that nobody else holds become idle if they can be found, and free
//!    otherwise. A [`Table`] can not be copied and is consumed, so that no block can be released twice.
//!
//! Two rules keep the promises to sequences. A shared block is never written, and a block is evicted only from the idle
//! state, when no micro-batch can read it any more. And all idle blocks can be evicted, so that a request of `n` tokens
//! fits exactly if `n` is at most [`BlockPool::free_tokens`]: a table holds all blocks on the way from the root to its
//! findable ones ([`prefix`]), so below an idle block there are only idle ones.

mod pool;

pub(crate) mod prefix;

#[cfg(test)]
mod tests;

pub(crate) use pool::{BlockPool, Evict, Table};
