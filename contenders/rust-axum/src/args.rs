use std::time::Duration;

use clap::Parser;

/// A chat server on axum.
#[derive(Parser)]
pub struct Args {
    /// Address to listen on; localhost means both IPv4 and IPv6
    #[arg(long, default_value = "localhost")]
    pub host: String,
    /// Port to listen on; 0 chooses a free port
    #[arg(long = "port", value_name = "PORT")]
    port_option: Option<u16>,
    /// Stop after this number of seconds; 0 runs until stopped
    #[arg(long = "duration", value_name = "SECONDS", value_parser = not_negative)]
    duration_option: Option<f64>,
    /// Chats a second that one connection may send
    #[arg(long, default_value = "10", value_parser = positive)]
    pub rate_limit: f64,
    /// Chats that one connection may send at once
    #[arg(long, default_value = "10", value_parser = positive)]
    pub rate_burst: f64,
    /// Seconds between two JSON pings
    #[arg(long, default_value = "30", value_parser = positive)]
    ping_interval: f64,
    /// Seconds of silence after which a connection is closed
    #[arg(long, default_value = "60", value_parser = positive)]
    pong_timeout: f64,
    /// The same as --port
    #[arg(default_value = "8080")]
    port: u16,
    /// The same as --duration
    #[arg(default_value = "0", value_parser = not_negative)]
    duration: f64,
}

impl Args {
    pub fn port(&self) -> u16 {
        self.port_option.unwrap_or(self.port)
    }

    /// None means: run until stopped.
    pub fn duration(&self) -> Option<Duration> {
        let seconds = self.duration_option.unwrap_or(self.duration);
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }

    pub fn ping_interval(&self) -> Duration {
        Duration::from_secs_f64(self.ping_interval)
    }

    pub fn pong_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.pong_timeout)
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().map_err(|_| "want a number, such as 0.5")?;
    match number {
        0.0..=1e9 => Ok(number),
        _ => Err("want 0 to 1000000000".into()),
    }
}

/// Rejects values below 0.000001 too, such as times of less than a microsecond.
fn positive(text: &str) -> Result<f64, String> {
    match not_negative(text)? {
        number if number >= 1e-6 => Ok(number),
        _ => Err("want more than 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port_and_duration(line: &str) -> Option<(u16, Option<f64>)> {
        let args = Args::try_parse_from(line.split(' ')).ok()?;
        Some((args.port(), args.duration().map(|d| d.as_secs_f64())))
    }

    #[test]
    fn options_go_before_positions() {
        assert_eq!(port_and_duration("axum"), Some((8080, None)));
        assert_eq!(port_and_duration("axum 9000 2.5"), Some((9000, Some(2.5))));
        assert_eq!(port_and_duration("axum --port 0 --duration 3"), Some((0, Some(3.0))));
        assert_eq!(port_and_duration("axum 9000 3 --duration 0"), Some((9000, None)));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "axum 65536",
            "axum 1 -1",
            "axum --rate-burst 0",
            "axum --ping-interval x",
            "axum --pong-timeout NaN",
            "axum 1 2 3",
        ] {
            assert_eq!(port_and_duration(line), None, "{line}");
        }
    }
}
