//! The slots' lines for `/metrics`, in Prometheus text. What the engine counts is elsewhere; this is what only the slots know.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pointsman_engine::decision::FaultClass;
use pointsman_policy::replay::rival::RivalReport;
use pointsman_policy::slot::Challenge;
use pointsman_policy::{FigureValue, SlotKind, SlotReport};

/// One family after another. `recorded` is frames kept and frames lost.
pub fn text(slots: &[SlotReport], shadows: &[(SlotKind, RivalReport)], recorded: &[(SlotKind, (u64, u64))]) -> String {
    let mut text = Text(String::new());
    let rows = slots.iter().map(|slot| (slot.kind, String::new(), slot.generation as f64));
    text.family("slot_generation", "gauge", "Changes of who decides", rows);
    let rows = slots.iter().filter_map(|slot| {
        let active = slot.active.as_ref()?;
        let (name, version, digest) = (&active.descriptor.name, &active.descriptor.version, active.digest);
        Some((slot.kind, format!("name=\"{name}\",version=\"{version}\",digest=\"{digest}\""), 1.0))
    });
    text.family("policy_info", "gauge", "The policy in charge of a slot", rows);
    let rows = slots.iter().flat_map(|slot| {
        let classes = FaultClass::ALL.iter().zip(slot.faults);
        classes.map(|(class, count)| (slot.kind, format!("class=\"{}\"", class.name()), count as f64))
    });
    text.family("policy_faults", "gauge", "Faults of the policy in charge since it came in", rows);
    text.trials(slots);
    let rows = shadows.iter().flat_map(|(slot, shadow)| {
        let counts = [
            ("asked", shadow.decisions),
            ("agreed", shadow.agreed),
            ("invalid", shadow.invalid),
            ("missed", shadow.missed),
        ];
        counts.map(|(what, count)| (*slot, format!("what=\"{what}\""), count as f64))
    });
    text.family("shadow_decisions", "gauge", "Decisions of a shadow", rows);
    let rows = recorded.iter().flat_map(|(slot, (kept, lost))| {
        [("kept", kept), ("lost", lost)].map(|(what, n)| (*slot, format!("what=\"{what}\""), *n as f64))
    });
    text.family("decision_log_frames_total", "counter", "Frames of a decision log", rows);
    text.figures(slots);
    text.0
}

struct Text(String);

impl Text {
    fn trials(&mut self, slots: &[SlotReport]) {
        type Read = fn(&Challenge) -> f64;
        let families: [(&str, &str, Read); 4] = [
            ("trial_percent", "Share of the requests that the policy on trial decides about", |trial| {
                f64::from(trial.share) / 100.0
            }),
            ("trial_requests", "Requests that the policy on trial decided about and that have ended", |trial| {
                trial.requests.into()
            }),
            ("trial_ttft_ratio", "Time to first token on trial, as a multiple of the active policy's", |trial| {
                trial.ttft_ratio
            }),
            ("trial_tpot_ratio", "Time per output token on trial, as a multiple of the active policy's", |trial| {
                trial.tpot_ratio
            }),
        ];
        for (name, help, read) in families {
            let rows =
                slots.iter().filter_map(|slot| Some((slot.kind, String::new(), read(slot.challenger.as_ref()?))));
            self.family(name, "gauge", help, rows);
        }
    }

    /// The figures that policies keep, under a name of their own, whatever a policy calls them. Of two policies that use one name the
    /// first says what it is.
    fn figures(&mut self, slots: &[SlotReport]) {
        let figures = || slots.iter().flat_map(|slot| slot.figures.iter().map(move |figure| (slot.kind, figure)));
        let names: BTreeSet<&str> = figures().map(|(_, figure)| figure.name.as_str()).collect();
        for name in names {
            let of_name = || figures().filter(|(_, figure)| figure.name == name);
            let Some((_, first)) = of_name().next() else { continue };
            let kind = if matches!(first.value, FigureValue::Counter(_)) { "counter" } else { "gauge" };
            let rows = of_name().map(|(slot, figure)| match figure.value {
                FigureValue::Counter(count) => (slot, String::new(), count as f64),
                FigureValue::Gauge(value) => (slot, String::new(), value),
            });
            self.family(&format!("policy_figure_{name}"), kind, &first.help.replace('\\', "\\\\"), rows);
        }
    }

    /// A family without rows is left away.
    fn family(&mut self, name: &str, kind: &str, help: &str, rows: impl IntoIterator<Item = (SlotKind, String, f64)>) {
        let out = &mut self.0;
        for (at, (slot, labels, value)) in rows.into_iter().enumerate() {
            // Writing to a string does not fail.
            if at == 0 {
                let _ = writeln!(out, "# HELP pointsman_{name} {help}.\n# TYPE pointsman_{name} {kind}");
            }
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(out, "pointsman_{name}{{slot=\"{slot}\"{comma}{labels}}} {value}");
        }
    }
}
