//! The `/metrics` page: the engine's figures as they were last copied out, and times as seen from the HTTP layer.
//!
//! Scraping reads a copy and never waits for the engine. Labels are bounded: routes come from the router's table, nothing
//! comes from what clients send.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pointsman_engine::decision::FaultClass;
use pointsman_engine::stats::{ChainStats, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::{self, CONTENT_TYPE};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::service::Service;

/// Content type of [`Metrics::text`].
pub(crate) const METRICS_CONTENT_TYPE: &str = CONTENT_TYPE;

const FIRST_TOKEN_SECONDS: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 80.0, 240.0, 720.0, 2560.0];
const INTER_TOKEN_SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 80.0];
const REQUEST_SECONDS: [f64; 16] =
    [0.01, 0.05, 0.1, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 480.0, 960.0, 1920.0, 7680.0];

type Labels = Vec<(&'static str, String)>;

/// All metrics of the process.
pub(crate) struct Metrics {
    source: Arc<Source>,
    registry: Registry,
    http_requests: Family<Labels, Counter>,
}

/// What is read at every scrape.
struct Source {
    service: Arc<dyn Service>,
    model: OnceLock<String>,
    first_token: Histogram,
    inter_token: Histogram,
    request: Histogram,
}

impl Metrics {
    /// Figures of `service`, and times that are still empty.
    pub(crate) fn new(service: Arc<dyn Service>) -> Self {
        let source = Arc::new(Source {
            service,
            model: OnceLock::new(),
            first_token: Histogram::new(FIRST_TOKEN_SECONDS),
            inter_token: Histogram::new(INTER_TOKEN_SECONDS),
            request: Histogram::new(REQUEST_SECONDS),
        });
        let http_requests = Family::default();
        let mut registry = Registry::with_prefix("pointsman");
        registry.register("http_requests", "HTTP requests by route and status", http_requests.clone());
        registry.register_collector(Box::new(Arc::clone(&source)));
        Self { source, registry, http_requests }
    }

    /// Names the model, once it is known.
    pub(crate) fn set_model(&self, id: &str) {
        // A second name can not come: the model is set once.
        let _ = self.source.model.set(id.to_owned());
    }

    /// Counts an answered HTTP request. `route` is a path of the router's table.
    pub(crate) fn count_http(&self, route: &str, status: u16) {
        let labels = vec![("route", route.to_owned()), ("status", status.to_string())];
        self.http_requests.get_or_create(&labels).inc();
    }

    /// The time from a request's head to its first token.
    pub(crate) fn first_token(&self, time: Duration) {
        self.source.first_token.observe(time.as_secs_f64());
    }

    /// The time between two tokens of a request.
    pub(crate) fn inter_token(&self, time: Duration) {
        self.source.inter_token.observe(time.as_secs_f64());
    }

    /// The whole duration of a generation, however it ended.
    pub(crate) fn request(&self, time: Duration) {
        self.source.request.observe(time.as_secs_f64());
    }

    /// The page, in Prometheus text.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        text.push_str(&self.source.service.extra_metrics());
        Ok(text)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.service.stats();
        let mut page = Page { encoder, model: self.model.get() };
        page.engine(&stats)?;
        page.chains(&stats.chains)?;
        let times = [
            ("time_to_first_token_seconds", "From the request's head to its first token", &self.first_token),
            ("inter_token_seconds", "Between two tokens of a request", &self.inter_token),
            ("request_seconds", "From the request's head to the end of its answer", &self.request),
        ];
        for (name, help, histogram) in times {
            page.family(name, help, [(vec![], histogram.clone())])?;
        }
        Ok(())
    }
}

/// Writes families that all carry the model's name.
struct Page<'a, 'm> {
    encoder: DescriptorEncoder<'a>,
    model: Option<&'m String>,
}

