use tokio::time::Instant;

/// The rate limit of one connection: a token bucket, refilled continuously.
pub struct Limiter {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled: Instant,
}

impl Limiter {
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            refilled: Instant::now(),
        }
    }

    /// Takes a token if there is one.
    pub fn allow(&mut self) -> bool {
        let now = Instant::now();
        let refill = self.per_second * (now - self.refilled).as_secs_f64();
        self.tokens = (self.tokens + refill).min(self.burst);
        self.refilled = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn refills_continuously_up_to_the_burst() {
        let mut limiter = Limiter::new(10.0, 10.0);
        assert_eq!((0..20).filter(|_| limiter.allow()).count(), 10);
        advance(Duration::from_millis(60)).await;
        assert!(!limiter.allow(), "0.6 tokens are none");
        advance(Duration::from_millis(60)).await;
        assert!(limiter.allow());
        advance(Duration::from_secs(60)).await;
        assert_eq!((0..20).filter(|_| limiter.allow()).count(), 10);
    }
}
