//! The prefix index of one chain: from the tokens of a prompt to blocks that hold their keys and values.
//!
//! A forest with one tree a tenant: a node is a full block, its children are the blocks that may follow it, by their tokens.
//! Keys and values depend on all tokens before, and the way from the root is exactly these. Tokens are compared, not
//! hashes of them, so a hit is never wrong; and tenants share nothing, so nobody can ask whether another's prompt is there.
//!
//! Used by [`super::BlockPool`] alone, which counts who holds a block and tells when it becomes idle. The index keeps
//! the *ends* of idle chains, idle blocks that nothing follows, by the time of their last use: eviction goes from the end of
//! a chain to its beginning. Costs are logarithmic, for each block of a walk or change. Invariants: parents are indexed;
//! what follows an idle block is idle, and was last used no later.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{BlockId, TokenId};
use crate::window::Idle;

/// The blocks that may follow, by their tokens.
type Children = BTreeMap<Arc<[TokenId]>, BlockId>;

/// An indexed block.
pub(crate) struct Node {
    pub tenant: u32,
    /// The block before it; none at the beginning of a sequence.
    pub parent: Option<BlockId>,
    /// Tokens from the beginning of the sequence to the end of this block.
    pub depth: u32,
    pub tokens: Arc<[TokenId]>,
    children: Children,
    /// Sequences that started on it.
    hits: u64,
    /// Time of its last use, while it is idle.
    pub idle_since: Option<u64>,
}

/// All that is indexed.
pub(crate) struct PrefixIndex {
    /// By block; none for those that are not indexed.
    nodes: Vec<Option<Box<Node>>>,
    /// First blocks, by tenant; no tenant is without.
    roots: BTreeMap<u32, Children>,
    /// Idle blocks without children, least recently used first.
    ends: BTreeSet<(u64, BlockId)>,
    idle: u32,
}

impl PrefixIndex {
    /// For blocks with ids below `total`.
    pub fn new(total: u32) -> Self {
        Self { nodes: (0..total).map(|_| None).collect(), roots: BTreeMap::new(), ends: BTreeSet::new(), idle: 0 }
    }

    pub fn node(&self, block: BlockId) -> Option<&Node> {
        self.nodes.get(block.0 as usize)?.as_deref()
    }

    fn node_mut(&mut self, block: BlockId) -> Option<&mut Node> {
        self.nodes.get_mut(block.0 as usize)?.as_deref_mut()
    }

    pub fn nodes(&self) -> impl Iterator<Item = (BlockId, &Node)> {
        (0..).map(BlockId).zip(&self.nodes).filter_map(|(block, node)| Some((block, node.as_deref()?)))
    }

    /// Idle blocks.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Idle blocks that nothing follows, least recently used first.
    pub fn ends(&self) -> impl Iterator<Item = BlockId> {
        self.ends.iter().map(|&(_, block)| block)
    }

    /// The block that holds `tokens` behind `parent`.
    pub fn child(&self, tenant: u32, parent: Option<BlockId>, tokens: &[TokenId]) -> Option<BlockId> {
        let children = match parent {
            None => self.roots.get(&tenant)?,
            Some(parent) => &self.node(parent)?.children,
        };
        children.get(tokens).copied()
    }

    /// Walks along `blocks`, the tokens of one full block each, as far as they are indexed.
    pub fn walk<'a>(
        &'a self,
        tenant: u32,
        blocks: impl Iterator<Item = &'a [TokenId]>,
    ) -> impl Iterator<Item = BlockId> {
        let mut parent = None;
        blocks.map_while(move |tokens| {
            parent = Some(self.child(tenant, parent, tokens)?);
            parent
        })
    }

    /// Indexes a block in use behind `parent`. False if an equal one is indexed already, or the parent is not any more.
    pub fn insert(&mut self, tenant: u32, parent: Option<BlockId>, tokens: Arc<[TokenId]>, block: BlockId) -> bool {
        let (before, siblings) = match parent {
            None => (0, self.roots.entry(tenant).or_default()),
            Some(parent) => match self.node_mut(parent) {
                None => return false,
                Some(parent) => (parent.depth, &mut parent.children),
            },
        };
        let Entry::Vacant(place) = siblings.entry(Arc::clone(&tokens)) else { return false };
        place.insert(block);
        let depth = before + tokens.len() as u32;
        let node = Node { tenant, parent, depth, tokens, children: Children::new(), hits: 0, idle_since: None };
        self.nodes[block.0 as usize] = Some(Box::new(node));
        true
    }

    /// Notes that a sequence starts on an indexed block, which is not idle any more.
    pub fn hit(&mut self, block: BlockId) {
        let Some(node) = self.node_mut(block) else { return };
        node.hits += 1;
        if let Some(since) = node.idle_since.take() {
            self.idle -= 1;
            self.ends.remove(&(since, block));
        }
    }

    /// Notes that nobody holds a block any more. False if it is not indexed.
    pub fn rest(&mut self, block: BlockId, now: u64) -> bool {
        let Some(node) = self.node_mut(block) else { return false };
        node.idle_since = Some(now);
        if node.children.is_empty() {
            self.ends.insert((now, block));
        }
        self.idle += 1;
        true
    }

    /// What a policy may know of an indexed block.
    pub fn facts(&self, block: BlockId) -> Option<Idle> {
        let node = self.node(block)?;
        Some(Idle { tenant: node.tenant, depth: node.depth, last_use: node.idle_since?, hits: node.hits })
    }

    /// Removes an end, and returns the block before it if that is an end now.
    pub fn evict(&mut self, end: BlockId) -> Option<BlockId> {
        let parent = self.detach(end)?.parent?;
        let node = self.node(parent)?;
        let since = node.idle_since.filter(|_| node.children.is_empty())?;
        self.ends.insert((since, parent));
        Some(parent)
    }

    /// Removes a first block and all that follows it, in use or idle. The idle ones are appended to `freed`.
    pub fn forget(&mut self, first: BlockId, freed: &mut Vec<BlockId>) {
        let mut left = vec![first];
        while let Some(block) = left.pop() {
            let Some(node) = self.detach(block) else { continue };
            left.extend(node.children.values());
            if node.idle_since.is_some() {
                freed.push(block);
            }
        }
    }

    /// Takes a node out of everything that leads to it.
    fn detach(&mut self, block: BlockId) -> Option<Box<Node>> {
        let node = self.nodes.get_mut(block.0 as usize)?.take()?;
        if let Some(since) = node.idle_since {
            self.idle -= 1;
            self.ends.remove(&(since, block));
        }
        match node.parent {
            Some(parent) => {
                if let Some(parent) = self.node_mut(parent) {
                    parent.children.remove(&node.tokens);
                }
            }
            None => {
                if let Entry::Occupied(mut root) = self.roots.entry(node.tenant) {
                    root.get_mut().remove(&node.tokens);
                    if root.get().is_empty() {
                        root.remove();
                    }
                }
            }
        }
        Some(node)
    }
}