impl Page<'_, '_> {
    fn engine(&mut self, stats: &Stats) -> fmt::Result {
        self.gauge("requests_running", "Requests that run on a chain", stats.running)?;
        self.gauge("requests_waiting", "Requests in the central queue", stats.waiting)?;
        self.counter("prompt_tokens", "Prompt tokens of accepted requests", stats.prompt_tokens_total)?;
        self.counter("generated_tokens", "Tokens generated", stats.generated_tokens_total)?;
        let (queries, hits) = (stats.prefix_queries_tokens_total, stats.prefix_hits_tokens_total);
        self.counter("prefix_queries_tokens", "Prompt tokens looked up in the prefix cache", queries)?;
        self.counter("prefix_hits_tokens", "Prompt tokens found in the prefix cache, and not run", hits)?;
        let evicted = stats.prefix_evicted_blocks_total;
        self.counter("prefix_evicted_blocks", "KV blocks that the prefix cache gave up for others", evicted)?;
        self.counter("starved", "Requests that the builtin dispatched after too long a wait", stats.starved_total)?;
        let passed_over = stats.passed_over_total;
        self.counter("passed_over", "Sequences that ran because they had been passed over for too long", passed_over)?;
        self.counter("requests_accepted", "Requests accepted", stats.accepted_total)?;
        let outcomes = [
            ("stop", stats.stopped_total),
            ("length", stats.length_total),
            ("cancelled", stats.cancelled_total),
            ("failed", stats.failed_total),
            ("rejected", stats.rejected_total),
        ];
        let rows = outcomes.map(|(outcome, n)| (vec![("outcome", outcome.to_owned())], ConstCounter::new(n)));
        self.family("requests", "Requests by how they ended", rows)?;
        let slots = [
            ("route", stats.decisions_total, stats.fallbacks_total),
            ("batch", stats.batch.decisions_total, stats.batch.fallbacks_total),
            ("cache", stats.cache.decisions_total, stats.cache.fallbacks_total),
        ];
        let rows = slots.map(|(slot, n, _)| (vec![("slot", slot.to_owned())], ConstCounter::new(n)));
        self.family("decisions", "Decisions asked of a slot", rows)?;
        let rows = slots.iter().flat_map(|(slot, _, fallbacks)| {
            FaultClass::ALL.iter().zip(fallbacks).map(move |(class, n)| {
                (vec![("slot", (*slot).to_owned()), ("class", class.name().to_owned())], ConstCounter::new(*n))
            })
        });
        self.family("policy_fallbacks", "Decisions that the builtin made in a policy's place", rows)
    }

    fn chains(&mut self, chains: &[ChainStats]) -> fmt::Result {
        type Gauge = (&'static str, &'static str, fn(&ChainStats) -> u32);
        type Count = (&'static str, &'static str, fn(&ChainStats) -> u64);
        let gauges: [Gauge; 5] = [
            ("chain_jobs", "Sequences that run on a chain", |c| c.busy),
            ("chain_jobs_max", "Sequences that may run on a chain at once", |c| c.capacity),
            ("kv_blocks_used", "KV blocks reserved for sequences", |c| c.kv_blocks_used),
            ("kv_blocks_idle", "KV blocks that only the prefix cache holds", |c| c.kv_blocks_idle),
            ("kv_blocks_total", "KV blocks in all", |c| c.kv_blocks_total),
        ];
        let counts: [Count; 3] = [
            ("chain_steps", "Micro-batches completed", |c| c.steps_total),
            ("chain_tokens", "Tokens run through the stages, prompt and generated", |c| c.tokens_total),
            ("chain_dispatched", "Requests dispatched to a chain", |c| c.dispatched_total),
        ];
        let label = |chain: usize| vec![("chain", chain.to_string())];
        for (name, help, read) in gauges {
            let rows = chains.iter().enumerate().map(|(i, c)| (label(i), ConstGauge::new(i64::from(read(c)))));
            self.family(name, help, rows)?;
        }
        for (name, help, read) in counts {
            self.family(name, help, chains.iter().enumerate().map(|(i, c)| (label(i), ConstCounter::new(read(c)))))?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: u32) -> fmt::Result {
        self.family(name, help, [(vec![], ConstGauge::new(i64::from(value)))])
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, [(vec![], ConstCounter::new(value))])
    }

    fn family<M>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels, M)>) -> fmt::Result
    where
        M: EncodeMetric + prometheus_client::metrics::TypedMetric,
    {
        let mut family = self.encoder.encode_descriptor(name, help, None, M::TYPE)?;
        for (mut labels, metric) in rows {
            labels.extend(self.model.map(|model| ("model", model.clone())));
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
