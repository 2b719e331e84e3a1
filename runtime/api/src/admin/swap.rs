//! What a caller asks of a swap: the same names in a JSON body, in the query of an upload, and on the command line.
//!
//! ```text
//! policy                name or digest; in a body only
//! config                the policy's own, a JSON object
//! mode                  active (default), trial, shadow
//! percent               share of a trial, above 0 up to 100; default 10
//! rehearse              default true
//! guard_faults          default true; without it the policy stays whatever it does, unless it is slower on trial
//! slo_margin_percent    0 to 1000, default 5 for a trial, 100 otherwise
//! slo_requests          64 to 1,000,000, default 2000
//! promote               default false
//! signature             who vouches for it, a text as `policy sign` makes it
//! ```

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::error::ApiError;
use crate::parse::Fields;
use crate::service::{Mode, PolicySource, Swap, SwapOptions};

const NAMES: &str =
    "policy, config, mode, percent, rehearse, guard_faults, slo_margin_percent, slo_requests, promote and signature";

/// By how much a policy on trial may be slower, unless the caller says.
const TRIAL_MARGIN: f64 = 0.05;

/// What was given, wherever it stood.
#[derive(Default)]
struct Given {
    mode: Option<String>,
    percent: Option<f64>,
    rehearse: Option<bool>,
    guard_faults: Option<bool>,
    slo_margin_percent: Option<f64>,
    slo_requests: Option<u32>,
    promote: Option<bool>,
}

impl Given {
    fn options(self) -> Result<SwapOptions, ApiError> {
        let usual = SwapOptions::default();
        let mode = match (self.mode.as_deref(), self.percent) {
            (Some("trial"), percent) => {
                let percent = ranged("percent", percent.unwrap_or(10.0), 0.01, 100.0)?;
                Mode::Trial((percent * 100.0).round() as u32)
            }
            (_, Some(_)) => return Err(ApiError::invalid("percent", "percent: goes with the mode trial only")),
            (None | Some("active"), None) => Mode::Active,
            (Some("shadow"), None) => Mode::Shadow,
            (Some(other), None) => {
                return Err(ApiError::invalid("mode", format!("mode: {other:?} is none of active, trial and shadow")));
            }
        };
        if mode == Mode::Trial(10_000) && self.promote == Some(true) {
            let why = "promote: a trial of all requests has nothing to be compared with; choose a smaller percent";
            return Err(ApiError::invalid("promote", why));
        }
        for (name, is_given) in [("promote", self.promote == Some(true)), ("slo_requests", self.slo_requests.is_some())]
        {
            if is_given && !matches!(mode, Mode::Trial(_)) {
                return Err(ApiError::invalid(name, format!("{name}: goes with the mode trial only")));
            }
        }
        // On trial both arms see the same load; before and after a swap do not.
        let margin = if matches!(mode, Mode::Trial(_)) { TRIAL_MARGIN } else { usual.slo_margin };
        let margin = self.slo_margin_percent.unwrap_or(margin * 100.0);
        let requests = self.slo_requests.unwrap_or(usual.slo_requests);
        Ok(SwapOptions {
            mode,
            rehearse: self.rehearse.unwrap_or(usual.rehearse),
            guard_faults: self.guard_faults.unwrap_or(usual.guard_faults),
            slo_margin: ranged("slo_margin_percent", margin, 0.0, 1000.0)? / 100.0,
            slo_requests: ranged("slo_requests", f64::from(requests), 64.0, 1e6)? as u32,
            promote: self.promote.unwrap_or(usual.promote),
        })
    }
}

fn ranged(name: &'static str, value: f64, min: f64, max: f64) -> Result<f64, ApiError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::invalid(name, format!("{name}: {value} is not within {min} to {max}")))
}

/// Reads a JSON body that names a policy.
pub(super) fn named(body: &[u8]) -> Result<Swap, ApiError> {
    let mut fields = Fields::parse(body)?;
    let policy = fields.take::<String>("policy")?;
    let policy =
        policy.ok_or_else(|| ApiError::invalid("policy", "policy: name one, or send it as application/wasm"))?;
    let config = fields.take::<&RawValue>("config")?.map_or_else(String::new, |json| json.get().to_owned());
    let signature = fields.take("signature")?;
    let given = Given {
        mode: fields.take("mode")?,
        percent: fields.take("percent")?,
        rehearse: fields.take("rehearse")?,
        guard_faults: fields.take("guard_faults")?,
        slo_margin_percent: fields.take("slo_margin_percent")?,
        slo_requests: fields.take("slo_requests")?,
        promote: fields.take("promote")?,
    };
    // A misspelt field of an operator's command must not be dropped in silence.
    if let Some(name) = fields.names().next() {
        return Err(ApiError::unsupported(name, format!("{name}: not a field of a swap; there are {NAMES}")));
    }
    Ok(Swap { source: PolicySource::Name(policy), config, signature, options: given.options()? })
}

/// Reads the query of an upload.
pub(super) fn uploaded(component: Vec<u8>, mut query: BTreeMap<String, String>) -> Result<Swap, ApiError> {
    let (config, signature) = (query.remove("config").unwrap_or_default(), query.remove("signature"));
    let given = Given {
        mode: query.remove("mode"),
        percent: read(&mut query, "percent")?,
        rehearse: read(&mut query, "rehearse")?,
        guard_faults: read(&mut query, "guard_faults")?,
        slo_margin_percent: read(&mut query, "slo_margin_percent")?,
        slo_requests: read(&mut query, "slo_requests")?,
        promote: read(&mut query, "promote")?,
    };
    if let Some(name) = query.keys().next() {
        return Err(ApiError::unsupported(name, format!("{name}: not an option of a swap; there are {NAMES}")));
    }
    Ok(Swap { source: PolicySource::Bytes(component), config, signature, options: given.options()? })
}

fn read<T: FromStr>(query: &mut BTreeMap<String, String>, name: &'static str) -> Result<Option<T>, ApiError> {
    let Some(text) = query.remove(name) else { return Ok(None) };
    let wrong = || ApiError::invalid(name, format!("{name}: {text:?} is not a value for it"));
    text.parse().map(Some).map_err(|_| wrong())
}
