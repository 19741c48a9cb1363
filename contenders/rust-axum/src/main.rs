//! A chat server on axum: a tokio broadcast channel for each room, to which
//! every member listens.

mod args;
mod hub;
mod limiter;
mod protocol;
mod session;
mod statistics;

use std::future::IntoFuture;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{State, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::Router;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::Args;
use crate::hub::Hub;
use crate::statistics::Statistics;

/// The largest message accepted, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

/// How long a stop may take.
const STOPPING: Duration = Duration::from_secs(5);

/// The state that all connections share.
pub struct App {
    args: Args,
    hub: Hub,
    statistics: Statistics,
    last_id: AtomicU64,
    stop: CancellationToken,
    sessions: TaskTracker,
}

#[tokio::main]
async fn main() -> ExitCode {
    let app = Arc::new(App {
        args: Args::parse(),
        hub: Hub::default(),
        statistics: Statistics::default(),
        last_id: AtomicU64::new(0),
        stop: CancellationToken::new(),
        sessions: TaskTracker::new(),
    });
    match serve(app).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rust-axum: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(app: Arc<App>) -> io::Result<()> {
    let _ = rlimit::increase_nofile_limit(u64::MAX); // each connection needs a file descriptor
    let started = Instant::now();
    let router = Router::new()
        .route("/ws", get(upgrade))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(app.clone());
    let listeners = listen(&app.args.host, app.args.port()).await?;
    let port = listeners[0].local_addr()?.port();
    for listener in listeners {
        let serving = axum::serve(listener, router.clone()).tcp_nodelay(true);
        let serving = serving.with_graceful_shutdown(app.stop.clone().cancelled_owned());
        app.sessions.spawn(serving.into_future());
    }
    println!("listening on :{port}");

    wait_for_end(app.args.duration()).await?;
    app.stop.cancel();
    app.sessions.close();
    let _ = timeout(STOPPING, app.sessions.wait()).await;
    let statistics = &app.statistics;
    print!("{}", statistics.summary(started.elapsed()));
    let (ignored, missed) = (statistics.ignored.load(Relaxed), statistics.missed.load(Relaxed));
    eprintln!("{ignored} messages ignored, {missed} missed by members that lagged");
    Ok(())
}

async fn upgrade(ws: WebSocketUpgrade, State(app): State<Arc<App>>) -> Response {
    ws.max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .on_upgrade(move |socket| app.sessions.clone().track_future(session::run(socket, app)))
}

/// Opens the port on every address of the host: localhost stands for both
/// loopback addresses, if the machine has them.
async fn listen(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let failed = |e| io::Error::other(format!("cannot listen on port {port} of {host}: {e}; choose others with --host and --port"));
    if host != "localhost" {
        return Ok(vec![TcpListener::bind((host, port)).await.map_err(failed)?]);
    }
    let mut listeners = vec![TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?];
    let port = listeners[0].local_addr()?.port();
    match TcpListener::bind(("::1", port)).await {
        Ok(listener) => listeners.push(listener),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(failed(e)),
        Err(_) => {} // a machine without IPv6
    }
    Ok(listeners)
}

/// Returns at SIGINT, SIGTERM or the end of the duration.
async fn wait_for_end(duration: Option<Duration>) -> io::Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = sleep(duration.unwrap_or_default()), if duration.is_some() => {}
    }
    Ok(())
}
