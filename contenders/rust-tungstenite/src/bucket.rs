use std::time::Instant;

/// A token bucket that is refilled continuously: `rate` tokens a second, at
/// most `burst` of them.
pub struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes a token if there is a whole one.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = self.burst.min(self.tokens + self.rate * passed);
        self.at = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn allows_the_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 10.0, start);
        assert_eq!((0..25).filter(|_| bucket.take(start)).count(), 10);
        assert!(!bucket.take(start + Duration::from_millis(60)), "half a token");
        assert!(bucket.take(start + Duration::from_millis(120)), "refilled continuously");
        assert!(!bucket.take(start + Duration::from_millis(130)));
    }

    #[test]
    fn never_holds_more_than_the_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 3.0, start);
        let later = start + Duration::from_secs(60);
        assert_eq!((0..25).filter(|_| bucket.take(later)).count(), 3);
    }
}
