//! The HTTP server of the operator: `/metrics`, `/healthz` and `/readyz`.
//!
//! No request changes state, and no answer is secret. The server is meant for the cluster's internal network.

mod readiness;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use redislease_lock::contain::contained;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::metrics::Page;
use crate::metrics::panics::Panics;
pub use readiness::{Part, Readiness};

/// How long requests in flight may take at shutdown.
const GRACE: Duration = Duration::from_secs(2);

/// A server that is bound and does not answer requests yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Clone)]
struct Shared {
    page: Page,
    readiness: Readiness,
    /// Only one part of a page is generated at a time, so that many requests use one core at most.
    encoding: Arc<Semaphore>,
    panics: Panics,
}

impl Server {
    /// Binds `address`; with port 0 the operating system chooses a port.
    ///
    /// # Errors
    /// The address cannot be bound; the error names it.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(named)?;
        let address = listener.local_addr().map_err(named)?;
        Ok(Self { listener, address })
    }

    /// The bound address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `stop` is cancelled, then completes the requests in flight.
    ///
    /// # Errors
    /// The listener failed.
    pub async fn serve(
        self,
        page: Page,
        readiness: Readiness,
        panics: Panics,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let router = Router::new()
            .route("/metrics", get(show_metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(show_readiness))
            .with_state(Shared { page, readiness, encoding: Arc::new(Semaphore::new(1)), panics });
        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let graceful = axum::serve(self.listener, router).with_graceful_shutdown(async move {
            stop.await;
            let _ = stopping.send(());
        });
        // An open keep-alive connection must not delay the end of the process.
        let overdue = async {
            let _ = stopped.await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            done = graceful.into_future() => done,
            () = overdue => Ok(()),
        }
    }
}

async fn show_metrics(State(shared): State<Shared>) -> Response {
    let page = shared.page.clone();
    let parts = match shared.in_turn(move || page.parts()).await {
        Ok(Ok(parts)) => parts,
        Ok(Err(error)) => return failed(&error.to_string()),
        Err(error) => return failed(&error.to_string()),
    };
    // The next part is generated when the client has taken the last one.
    let body = stream::unfold(Some(parts), move |rest| {
        let shared = shared.clone();
        async move {
            let mut parts = rest?;
            match shared.in_turn(move || (parts.next(), parts)).await {
                Ok((part, parts)) => part.map(|part| (Ok(part), Some(parts))),
                // A client of HTTP/1.1 must not take the parts until here for the whole page.
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], Body::from_stream(body)).into_response()
}

impl Shared {
    /// Runs `work` on a blocking thread, so that it does not delay renewals. A panic ends this request only: the page shows what
    /// tenants have written.
    async fn in_turn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let _turn = self.encoding.acquire().await;
        let done = tokio::task::spawn_blocking(|| contained(work)).await.map_err(io::Error::other)?;
        done.map_err(|panicked| {
            self.panics.operator.inc();
            tracing::error!(panic = %panicked, "The page of metrics could not be written. The leases are not affected.");
            io::Error::other(panicked)
        })
    }
}

fn failed(error: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}\n")).into_response()
}

async fn show_readiness(State(shared): State<Shared>) -> Response {
    let missing = shared.readiness.missing();
    if missing.is_empty() {
        return "ready\n".into_response();
    }
    let lines: String = missing.iter().map(|part| format!("waiting for {part}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

#[cfg(test)]
mod tests;
