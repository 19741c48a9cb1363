use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{interval_at, timeout, timeout_at};
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::{frame::coding::CloseCode, CloseFrame};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::WebSocketStream;

use crate::bucket::Bucket;
use crate::message::{self, Incoming};
use crate::rooms::Outgoing;
use crate::Server;

/// The maximum number of messages that wait for one client. Further messages are lost to it.
const QUEUE: usize = 1024;

const MAX_ROOMS: usize = 100;

/// The longest name of a room, in bytes.
const MAX_NAME: usize = 128;

/// How long a closing handshake may take.
const CLOSING: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<TcpStream>;

/// Why reading from a client has ended.
enum End {
    /// The client has closed the connection, or the connection is broken.
    Gone,
    /// The server closes the connection, with this code.
    Close(CloseCode),
}

/// Serves one client to the end of its connection.
pub async fn serve(socket: Socket, id: u64, server: Arc<Server>) {
    let (sink, mut stream) = socket.split();
    let (queue, outgoing) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(write(sink, outgoing, server.clone()));

    let stop = server.stop.clone();
    let bucket = Bucket::new(server.settings.rate_limit, server.settings.rate_burst, Instant::now());
    let mut client = Client {
        id,
        server,
        queue,
        bucket,
        rooms: HashSet::new(),
    };
    let end = tokio::select! {
        end = client.read(&mut stream) => end,
        _ = stop.cancelled() => End::Close(CloseCode::Away),
    };
    client.server.rooms.leave(&client.rooms, id);
    if let End::Close(code) = end {
        let handshake = async {
            let _ = client.queue.send(Outgoing::Close(code.into())).await;
            while let Some(Ok(_)) = stream.next().await {}
        };
        let _ = timeout(CLOSING, handshake).await;
    }
    writer.abort();
}

/// One connection, as used by its reading task.
struct Client {
    id: u64,
    server: Arc<Server>,
    queue: mpsc::Sender<Outgoing>,
    bucket: Bucket,
    rooms: HashSet<String>,
}

impl Client {
    /// Reads until the connection ends, with a ping at each interval.
    async fn read(&mut self, stream: &mut SplitStream<Socket>) -> End {
        let (every, patience) = (self.server.settings.ping_interval, self.server.settings.pong_timeout);
        let mut heartbeat = interval_at(tokio::time::Instant::now() + every, every);
        let mut heard = tokio::time::Instant::now();
        loop {
            let frame = tokio::select! {
                frame = timeout_at(heard + patience, stream.next()) => frame,
                _ = heartbeat.tick() => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    // If the queue is full, the client has enough to read.
                    let _ = self.queue.try_send(Outgoing::Answer(message::ping(now.as_millis())));
                    continue;
                }
            };
            heard = tokio::time::Instant::now();
            let end = match frame {
                Err(_silent) => Some(End::Close(CloseCode::Normal)),
                Ok(None) => Some(End::Gone),
                Ok(Some(Err(error))) => Some(end_of(&error)),
                Ok(Some(Ok(Message::Text(text)))) => self.handle(text).await,
                Ok(Some(Ok(Message::Binary(_)))) => self.ignore(),
                Ok(Some(Ok(_))) => None, // the library answers pings and close frames
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn handle(&mut self, text: Utf8Bytes) -> Option<End> {
        let Some(message) = Incoming::parse(&text) else { return self.ignore() };
        match &*message.kind {
            "join" => match self.join(message.room()) {
                true => None,
                false => self.ignore(),
            },
            "chat" => self.say(&message, &text),
            "ping" => self.answer(message.pong()).await,
            "pong" => None,
            "leave" => self.leave(message.room.as_ref()),
            _ => self.ignore(),
        }
    }

    /// Makes the client a member, and returns whether it is one now.
    fn join(&mut self, room: &str) -> bool {
        if self.rooms.contains(room) {
            return true;
        }
        if self.rooms.len() >= MAX_ROOMS || room.len() > MAX_NAME {
            return false;
        }
        self.server.rooms.join(room, self.id, &self.queue);
        self.rooms.insert(room.to_string());
        true
    }

    fn say(&mut self, message: &Incoming, text: &Utf8Bytes) -> Option<End> {
        let room = message.room();
        let member = self.rooms.contains(room) || message.is_public() && self.join(room);
        if !member {
            return self.ignore();
        }
        let stats = &self.server.stats;
        if !self.bucket.take(Instant::now()) {
            stats.dropped.fetch_add(1, Relaxed);
            return None;
        }
        stats.messages.fetch_add(1, Relaxed);
        stats.lost.fetch_add(self.server.rooms.say(room, self.id, text), Relaxed);
        None
    }

    /// Leaves a room, or all rooms if there is no name. The connection of a client without rooms is
    /// closed.
    fn leave(&mut self, room: Option<&String>) -> Option<End> {
        match room {
            Some(room) => {
                if let Some(room) = self.rooms.take(room) {
                    self.server.rooms.leave([&room], self.id);
                }
            }
            None => {
                self.server.rooms.leave(&self.rooms, self.id);
                self.rooms.clear();
            }
        }
        self.rooms.is_empty().then_some(End::Close(CloseCode::Normal))
    }

    /// Waits for a free place in the queue. So the server does not read from a
    /// client that reads no answers, and such a client is closed as silent in
    /// the end.
    async fn answer(&self, text: String) -> Option<End> {
        let sent = self.queue.send_timeout(Outgoing::Answer(text), self.server.settings.pong_timeout).await;
        sent.is_err().then_some(End::Close(CloseCode::Normal))
    }

    fn ignore(&self) -> Option<End> {
        self.server.stats.ignored.fetch_add(1, Relaxed);
        None
    }
}

/// How a connection ends after a message that broke the protocol.
fn end_of(error: &Error) -> End {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => End::Close(CloseCode::Size),
        Error::Protocol(_) => End::Close(CloseCode::Protocol),
        Error::Utf8 => End::Close(CloseCode::Invalid),
        _ => End::Gone,
    }
}

/// Sends the queued messages. All that are waiting leave in one flush.
async fn write(mut sink: SplitSink<Socket, Message>, mut queue: mpsc::Receiver<Outgoing>, server: Arc<Server>) -> Result<(), Error> {
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Chat(text) => {
                    sink.feed(Message::Text(text)).await?;
                    server.stats.deliveries.fetch_add(1, Relaxed);
                }
                Outgoing::Answer(text) => sink.feed(Message::text(text)).await?,
                Outgoing::Close(code) => {
                    let frame = CloseFrame {
                        code: code.into(),
                        reason: Utf8Bytes::default(),
                    };
                    return sink.send(Message::Close(Some(frame))).await;
                }
            }
            next = queue.try_recv().ok();
        }
        sink.flush().await?;
    }
    Ok(())
}
