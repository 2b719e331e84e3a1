//! Hands a state of 8 MiB to its successor.

use hostile_guests::{Guest, Hostile};

struct Huge;

impl Hostile for Huge {
    const NAME: &'static str = "huge-list";

    fn save() -> Option<Vec<u8>> {
        Some(vec![0x5a; 8 << 20])
    }
}

pointsman_sdk::export_policy!(Guest<Huge>: route);
