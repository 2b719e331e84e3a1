//! What all handlers share. Made before the model is loaded, completed by [`ApiState::set_model`].

use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use crate::error::{ApiError, Class};
use crate::limits::{INLINE_TEXT_BYTES_MAX, LONG_TEXTS_MAX};
use crate::metrics::Metrics;
use crate::service::{ModelInfo, PolicyAdmin, Readiness, Service};
use crate::text::ModelText;

/// Handle to the shared state; cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    service: Arc<dyn Service>,
    admin: Arc<dyn PolicyAdmin>,
    admin_token: Option<String>,
    model: OnceLock<Arc<Model>>,
    metrics: Arc<Metrics>,
    long_texts: Arc<Semaphore>,
}

/// The model as the HTTP layer sees it.
pub(crate) struct Model {
    /// Name and limits.
    pub(crate) info: ModelInfo,
    /// Its tokenizer and chat template.
    pub(crate) text: ModelText,
}

impl ApiState {
    /// State without a model: requests are answered with 503 until [`Self::set_model`].
    /// With `admin_token`, the admin routes need it and may be used from anywhere; without, from loopback only.
    #[must_use]
    pub fn new(service: Arc<dyn Service>, admin: Arc<dyn PolicyAdmin>, admin_token: Option<String>) -> Self {
        let metrics = Arc::new(Metrics::new(Arc::clone(&service)));
        let long_texts = Arc::new(Semaphore::new(LONG_TEXTS_MAX));
        Self(Arc::new(Shared { service, admin, admin_token, model: OnceLock::new(), metrics, long_texts }))
    }

    /// Completes the state with the loaded model. Only the first call counts; it returns whether it was that.
    pub fn set_model(&self, info: ModelInfo, text: ModelText) -> bool {
        self.0.metrics.set_model(&info.id);
        self.0.model.set(Arc::new(Model { info, text })).is_ok()
    }

    /// The model, if requests are taken now.
    pub(crate) fn ready_model(&self) -> Result<&Arc<Model>, ApiError> {
        match (self.readiness(), self.0.model.get()) {
            (Readiness::Ready, Some(model)) => Ok(model),
            (Readiness::Draining, _) => Err(ApiError::new(Class::Draining, "the server is shutting down")),
            _ => Err(ApiError::new(Class::Loading, "the model is being loaded; try again in a moment")),
        }
    }

    /// The model, once it is loaded.
    pub(crate) fn model(&self) -> Option<&Arc<Model>> {
        self.0.model.get()
    }

    /// Whether requests are taken. Ready only when the model's texts are here, too.
    pub(crate) fn readiness(&self) -> Readiness {
        match self.0.service.readiness() {
            Readiness::Ready if self.0.model.get().is_none() => Readiness::Loading,
            other => other,
        }
    }

    /// Runs work whose time grows with a text: at once if the text is short, so that the answer is not delayed, else on a
    /// thread that may block, so that health and streams are not.
    pub(crate) async fn with_text<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if bytes <= INLINE_TEXT_BYTES_MAX {
            return work();
        }
        let internal = |error: String| ApiError::new(Class::Internal, error);
        let turn = Arc::clone(&self.0.long_texts).acquire_owned().await.map_err(|error| internal(error.to_string()))?;
        // The turn ends with the work, even if the client leaves before that.
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| internal(error.to_string()))?
    }

    pub(crate) fn service(&self) -> &dyn Service {
        self.0.service.as_ref()
    }

    pub(crate) fn admin(&self) -> &dyn PolicyAdmin {
        self.0.admin.as_ref()
    }

    pub(crate) fn admin_token(&self) -> Option<&str> {
        self.0.admin_token.as_deref()
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }
}
