use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The counters of the server since its start.
#[derive(Default)]
pub struct Stats {
    pub messages: AtomicU64,
    /// Chats over the rate limit.
    pub dropped: AtomicU64,
    /// Messages that the server ignored.
    pub ignored: AtomicU64,
    pub deliveries: AtomicU64,
    /// Deliveries that were dropped because a member's queue was full.
    pub lost: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
}

impl Stats {
    pub fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.peak.fetch_max(self.open.fetch_add(1, Relaxed) + 1, Relaxed);
    }

    pub fn disconnected(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// The block of statistics that every server with this contract prints when it stops.
    pub fn report(&self, elapsed: Duration) -> String {
        let (messages, dropped) = (self.messages.load(Relaxed), self.dropped.load(Relaxed));
        let share = if dropped == 0 {
            0.0
        } else {
            100.0 * dropped as f64 / (messages + dropped) as f64
        };
        let average = (elapsed.as_nanos() as u64).checked_div(messages).unwrap_or(0);
        let milliseconds = (elapsed.as_nanos() as u64 + 500_000) / 1_000_000;
        format!(
            "--- Statistics ---\n\
             Total messages: {messages}\n\
             Total connections: {}\n\
             Peak connections: {}\n\
             Messages dropped: {dropped}\n\
             Message drop rate: {share:.2}%\n\
             Throughput: {:.2} messages/sec\n\
             Processing time: {}\n\
             Average latency: {}\n\
             Deliveries: {}\n",
            self.connections.load(Relaxed),
            self.peak.load(Relaxed),
            messages as f64 / elapsed.as_secs_f64(),
            span(Duration::from_millis(milliseconds)),
            span(Duration::from_nanos(average)),
            self.deliveries.load(Relaxed),
        )
    }
}

/// Formats a time in a suitable unit: `1h0m2.5s`, `1.25ms`, `7ns`.
fn span(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let seconds = (time - Duration::from_secs(60 * minutes)).as_secs_f64();
    match minutes {
        0 if time.is_zero() => "0s".to_string(),
        0 => format!("{time:?}"),
        1..60 => format!("{minutes}m{seconds}s"),
        _ => format!("{}h{}m{seconds}s", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        for (ns, want) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (2_250_000, "2.25ms"),
            (100_000_000, "100ms"),
            (10_000_000_000, "10s"),
            (62_050_000_000, "1m2.05s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(span(Duration::from_nanos(ns)), want);
        }
    }

    #[test]
    fn the_report_has_a_figure_a_line() {
        let stats = Stats::default();
        stats.connected();
        stats.connected();
        stats.disconnected();
        stats.connected();
        stats.messages.store(30, Relaxed);
        stats.dropped.store(10, Relaxed);
        stats.deliveries.store(90, Relaxed);
        let want = "--- Statistics ---\nTotal messages: 30\nTotal connections: 3\nPeak connections: 2\nMessages dropped: 10\n\
                    Message drop rate: 25.00%\nThroughput: 20.00 messages/sec\nProcessing time: 1.5s\nAverage latency: 50ms\nDeliveries: 90\n";
        assert_eq!(stats.report(Duration::from_millis(1500)), want);
    }

    #[test]
    fn the_report_of_an_idle_server_has_zeros() {
        let report = Stats::default().report(Duration::from_micros(2_000_400));
        for line in [
            "Message drop rate: 0.00%",
            "Throughput: 0.00 messages/sec",
            "Processing time: 2s",
            "Average latency: 0s",
        ] {
            assert!(report.lines().any(|l| l == line), "no {line:?} in {report}");
        }
    }
}
