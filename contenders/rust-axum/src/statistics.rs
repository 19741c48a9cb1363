use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts since the start.
#[derive(Default)]
pub struct Statistics {
    pub messages: AtomicU64,
    /// Chats over the rate limit.
    pub dropped: AtomicU64,
    /// Messages that are malformed, of an unknown type, or for a room that the client has not
    /// joined.
    pub ignored: AtomicU64,
    pub deliveries: AtomicU64,
    /// Upper bound for the chats that lagging members missed. It includes their own chats.
    pub missed: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
}

impl Statistics {
    pub fn opened(&self) {
        self.connections.fetch_add(1, Relaxed);
        let open = self.open.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(open, Relaxed);
    }

    pub fn closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// The summary of the counters after the elapsed time.
    pub fn summary(&self, elapsed: Duration) -> Summary {
        Summary {
            messages: self.messages.load(Relaxed),
            connections: self.connections.load(Relaxed),
            peak: self.peak.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            deliveries: self.deliveries.load(Relaxed),
            elapsed,
        }
    }
}

/// The block of statistics that every server with this contract prints when it stops.
pub struct Summary {
    messages: u64,
    connections: u64,
    peak: u64,
    dropped: u64,
    deliveries: u64,
    elapsed: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let drop_rate = 100.0 * self.dropped as f64 / (self.messages + self.dropped).max(1) as f64;
        let average = match self.messages {
            0 => Duration::ZERO,
            n => Duration::from_nanos(self.elapsed.as_nanos() as u64 / n),
        };
        let elapsed = Duration::from_millis((1000.0 * seconds).round() as u64);
        writeln!(f, "--- Statistics ---")?;
        writeln!(f, "Total messages: {}", self.messages)?;
        writeln!(f, "Total connections: {}", self.connections)?;
        writeln!(f, "Peak connections: {}", self.peak)?;
        writeln!(f, "Messages dropped: {}", self.dropped)?;
        writeln!(f, "Message drop rate: {drop_rate:.2}%")?;
        writeln!(f, "Throughput: {:.2} messages/sec", self.messages as f64 / seconds)?;
        writeln!(f, "Processing time: {}", human(elapsed))?;
        writeln!(f, "Average latency: {}", human(average))?;
        writeln!(f, "Deliveries: {}", self.deliveries)
    }
}

/// Formats a time as `7ns`, `1.25ms`, `2.5s`, `1m2.5s` or `1h0m0s`.
fn human(time: Duration) -> String {
    if time.is_zero() {
        return "0s".into();
    }
    if time < Duration::from_secs(60) {
        return format!("{time:?}");
    }
    let (hours, minutes) = (time.as_secs() / 3600, time.as_secs() / 60 % 60);
    let seconds = (time.as_millis() % 60_000) as f64 / 1000.0;
    if hours == 0 {
        return format!("{minutes}m{seconds}s");
    }
    format!("{hours}h{minutes}m{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_its_figures() {
        let statistics = Statistics::default();
        for _ in 0..3 {
            statistics.opened();
        }
        statistics.closed();
        statistics.opened();
        statistics.messages.store(3, Relaxed);
        statistics.dropped.store(6, Relaxed);
        statistics.deliveries.store(5, Relaxed);
        let text = statistics.summary(Duration::from_millis(600)).to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "--- Statistics ---",
                "Total messages: 3",
                "Total connections: 4",
                "Peak connections: 3",
                "Messages dropped: 6",
                "Message drop rate: 66.67%",
                "Throughput: 5.00 messages/sec",
                "Processing time: 600ms",
                "Average latency: 200ms",
                "Deliveries: 5",
            ]
        );
    }

    #[test]
    fn nothing_divides_by_zero() {
        let text = Statistics::default().summary(Duration::from_micros(1_000_300)).to_string();
        assert!(
            text.contains("rate: 0.00%\nThroughput: 0.00 messages/sec\nProcessing time: 1s\nAverage latency: 0s\n"),
            "{text}"
        );
    }

    #[test]
    fn times_read_well() {
        let times = [7, 1_500, 2_250_000, 62_050_000_000, 3_600_000_000_000].map(|ns| human(Duration::from_nanos(ns)));
        assert_eq!(times, ["7ns", "1.5µs", "2.25ms", "1m2.05s", "1h0m0s"]);
    }
}
