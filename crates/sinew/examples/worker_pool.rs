//! A pool of workers: jobs go in through one channel, results come out of another.
//!
//! `cargo run -p sinew --example worker_pool`

use sinew::channel::{Receiver, Sender, bounded, unbounded};
use sinew::sync::WaitGroup;
use std::time::{Duration, Instant};

const WORKERS: usize = 50;
const JOBS: u64 = 1_000;

struct Job {
    number: u64,
}

struct Done {
    worker: usize,
    square: u64,
}

/// Works until there are no more jobs: all senders are gone, and the channel is
/// empty.
fn work(worker: usize, jobs: &Receiver<Job>, results: &Sender<Done>) {
    for job in jobs {
        // It waits for something: only this fiber does.
        sinew::sleep(Duration::from_millis(1)).expect("nobody cancels it");
        let square = job.number * job.number;
        results
            .send(Done { worker, square })
            .expect("somebody listens");
    }
}

fn main() {
    sinew::run(|| {
        let start = Instant::now();
        // Room for a few: who makes jobs waits for who does them.
        let (job, jobs) = bounded(2 * WORKERS);
        let (result, results) = unbounded();
        let group = WaitGroup::new();
        for worker in 0..WORKERS {
            let (jobs, result, group) = (jobs.clone(), result.clone(), group.clone());
            sinew::spawn(move || {
                work(worker, &jobs, &result);
                drop(group); // done
            });
        }
        for number in 1..=JOBS {
            job.send(Job { number }).expect("the workers are there");
        }
        drop(job);
        group.wait();
        drop(result);

        // What was sent is there, though all who sent it are gone.
        let mut jobs_of = [0; WORKERS];
        let mut sum = 0;
        for done in results {
            jobs_of[done.worker] += 1;
            sum += done.square;
        }
        let (least, most) = (jobs_of.iter().min(), jobs_of.iter().max());
        println!(
            "{JOBS} jobs of 1 ms, {WORKERS} workers: {:.1?}",
            start.elapsed()
        );
        println!(
            "each did {} to {} of them",
            least.expect("there are workers"),
            most.expect("there are workers")
        );
        assert_eq!(jobs_of.iter().sum::<u64>(), JOBS);
        assert_eq!(sum, JOBS * (JOBS + 1) * (2 * JOBS + 1) / 6);
    });
}
