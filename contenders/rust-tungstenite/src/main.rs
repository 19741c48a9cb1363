//! A chat server on tokio-tungstenite: a task for each connection, the members
//! of all rooms in one shared map, a bounded queue for each member.

mod bucket;
mod connection;
mod listen;
mod message;
mod rooms;
mod settings;
mod stats;

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::rooms::Rooms;
use crate::settings::Settings;
use crate::stats::Stats;

/// How long a stop may take.
const STOPPING: Duration = Duration::from_secs(5);

/// The state that all connections share.
pub struct Server {
    settings: Settings,
    stats: Stats,
    rooms: Rooms,
    last_id: AtomicU64,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            stats: Stats::default(),
            rooms: Rooms::default(),
            last_id: AtomicU64::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Settings::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rust-tungstenite: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: Settings) -> io::Result<()> {
    let _ = rlimit::increase_nofile_limit(u64::MAX); // each connection needs a file descriptor
    let listeners = listen::open(&settings.host, settings.port()).await?;
    println!("listening on :{}", listeners[0].local_addr()?.port());

    let started = Instant::now();
    let server = Server::new(settings);
    for listener in listeners {
        server.tasks.spawn(accept(listener, server.clone()));
    }
    wait_for_end(server.settings.duration()).await?;
    server.stop.cancel();
    server.tasks.close();
    let _ = timeout(STOPPING, server.tasks.wait()).await;

    print!("{}", server.stats.report(started.elapsed()));
    let (ignored, lost) = (server.stats.ignored.load(Relaxed), server.stats.lost.load(Relaxed));
    eprintln!("{ignored} messages ignored, {lost} deliveries lost to full queues");
    Ok(())
}

/// Accepts connections until the stop.
async fn accept(listener: TcpListener, server: Arc<Server>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = server.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                server.tasks.spawn(listen::serve(stream, server.clone()));
            }
            Err(_) => sleep(Duration::from_millis(50)).await, // out of file descriptors: some will be closed
        }
    }
}

/// Returns at SIGINT, SIGTERM or the end of the duration.
async fn wait_for_end(duration: Option<Duration>) -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let end_of_time = async {
        match duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = end_of_time => {}
    }
    Ok(())
}
