//! Serves the exposition over HTTP: `/metrics`, and `/healthz` for the probe of a container.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::exposition;
use crate::error::{Error, Result, io_error};

/// Scrapes that may be answered at once; each reads the database.
const SCRAPES: usize = 2;
/// Connections that may be open at once.
const CONNECTIONS: usize = 64;
/// How long a client may take to send its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the exposition. Called from a thread that may block.
pub type Gather = dyn Fn() -> Result<String> + Send + Sync;

/// Listens; tells the address that it got through `bound`; ends when `stop` does.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(
    address: &str,
    gather: Arc<Gather>,
    bound: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| io_error(format!("listen on {address}"), error).hint("--listen takes HOST:PORT"))?;
    let local = listener.local_addr().map_err(|error| io_error("look at the address", error))?;
    bound(local);
    let scrapes = Arc::new(Semaphore::new(SCRAPES));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(slot) = Arc::clone(&connections).try_acquire_owned() else { continue };
                let (gather, scrapes) = (Arc::clone(&gather), Arc::clone(&scrapes));
                tokio::spawn(async move {
                    answer_all(stream, gather, scrapes).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer_all(stream: TcpStream, gather: Arc<Gather>, scrapes: Arc<Semaphore>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (gather, scrapes) = (Arc::clone(&gather), Arc::clone(&scrapes));
        async move { Ok::<_, Infallible>(answer(&request, gather, &scrapes).await) }
    });
    let ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!("a connection of the metrics server broke off: {error}");
    }
}

async fn answer(
    request: &Request<Incoming>,
    gather: Arc<Gather>,
    scrapes: &Semaphore,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => scrape(gather, scrapes).await,
        // Says that this process answers; whether the database can be read is a metric, since
        // restarting the exporter would not help.
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/" => plain(StatusCode::OK, "lore: see /metrics and /healthz\n"),
        _ => plain(StatusCode::NOT_FOUND, "not found: see /metrics and /healthz\n"),
    }
}

async fn scrape(gather: Arc<Gather>, scrapes: &Semaphore) -> Response<Full<Bytes>> {
    let Ok(_slot) = scrapes.acquire().await else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    };
    let gathered = tokio::task::spawn_blocking(move || gather())
        .await
        .unwrap_or_else(|error| Err(Error::internal("gather metrics").because(error)));
    match gathered {
        Ok(text) => {
            let mut answer = plain(StatusCode::OK, text);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(exposition::CONTENT_TYPE));
            answer
        }
        Err(error) => {
            tracing::error!("gather metrics: {error}");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be gathered: see the log\n")
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
