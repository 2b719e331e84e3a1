//! The counters and gauges that a policy keeps with the host: declared in `describe`, written by `host.count` and `host.gauge`.
//!
//! They belong to a policy and outlive its instances. Nothing is ever read back by a guest, so they can not change a decision.
//! Ids that were not declared are ignored.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{FIGURES_MAX, LABEL_BYTES_MAX};
use crate::versions::v0_1::{RawMetric, RawMetricKind};

/// A figure's value now, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Lower case letters, digits and `_`.
    pub name: String,
    /// One line.
    pub help: String,
    /// What it is.
    pub value: FigureValue,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureValue {
    /// Only grows.
    Counter(u64),
    /// Any number.
    Gauge(f64),
}

struct Cell {
    id: u32,
    is_gauge: bool,
    name: String,
    help: String,
    /// The counter, or the gauge's bits.
    bits: AtomicU64,
}

/// A policy's figures.
#[derive(Default)]
pub(crate) struct Figures(Vec<Cell>);

impl Figures {
    /// Takes a policy's declarations. The error says which one is wrong.
    pub(crate) fn declare(raw: Vec<RawMetric>) -> Result<Self, String> {
        if raw.len() > FIGURES_MAX {
            return Err(format!("{} metrics are declared, and at most {FIGURES_MAX} are kept", raw.len()));
        }
        let mut cells: Vec<Cell> = Vec::with_capacity(raw.len());
        for RawMetric { id, kind, name, help } in raw {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || name.len() > LABEL_BYTES_MAX || !name.chars().all(letters) {
                return Err(format!(
                    "the name of metric {id} must be 1 to {LABEL_BYTES_MAX} lower case letters, digits and `_`"
                ));
            }
            if cells.iter().any(|cell| cell.id == id || cell.name == name) {
                return Err(format!("metric {id} (`{name}`) is declared twice"));
            }
            let is_gauge = matches!(kind, RawMetricKind::Gauge);
            cells.push(Cell { id, is_gauge, name, help: crate::journal::escape(&help), bits: AtomicU64::new(0) });
        }
        Ok(Self(cells))
    }

    /// The same declarations with nothing counted.
    pub(crate) fn blank(&self) -> Self {
        let blank = |cell: &Cell| Cell {
            id: cell.id,
            is_gauge: cell.is_gauge,
            name: cell.name.clone(),
            help: cell.help.clone(),
            bits: AtomicU64::new(0),
        };
        Self(self.0.iter().map(blank).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self, id: u32, by: u64) {
        if let Some(cell) = self.0.iter().find(|cell| cell.id == id && !cell.is_gauge) {
            // One thread writes; wrapping is what Prometheus expects of a counter that overflows.
            cell.bits.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn gauge(&self, id: u32, value: f64) {
        if let Some(cell) = self.0.iter().find(|cell| cell.id == id && cell.is_gauge) {
            cell.bits.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Vec<Figure> {
        let read = |cell: &Cell| {
            let bits = cell.bits.load(Ordering::Relaxed);
            let value =
                if cell.is_gauge { FigureValue::Gauge(f64::from_bits(bits)) } else { FigureValue::Counter(bits) };
            Figure { name: cell.name.clone(), help: cell.help.clone(), value }
        };
        self.0.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(id: u32, kind: RawMetricKind, name: &str) -> RawMetric {
        RawMetric { id, kind, name: name.into(), help: "help".into() }
    }

    #[test]
    fn keeps_what_was_declared_and_ignores_the_rest() {
        let declared = vec![raw(3, RawMetricKind::Counter, "sheds_total"), raw(7, RawMetricKind::Gauge, "load")];
        let figures = Figures::declare(declared).unwrap();
        figures.count(3, 2);
        figures.count(3, 3);
        figures.gauge(7, -0.5);
        figures.count(7, 9);
        figures.gauge(3, 9.0);
        figures.count(99, 9);
        let values: Vec<_> = figures.read().into_iter().map(|figure| (figure.name, figure.value)).collect();
        assert_eq!(
            values,
            [("sheds_total".into(), FigureValue::Counter(5)), ("load".into(), FigureValue::Gauge(-0.5))]
        );
    }

    #[test]
    fn refuses_bad_declarations() {
        let counter = |id, name| raw(id, RawMetricKind::Counter, name);
        for (declared, why) in [
            (vec![counter(1, "a"), counter(1, "b")], "twice"),
            (vec![counter(1, "a"), counter(2, "a")], "twice"),
            (vec![counter(1, "A")], "lower case"),
            (vec![counter(1, "")], "lower case"),
            ((0..=FIGURES_MAX as u32).map(|id| counter(id, "x")).collect(), "at most"),
        ] {
            let refused = Figures::declare(declared).err().unwrap();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
