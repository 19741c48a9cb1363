use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::{connection, Server};

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest message accepted, in bytes.
const MAX_MESSAGE: usize = 1 << 20;

const HEALTH: &[u8] = b"GET /healthz ";

/// Opens the port on every address of the host: localhost stands for both
/// loopback addresses, if the machine has them.
pub async fn open(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let explain = |e: io::Error| {
        io::Error::new(
            e.kind(),
            format!("cannot listen on port {port} of {host}: {e}; choose others with --host and --port"),
        )
    };
    if host != "localhost" {
        return Ok(vec![TcpListener::bind((host, port)).await.map_err(explain)?]);
    }
    let v4 = TcpListener::bind(("127.0.0.1", port)).await.map_err(explain)?;
    let v6 = TcpListener::bind(("::1", v4.local_addr()?.port())).await;
    match v6 {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(explain(e)),
        Err(_) => Ok(vec![v4]), // a machine without IPv6
    }
}

/// Serves one TCP connection: the health check, or a WebSocket.
pub async fn serve(mut stream: TcpStream, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let handshake = async {
        if asks_for_health(&stream).await {
            answer_health(&mut stream).await;
            return None;
        }
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        tokio_tungstenite::accept_hdr_async_with_config(stream, only_ws, Some(config)).await.ok()
    };
    let socket = tokio::select! {
        socket = timeout(PATIENCE, handshake) => socket,
        _ = server.stop.cancelled() => return,
    };
    if let Ok(Some(socket)) = socket {
        let id = server.last_id.fetch_add(1, Relaxed);
        server.stats.connected();
        connection::serve(socket, id, server.clone()).await;
        server.stats.disconnected();
    }
}

/// Peeks at the beginning of the request: the library reads the request itself,
/// and supports only WebSockets.
async fn asks_for_health(stream: &TcpStream) -> bool {
    let mut start = [0; HEALTH.len()];
    loop {
        match stream.peek(&mut start).await {
            Ok(n) if n == HEALTH.len() => return start == HEALTH,
            Ok(n) if n > 0 && HEALTH.starts_with(&start[..n]) => sleep(Duration::from_millis(1)).await,
            _ => return false,
        }
    }
}

async fn answer_health(stream: &mut TcpStream) {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
    if stream.write_all(answer).await.is_ok() && stream.shutdown().await.is_ok() {
        // If the socket were closed before the request is read, a reset could destroy the answer.
        let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
    }
}

#[allow(clippy::result_large_err)] // the library's signature
fn only_ws(request: &Request, response: Response) -> Result<Response, ErrorResponse> {
    if request.uri().path() == "/ws" {
        return Ok(response);
    }
    let mut refused = ErrorResponse::new(Some("there is /ws and /healthz\n".to_string()));
    *refused.status_mut() = StatusCode::NOT_FOUND;
    Err(refused)
}
