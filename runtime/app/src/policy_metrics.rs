//! The slot's lines for `/metrics`, in Prometheus text. What the engine counts is elsewhere; this is what only the slot knows.

use std::fmt::Write as _;

use pointsman_engine::decision::FaultClass;
use pointsman_policy::replay::rival::RivalReport;
use pointsman_policy::{FigureValue, SlotReport};

/// One family after another. `recorded` is frames kept and frames lost.
pub fn text(slot: &SlotReport, shadow: Option<&RivalReport>, recorded: (u64, u64)) -> String {
    let mut text = Text(String::new());
    text.family("slot_generation", "gauge", "Changes of who decides", [(String::new(), slot.generation as f64)]);
    if let Some(active) = &slot.active {
        let (name, version, digest) = (&active.descriptor.name, &active.descriptor.version, active.digest);
        let labels = format!("name=\"{name}\",version=\"{version}\",digest=\"{digest}\"");
        text.family("policy_info", "gauge", "The policy in charge of the slot", [(labels, 1.0)]);
    }
    let classes = FaultClass::ALL.iter().zip(slot.faults);
    let rows = classes.map(|(class, count)| (format!("class=\"{}\"", class.name()), count as f64));
    text.family("policy_faults", "gauge", "Faults of the policy in charge since it came in", rows);
    if let Some(trial) = &slot.challenger {
        for (name, help, value) in [
            (
                "trial_percent",
                "Share of the requests that the policy on trial decides about",
                f64::from(trial.share) / 100.0,
            ),
            (
                "trial_requests",
                "Requests that the policy on trial decided about and that have ended",
                trial.requests.into(),
            ),
            (
                "trial_ttft_ratio",
                "Time to first token on trial, as a multiple of the active policy's",
                trial.ttft_ratio,
            ),
            (
                "trial_tpot_ratio",
                "Time per output token on trial, as a multiple of the active policy's",
                trial.tpot_ratio,
            ),
        ] {
            text.family(name, "gauge", help, [(String::new(), value)]);
        }
    }
    if let Some(shadow) = shadow {
        let rows = [
            ("asked", shadow.decisions),
            ("agreed", shadow.agreed),
            ("invalid", shadow.invalid),
            ("missed", shadow.missed),
        ];
        let rows = rows.map(|(what, count)| (format!("what=\"{what}\""), count as f64));
        text.family("shadow_decisions", "gauge", "Decisions of the shadow", rows);
    }
    let rows = [("kept", recorded.0), ("lost", recorded.1)].map(|(what, n)| (format!("what=\"{what}\""), n as f64));
    text.family("decision_log_frames_total", "counter", "Frames of the decision log", rows);
    for figure in &slot.figures {
        let (kind, value) = match figure.value {
            FigureValue::Counter(count) => ("counter", count as f64),
            FigureValue::Gauge(value) => ("gauge", value),
        };
        // A name of their own, whatever a policy calls them.
        let help = figure.help.replace('\\', "\\\\");
        text.family(&format!("policy_figure_{}", figure.name), kind, &help, [(String::new(), value)]);
    }
    text.0
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str, rows: impl IntoIterator<Item = (String, f64)>) {
        let out = &mut self.0;
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP pointsman_{name} {help}.\n# TYPE pointsman_{name} {kind}");
        for (labels, value) in rows {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(out, "pointsman_{name}{{slot=\"route\"{comma}{labels}}} {value}");
        }
    }
}
