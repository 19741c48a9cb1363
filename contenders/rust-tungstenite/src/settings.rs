use std::time::Duration;

use clap::Parser;

/// A chat server on tokio-tungstenite.
#[derive(Parser)]
pub struct Settings {
    /// Address to listen on; localhost means both IPv4 and IPv6
    #[arg(long, default_value = "localhost")]
    pub host: String,
    /// Port to listen on; 0 chooses a free port [default: 8080]
    #[arg(long)]
    port: Option<u16>,
    /// Stop after this number of seconds; 0 runs until stopped [default: 0]
    #[arg(long, value_parser = seconds)]
    duration: Option<Duration>,
    /// Chats a second that one connection may send
    #[arg(long, default_value = "10", value_parser = positive)]
    pub rate_limit: f64,
    /// Chats that one connection may send at once
    #[arg(long, default_value = "10", value_parser = positive)]
    pub rate_burst: f64,
    /// Seconds between two JSON pings
    #[arg(long, default_value = "30", value_parser = some_seconds)]
    pub ping_interval: Duration,
    /// Seconds of silence after which a connection is closed
    #[arg(long, default_value = "60", value_parser = some_seconds)]
    pub pong_timeout: Duration,
    #[arg(value_name = "PORT")]
    port_argument: Option<u16>,
    #[arg(value_name = "DURATION", value_parser = seconds)]
    duration_argument: Option<Duration>,
}

impl Settings {
    pub fn port(&self) -> u16 {
        self.port.or(self.port_argument).unwrap_or(8080)
    }

    /// None means: run until stopped.
    pub fn duration(&self) -> Option<Duration> {
        self.duration.or(self.duration_argument).filter(|d| !d.is_zero())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "want a number of seconds".to_string())?;
    Duration::try_from_secs_f64(number).map_err(|e| e.to_string())
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|d| if d.is_zero() { Err("want more than 0".into()) } else { Ok(d) })
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 => Ok(number),
        _ => Err("want a number above 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Settings, clap::Error> {
        Settings::try_parse_from([&["rust-tungstenite"], args].concat())
    }

    #[test]
    fn port_and_duration_are_options_or_arguments() {
        for (args, port, duration) in [
            (&[][..], 8080, None),
            (&["9000", "0"][..], 9000, None),
            (&["9000", "1.5"][..], 9000, Some(Duration::from_millis(1500))),
            (&["--port", "0", "--duration", "2"][..], 0, Some(Duration::from_secs(2))),
            (&["9000", "9", "--port=9001"][..], 9001, Some(Duration::from_secs(9))),
        ] {
            let settings = parse(args).unwrap();
            assert_eq!((settings.port(), settings.duration()), (port, duration), "{args:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            ["--port", "70000"],
            ["--duration", "-1"],
            ["--rate-limit", "0"],
            ["--ping-interval", "0"],
            ["--pong-timeout", "soon"],
        ] {
            assert!(parse(&args).is_err(), "{args:?} was accepted");
        }
    }
}
